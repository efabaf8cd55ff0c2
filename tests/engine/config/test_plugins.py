"""Games of installed packages: found, trained, and refused in a line if they are broken."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.config import plugins
from engine.config.game import game_of
from engine.config.run_config import options_of_all
from engine.protocol.outcome import Goal, Outcome, Result
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.commands import train
from mario_tui.extras import profile
from mario_tui.screens.dashboard import DashboardScreen
from tests.support.app import shown_as, text, until
from tests.support.plugins import SOURCE, add_metadata, importers, install_catch, put_on_path
from tests.support.program import json_lines, run_program, the_run

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
CATCH = ("--game", "catch", "--no-ui", "--log-format", "json", "--steps", "2500", "--eval-every", "2500", "--seed", "1")
HEAD = "from engine.config.game import *\nfrom engine.config.fields import option\nfrom dataclasses import dataclass\n"
GOOD = (SOURCE / "plugin_catch/game.py").read_text()


def edited(name: str, before: str, after: str) -> str:
    """The descriptor of Catch under another name, with a mistake."""
    assert before in GOOD
    return GOOD.replace(before, after).replace('"catch"', f'"{name}"')


BROKEN = {
    "no-module": ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
    "no-game": ("class Catch: ...", "broken_no_game:Catch must be a subclass of engine.config.game.Game"),
    "no-methods": (f"{HEAD}class Catch(Game): ...", "TypeError: Can't instantiate abstract class Catch"),
    "exits": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "torch": ("import torch", "its descriptor must not import torch; see docs/plugins.md"),
    "earlier": (f"{HEAD}class Catch(Game):\n make_lanes = 1", "it was written for mario-tui 0.2"),
    "earlier-name": ("from engine.config.game import PersonKeys", "see docs/plugins.md"),
    "escapes": (r"raise ValueError('a \x1b[31mred\nline')", r"a \x1b[31mred"),
    "other-name": (GOOD, "broken_other_name:Catch is called 'catch'"),
    "colliding": (edited("colliding", "balls", "buffer_size"), "its option buffer_size has the name of one"),
    "flag": (edited("flag", "balls", "resume"), "its option resume has the name of one"),
    "no-help": (edited("no-help", "width of the paddle in cells", ""), "its option paddle has no help"),
    "no-bound": (edited("no-bound", "low=1, high=20, ", ""), "its option paddle must have a lower bound"),
    "no-task": (edited("no-task", 'tasks = "board"', ""), "it has no tasks"),
    "no-option": (edited("no-option", 'tasks = "board"', 'tasks = "bored"'), "it has no option bored"),
    "no-role": (edited("no-role", '"network", "policy")', '"network", "polity")'), "has the role 'polity'"),
    "no-place": (
        edited("no-place", "plugin_catch.lanes:make_lanes", "plugin_catch.lanes"),
        "its lanes must be module:name",
    ),
    "no-keys": (
        edited("no-keys", "def keys_of_person", "def keys"),
        "must have keys_of_person; see Playable",
    ),
    "bad-default": (edited("bad-default", '"burnin": 500', '"burnin": 0'), "--burnin must be a whole number"),
    "bad-name": (
        edited("bad-name", 'Result("caught"', 'Result("length"'),
        "the name 'length' stands for something else",
    ),
    "bad-data": (edited("bad-data", '("grid", "mlp")\n    own', '("grid", 3)\n    own'), "networks: Expected `str`"),
    "number-task": (edited("number-task", 'tasks = "board"', 'tasks = "balls"'), "its option balls must be text"),
    "odd-spec": (edited("odd-spec", "Spec((2, height", "Spec((0, height"), "its spec must have frames of 1 to 3 axes"),
    "taken": (edited("taken", 'Result("caught"', 'Result("event"'), "outcome: the name 'event' stands for something"),
    "red-label": (edited("red-label", '"complete game"', r'"\x1b[31mred"'), "outcome: Expected `str` matching regex"),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages on the path of all processes that are started."""
    folder = tmp_path / "site"
    folder.mkdir()
    put_on_path(folder, monkeypatch)
    return folder


@pytest.fixture
def catch(site: Path) -> Path:
    install_catch(site)
    return site


