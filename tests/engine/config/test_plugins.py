"""Games of installed packages: found, described without being imported, trained, and refused if they are broken."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.config import plugins
from engine.config.entry_points import installed
from engine.config.game import Game
from engine.config.games import game_of
from engine.config.run_config import options_of_all
from engine.games import describe
from engine.protocol.outcome import Goal, Outcome, Result
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.commands import profile, train
from mario_tui.screens.dashboard import DashboardScreen
from tests.support.app import shown_as, text, until
from tests.support.plugins import SOURCE, add_metadata, importers, install_catch, put_on_path
from tests.support.program import json_lines, run_program, the_run

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
    "exits": ("import sys; sys.exit(3)", "its process ended (exit status 3)"),
    "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process ended (killed by SIGSEGV)"),
    "garbage": (
        "import os\nfor each in range(1, 10):\n try: os.write(each, b'garbage\\n')\n except OSError: pass",
        "it gives an answer that can't be read: JSON is malformed",
    ),
    "escapes": (r"raise ValueError('a \x1b[31mred\nline')", r"a \x1b[31mred"),
    "other-name": (GOOD, "broken_other_name:Catch is called 'catch'"),
    "colliding": (edited("colliding", "balls", "buffer_size"), "its option buffer_size has the name of one"),
    "flag": (edited("flag", "balls", "resume"), "its option resume has the name of one"),
    "no-help": (edited("no-help", "width of the paddle in cells", ""), "its option paddle has no help"),
    "no-bound": (edited("no-bound", "low=1, high=20", ""), "its option paddle must have a lower bound"),
    "no-task": (edited("no-task", 'tasks = "board"', ""), "it has no tasks"),
    "no-option": (edited("no-option", '"balls"', '"bells"'), "it has no option bells"),
    "bad-default": (edited("bad-default", '"burnin": 500', '"burnin": 0'), "--burnin must be a whole number"),
    "bad-name": (
        edited("bad-name", 'Result("caught"', 'Result("length"'),
        "the name 'length' stands for something else",
    ),
    "bad-data": (edited("bad-data", "sample_bytes = 200", 'sample_bytes = "few"'), "sample_bytes: Expected `int`"),
    "number-task": (edited("number-task", 'tasks = "board"', 'tasks = "balls"'), "its option balls must be text"),
    "odd-spec": (edited("odd-spec", "Spec((2, height", "Spec((0, height"), "its spec must have frames of 2 or 3 axes"),
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


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def here(site: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder on this process's path as well."""
    monkeypatch.syspath_prepend(site)
    installed.cache_clear()
    yield site
    installed.cache_clear()
    plugins._descriptors.clear()


def module(site: Path, name: str, source: str) -> None:
    file = f"broken_{name.replace('-', '_')}"
    (site / f"{file}.py").write_text(source)
    add_metadata(site, f"broken-{name}", {name: f"{file}:Catch"})


def test_its_options_are_in_the_help_and_the_package_is_imported_once(
    catch: Path, own_cache: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        shown = run_program("--game", "catch", "--help", cwd=tmp_path).stdout
        assert "--paddle N" in shown and "width of the paddle in cells (default: 2)" in " ".join(shown.split())
        assert "--replay-ratio X" in shown and "(default: 8.0)" in shown and "--death-penalty" not in shown
    (by,) = importers(catch)
    assert "-m engine.games.describe catch" in by
    (catch / "plugin_catch" / "game.py").write_text(GOOD.replace("5x6", "7x7"))
    assert "(default: 7x7)" in run_program("--game", "catch", "--help", cwd=tmp_path).stdout


def test_it_trains_resumes_and_is_evaluated_and_only_processes_that_play_import_it(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(trained.site, monkeypatch)
    (evaluation,) = (event for event in trained.events if event["event"] == "evaluation")
    assert evaluation["mean_return"] > 5 and evaluation["mean_caught"] == evaluation["mean_return"]
    folder, name = trained.run.path.parents[1], trained.run.name
    resumed = run_program("--resume", name, "--steps", "3000", "--no-ui", "--log-format", "json", cwd=folder)
    assert json_lines(resumed.stdout)[-1]["env_steps"] >= 3000
    (judged,) = json_lines(run_program("eval", name, "--episodes", "5", "--json", cwd=folder).stdout)
    assert judged["game"] == "catch" and judged["mean_return"] > 2 and judged["trained_on"] == "5x6"
    allowed = ("engine.games.describe catch", "multiprocessing.spawn", "engine.commands.evaluate")
    by = importers(trained.site)
    assert all(any(each in line for each in allowed) for line in by)
    assert all(any(each in line for line in by) for each in allowed)


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
    (catch / "plugin_catch" / "game.py").write_text(GOOD.replace("Spec((2, height", "Spec((3, height"))
    failed = json_lines(run_program(*CATCH, cwd=tmp_path, check=1).stdout)[-1]
    assert "make_lanes must make 1 with Spec(frame_shape=(3, 6, 5)" in failed["reason"]


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
from mario_tui.widgets.field_row import Choice, FieldRow
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
    assert "plugin_catch" not in sys.modules and "torch" not in sys.modules

asyncio.run(main())
"""


@pytest.mark.long
def test_the_form_offers_and_checks_its_options_without_importing_it(catch: Path, tmp_path: Path) -> None:
    code = [sys.executable, "-c", FORM, str(tmp_path / "runs")]
    done = subprocess.run(code, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_broken_package_costs_one_line_and_nothing_else(catch: Path, own_cache: Path, tmp_path: Path) -> None:
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
    assert "the game 'exits' of package broken_exits can't be used: its process ended (exit status 3)" in asked
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
        describe._check_outcome(outcome)


@pytest.mark.parametrize("game", ["mario", "snake", "tetris"])
def test_the_outcomes_of_built_in_games_are_what_packages_may_declare(game: str) -> None:
    describe._check_outcome(game_of(game).outcome)


@pytest.mark.long
def test_one_that_was_broken_can_be_used_when_it_is_asked_for(
    catch: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (catch / "plugin_catch" / "game.py").open("a") as file:
        file.write("import os\nos.environ['LICENSE_OF_CATCH']\n")
    assert "KeyError: 'LICENSE_OF_CATCH'" in run_program("--help", cwd=tmp_path).stderr
    monkeypatch.setenv("LICENSE_OF_CATCH", "granted")
    assert "KeyError: 'LICENSE_OF_CATCH'" in run_program("--help", cwd=tmp_path).stderr  # it is remembered
    done = run_program("--game", "catch", "--help", cwd=tmp_path)
    assert "--paddle N" in done.stdout and not done.stderr
    assert not run_program("--help", cwd=tmp_path).stderr


def test_one_that_hangs_is_given_up(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module(here, "hangs", "import threading; threading.Event().wait()")
    monkeypatch.setattr(plugins, "TIMEOUT_S", 1)
    assert plugins.described("hangs") is None
    assert "package broken_hangs can't be used: it does not answer within 1 s" in caplog.text


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
    assert others == describe.RESERVED


def test_every_method_of_the_contract_is_answered_or_only_for_processes_that_play() -> None:
    methods = {name for name, member in vars(Game).items() if callable(member)}
    assert methods - plugins.COMPUTED.keys() == {
        "defaults", "files", "starts_slowly", "make_lanes", "lanes_of_policy", "also_described", "prepare_network",
        "describe_conditions", "trained_conditions", "make_curriculum", "make_guide", "most_similar_action",
        "game_of_person", "game_of_policy", "described_for_search", "make_search", "search_options_of",
    }  # fmt: skip