@dataclass(frozen=True)
class Trained:
    site: Path
    run: Run
    events: list[dict[str, Any]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of Catch, in a folder where the package is installed."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("trained")
    install_catch(site)
    with pytest.MonkeyPatch.context() as patch:
        put_on_path(site, patch)
        events = json_lines(run_program(*CATCH, cwd=folder).stdout)
    return Trained(site, the_run(folder), events)


def module(site: Path, name: str, source: str) -> None:
    file = f"broken_{name.replace('-', '_')}"
    (site / f"{file}.py").write_text(source)
    add_metadata(site, f"broken-{name}", {name: f"{file}:Catch"})


def test_its_options_are_in_the_help(catch: Path, tmp_path: Path) -> None:
    shown = run_program("--game", "catch", "--help-all", cwd=tmp_path).stdout
    assert "--paddle N" in shown and "width of the paddle in cells (default: 2)" in " ".join(shown.split())
    assert "--replay-ratio X" in shown and "(default: 8.0)" in shown and "--death-penalty" not in shown


def test_what_it_prints_is_no_output_of_a_command(catch: Path, tmp_path: Path) -> None:
    with (catch / "plugin_catch" / "game.py").open("a") as file:
        file.write("print('hello')\n")
    done = run_program("--game", "catch", "--help", cwd=tmp_path)
    assert done.stderr == "hello\n" and done.stdout.startswith("usage: mario-tui")


@pytest.fixture
def walk(site: Path) -> Path:
    """The game of docs/plugins.md, as it stands on the page."""
    blocks = re.findall(r"\*\*(\S+)\*\*\n\n```\w+\n(.*?)```", (ROOT / "docs/plugins.md").read_text(), re.DOTALL)[:3]
    assert [name for name, _ in blocks] == ["pyproject.toml", "plugin_walk/game.py", "plugin_walk/lanes.py"]
    for name, source in blocks:
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(source)
    project = tomllib.loads((site / "pyproject.toml").read_text())["project"]
    add_metadata(site, project["name"], project["entry-points"]["mario_tui.games"])
    assert sum(len(source.splitlines()) for name, source in blocks if name.endswith(".py")) <= 62
    return site


def test_the_game_of_the_page_works_in_every_command(walk: Path, tmp_path: Path) -> None:
    options = ("--game", "walk", "--steps", "20000", "--eval-every", "10000", "--log-format", "json", "--seed", "1")
    *events, summary = json_lines(run_program("--no-ui", *options, cwd=tmp_path).stdout)
    assert max(event["mean_return"] for event in events if event["event"] == "evaluation") == 1
    assert summary["event"] == "summary"
    name = the_run(tmp_path).name
    (judged,) = json_lines(run_program("eval", name, "--episodes", "5", "--json", cwd=tmp_path).stdout)
    assert judged["mean_return"] == 1 and judged["trained_on"] == "short"
    run_program("play", name, "--record", "walk.gif", cwd=tmp_path)
    resumed = run_program("--resume", name, "--steps", "21000", "--no-ui", "--log-format", "json", cwd=tmp_path)
    assert json_lines(resumed.stdout)[-1]["env_steps"] >= 21_000
    refused = run_program("play", "--human", "--game", "walk", cwd=tmp_path, check=2).stderr
    assert "--human can't be combined with --game walk, which only policies can play" in refused


def test_lanes_that_lack_something_are_refused_and_leave_no_run(walk: Path, tmp_path: Path) -> None:
    lanes = walk / "plugin_walk/lanes.py"
    lanes.write_text(lanes.read_text().replace("def step(", "def stepped("))
    failed = run_program("--no-ui", "--game", "walk", cwd=tmp_path, check=2).stderr
    assert "--game walk: plugin_walk.lanes:WalkLanes must have step; see docs/plugins.md" in failed
    assert not list(tmp_path.glob("checkpoints/*/run.json"))


def test_it_trains_resumes_and_is_evaluated(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(trained.site, monkeypatch)
    (evaluation,) = (event for event in trained.events if event["event"] == "evaluation")
    assert evaluation["mean_return"] > 5 and evaluation["mean_caught"] == evaluation["mean_return"]
    folder, name = trained.run.path.parents[1], trained.run.name
    resumed = run_program("--resume", name, "--steps", "3000", "--no-ui", "--log-format", "json", cwd=folder)
    assert json_lines(resumed.stdout)[-1]["env_steps"] >= 3000
    (judged,) = json_lines(run_program("eval", name, "--episodes", "5", "--json", cwd=folder).stdout)
    assert judged["game"] == "catch" and judged["mean_return"] > 2 and judged["trained_on"] == "5x6"


@pytest.mark.long
def test_what_its_own_code_checks_is_refused_before_a_run_starts(catch: Path, tmp_path: Path) -> None:
    for given, refused in (
        (("--board", "3x3", "--paddle", "4"), "--paddle must be at most the board's width, 3, got 4"),
        (("--board", "3y3"), "--board must be WIDTHxHEIGHT, both 2 to 20, got '3y3'"),
        (("--paddle", "0"), "--paddle must be a whole number between 1 and 20, got 0"),
        (("--brain", "grid2"), "--brain must be one of grid, mlp, got 'grid2'"),
    ):
        assert run_program(*CATCH, *given, cwd=tmp_path, check=2).stderr == f"mario-tui: error: {refused}\n"
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.long
def test_lanes_that_are_not_what_the_game_said_end_the_run_with_a_reason(catch: Path, tmp_path: Path) -> None:
    lanes = catch / "plugin_catch" / "lanes.py"
    lanes.write_text(lanes.read_text().replace("config.spec, seed", "Spec((3, 6, 5), 3), seed"))
    with lanes.open("a") as file:
        file.write("\n\nfrom engine.config.game import Spec\n")
    failed = json_lines(run_program(*CATCH, cwd=tmp_path, check=1).stdout)[-1]
    assert "plugin_catch.lanes:make_lanes must make 1 with Spec(frame_shape=(2, 6, 5)" in failed["reason"]


@pytest.mark.long
@pytest.mark.parametrize("runner", ["parallel", "ddp", "apex"])
def test_every_runner_trains_it(runner: str, catch: Path, tmp_path: Path) -> None:
    events = json_lines(run_program(*CATCH, "--runner", runner, "--steps", "6000", cwd=tmp_path).stdout)
    assert max(event["mean_return"] for event in events if event["event"] == "evaluation") > 10


@pytest.mark.long
@pytest.mark.parametrize("runner", ["single", "parallel", "ddp", "apex"])
def test_every_runner_resumes_it_with_other_options_of_its_own(runner: str, catch: Path, tmp_path: Path) -> None:
    options = (*CATCH, "--runner", runner, "--brain", "grid", "--balls", "5")
    run_program(*options, cwd=tmp_path)
    run = the_run(tmp_path)
    run_program("--resume", run.name, "--steps", "4000", "--balls", "7", "--no-ui", cwd=tmp_path)
    assert run.record().env_steps >= 4000 and "balls = 7\n" in (run.path / "config.toml").read_text()
    changed = run_program("--resume", run.name, "--steps", "6000", "--board", "4x4", "--no-ui", cwd=tmp_path, check=2)
    assert "--board must be 5x6, as in the checkpoint" in changed.stderr


FORM = """
import asyncio, sys
from textual.widgets import Input, TabbedContent
from mario_tui.app import MarioApp
from mario_tui.widgets.form_rows import Choice, FieldRow
from tests.support.app import until
from tests.support.form import focused, form_of, shown

async def main():
    app = MarioApp(run_dir=sys.argv[1])
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await form_of(pilot)
        tabs = screen.query_one(TabbedContent)
        tabs.active = "group-run"
        await focused(pilot, "name")
        screen.query_one("#edit-game", Choice).value = "catch"
        await until(pilot, lambda: screen.form.text("game") == "catch", "catch")
        tabs.active = "group-environment"
        await focused(pilot, "board")
        rows = [row.field for row in screen.query(FieldRow) if row.display and row.parent.parent.id == tabs.active]
        assert rows == ["board", "paddle", "balls"], rows
        assert screen.query_one("#edit-board", Input).placeholder == "5x6"
        screen.query_one("#edit-board", Input).value = "1x1"
        row = screen.query_one("#row-board", FieldRow)
        await until(pilot, lambda: "✗ must be WIDTHxHEIGHT" in str(row.query_one(".about").render()), "the complaint")
        screen.query_one("#edit-board", Input).value = "3x9"
        await until(pilot, lambda: "--board=3x9" in shown(screen, "#command"), "the command")
        assert "GiB" in shown(screen, "#memory") and not screen.form.errors()
    assert "plugin_catch.lanes" not in sys.modules and "torch" not in sys.modules

asyncio.run(main())
"""


@pytest.mark.long
def test_the_form_offers_and_checks_its_options(catch: Path, tmp_path: Path) -> None:
    code = [sys.executable, "-c", FORM, str(tmp_path / "runs")]
    done = subprocess.run(code, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_broken_package_costs_one_line_and_nothing_else(catch: Path, tmp_path: Path) -> None:
    for name, (source, _) in BROKEN.items():
        module(catch, name, source)
    add_metadata(catch, "zz-clashing", {"snake": "x:Y", "Not_A_Name": "x:Y", "catch": "x:Y"})
    done = run_program("--help", cwd=tmp_path)
    assert "--game mario|snake|tetris|gym|catch\n" in done.stdout
    expected = {(name, f"broken_{name.replace('-', '_')}"): reason for name, (_, reason) in BROKEN.items()} | {
        ("snake", "zz_clashing"): "a built-in game has its name",
        ("Not_A_Name", "zz_clashing"): "its name must be lower-case letters, digits and hyphens",
        ("catch", "zz_clashing"): "package plugin_catch has a game of that name",
    }
    lines = done.stderr.splitlines()
    for (name, package), reason in expected.items():
        begins = f"mario-tui: the game {name!r} of package {package} can't be used: "
        (told,) = (line.removeprefix(begins) for line in lines if line.startswith(begins))
        assert reason in told
    assert len(lines) == len(expected)
    asked = run_program("--game", "exits", "--no-ui", cwd=tmp_path, check=2).stderr
    assert "the game 'exits' of package broken_exits can't be used: SystemExit: 3" in asked
    assert asked.endswith("mario-tui: error: --game must be one of mario, snake, tetris, gym, catch, got 'exits'\n")


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome((Result("return", "x"),)), "the name 'return' stands for something else already"),
        (Outcome((Result("a", "x"), Result("a", "y"))), "the name 'a' stands for something else already"),
        (Outcome((Result("a", "x"),), Goal("a", "y")), "the name 'a' stands for something else already"),
        (Outcome(tasks=("1", "2"), task="event"), "the name 'event' stands for something else already"),
        (Outcome(tasks=("1", "2")), "a name must be lower-case letters, digits and underscores, got ''"),
        (Outcome((Result("a b", "x"),)), "a name must be lower-case letters, digits and underscores, got 'a b'"),
        (Outcome((Result("a", ""),)), "results and goal must have labels"),
        (Outcome(judged_by="goal"), "judged_by must be return, got 'goal'"),
    ],
)
def test_a_name_in_an_outcome_stands_for_one_thing(outcome: Outcome, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^outcome: {reason}$"):
        plugins._check_outcome(outcome)


@pytest.mark.parametrize("game", ["mario", "snake", "tetris"])
def test_the_outcomes_of_built_in_games_are_what_packages_may_declare(game: str) -> None:
    plugins._check_outcome(game_of(game).outcome)


def test_a_run_whose_game_is_gone_is_listed_and_resuming_it_says_so(trained: Trained) -> None:
    folder, name = trained.run.path.parents[1], trained.run.name
    listed = json.loads(run_program("runs", "--json", cwd=folder).stdout)
    assert [(each["game"], each["state"]) for each in listed] == [("catch", "finished")]
    for command in (("--resume", name, "--no-ui"), ("eval", name)):
        refused = run_program(*command, cwd=folder, check=2).stderr
        assert "game must be one of mario, snake, tetris, gym, got 'catch'" in refused and refused.count("\n") == 1


async def test_the_dashboard_of_a_run_whose_game_is_gone_opens(trained: Trained) -> None:
    app = MarioApp(open_run=trained.run)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = await shown_as(pilot, DashboardScreen)
        await until(pilot, lambda: "catch" in text(dashboard, "header") and dashboard.shown.points, "the run")


def test_a_module_that_no_package_offers_is_never_imported(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained.site / "plugin_catch", tmp_path / "site" / "plugin_catch")
    put_on_path(tmp_path / "site", monkeypatch)
    (policy,) = trained.run.path.glob("best.safetensors")
    for command in (["eval", str(policy)], ["play", str(policy)], ["--initial-policy", str(policy), "--no-ui"]):
        assert "catch" in run_program(*command, cwd=tmp_path, check=2).stderr
    assert not importers(tmp_path / "site")


def test_no_option_of_a_package_can_take_a_flag_of_a_command() -> None:
    flags = {
        action.dest for parser in (train.training_parser(), profile.profile_parser()) for action in parser._actions
    }
    others = flags - set(options_of_all())
    assert others == plugins.RESERVED
