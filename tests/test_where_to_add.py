"""The list "Where to add" of docs/architecture.md: what its entries name is all that has to be touched.

A copy of both packages gets a game of its own, a network, a result, a number with a chart, options, a runner and a
command, each in the places
of its entry, and trains with all of them. What packages of others add is tried elsewhere (test_plugins.py,
test_sinks_of_a_run.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.plugins import SOURCE
from tests.support.program import PATIENCE_S, json_lines, the_run

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
NETWORK = '''
class TinyQNetwork(nn.Module):
    """A layer."""

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.layer = nn.Linear(stack * math.prod(frame_shape), actions)

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer(obs.flatten(1).float() / 255).float()


NETWORKS["tiny"] = TinyQNetwork
'''
ROW = """RunnerInfo(name="solo", help="as single", member="soloist", options=_EACH_LEARNS | {"remark"}),
        RunnerInfo(
            name="parallel","""
COMMAND = '''"""`mario-tui hello`."""

import argparse


def run(arguments: list[str]) -> int:
    print("hello", *arguments)
    return 0


def hello_parser():
    return argparse.ArgumentParser("mario-tui hello", description="Greet somebody.")
'''
HELLO = '    "hello": Command(f"{_OWN}.hello", "hello_parser", "[WHOM]", "greet"),\n'


LUCK = '    Metric("luck", "charts/luck", title="Luck", short="Luck", key="n", compared=True, about="of the agent"),\n'
CHARTS = """
import asyncio
from engine.runs.lookup import find_run
from mario_tui.app import MarioApp
from mario_tui.screens.compare import compare
from mario_tui.screens.dashboard import DashboardScreen


async def show():
    app, run = MarioApp(run_dir="checkpoints"), find_run("latest", "checkpoints")
    async with app.run_test(size=(120, 60)) as pilot:
        await app.push_screen(DashboardScreen(run))
        await pilot.press("n")
        while not (chart := app.screen.query_one("#chart-luck")).has_focus or not chart.lines()[0].values:
            await pilot.pause(0.02)
        print(chart.title, {*chart.lines()[0].values})
        compare(app.screen, [run])
        while not app.screen.query("#compare-luck") or not app.screen.query_one("#compare-luck").series:
            await pilot.pause(0.02)
        print(app.screen.query_one("#compare-luck").full_title)


asyncio.run(show())
"""


@dataclass(frozen=True)
class Tree:
    """A copy of both packages."""

    root: Path

    def python(self, *arguments: str, status: int = 0) -> str:
        """What Python prints, or tells on standard error if its exit status is another one than 0."""
        cache = {"PYTHONPATH": str(self.root), "XDG_CACHE_HOME": str(self.root / "cache")}
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=self.root, env={**os.environ, **cache}, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stderr if status else done.stdout

    def run(self, *arguments: str, status: int = 0) -> str:
        """The same of `mario-tui`."""
        return self.python("-m", "mario_tui", *arguments, status=status)

    def edit(self, file: str, before: str, after: str) -> None:
        path = self.root / file
        source = path.read_text("utf-8")
        assert source.count(before) == 1, (file, before)
        path.write_text(source.replace(before, after), "utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    for package in ("engine", "mario_tui", "themes"):
        shutil.copytree(ROOT / package, tree.root / package, ignore=shutil.ignore_patterns("__pycache__"))
    # a game
    game = tree.root / "engine/games/catch"
    shutil.copytree(SOURCE / "plugin_catch", game, ignore=shutil.ignore_patterns("__pycache__"))
    for path in game.glob("*.py"):
        path.write_text(path.read_text("utf-8").replace("plugin_catch", "engine.games.catch"), "utf-8")
    tree.edit("engine/games/__init__.py", "\n}", '\n    "catch": "engine.games.catch.game:Catch",\n}')
    # a network
    tree.edit("engine/agents/networks.py", "import pkgutil\n", "import math\nimport pkgutil\n")
    with (tree.root / "engine/agents/networks.py").open("a", encoding="utf-8") as file:
        file.write(NETWORK)
    tree.edit("engine/games/catch/game.py", 'networks = ("grid", "mlp")', 'networks = ("grid", "mlp", "tiny")')
    tree.edit("engine/games/catch/game.py", 'choices=("grid", "mlp")', 'choices=("grid", "mlp", "tiny")')
    # a result
    tree.edit(
        "engine/games/catch/game.py", 'Outcome((Result("caught", "caught"),)',
        'Outcome((Result("caught", "caught"), Result("rows", "rows"))',
    )  # fmt: skip
    tree.edit(
        "engine/games/catch/lanes.py", "results=total[:, None].astype(float)",
        "results=np.stack((total, lengths), 1).astype(float)",
    )  # fmt: skip
    # a number of the progress, and its chart
    for before, after in (
        ("to_judge: int = 0  # episodes that it will play\n", "    luck: float = math.nan\n"),
        ("    beta: float\n    numbers", "    luck: float = math.nan\n"),
        ('    Metric("beta", "replay/beta"),\n', LUCK),
    ):
        line = before.split("\n")[0] + "\n"
        tree.edit("engine/protocol/metrics.py", before, before.replace(line, line + after))
    tree.edit(
        "engine/runners/coordination/reporter.py", "beta=learner.replay.beta,", "beta=learner.replay.beta, luck=0.5,"
    )
    # options: of a game, and of a runner
    tree.edit(
        "engine/games/catch/game.py", "    balls: int",
        '    wind: float = option(0.0, "environment", "how windy it is", low=0.0, high=1.0)\n    balls: int',
    )  # fmt: skip
    tree.edit(
        "engine/config/run_config.py", "    sinks: str = option(",
        '    remark: str = option("none", "output", "a word on the run")\n    sinks: str = option(',
    )  # fmt: skip
    # a runner
    tree.edit("engine/config/runners.py", 'RunnerInfo(\n            name="parallel",', ROW)
    (tree.root / "engine/runners/solo.py").write_text("from engine.runners.single import Runner as Runner\n")
    # a command
    (tree.root / "mario_tui/commands/hello.py").write_text(COMMAND)
    tree.edit("mario_tui/features.py", '    "serve": Command(', HELLO + '    "serve": Command(')
    return tree


@pytest.mark.long
def test_a_run_has_the_game_with_its_result_the_chart_the_network_the_options_and_the_runner(tree: Tree) -> None:
    events = json_lines(tree.run(
        "--no-ui", "--log-format", "json", "--game", "catch", "--brain", "tiny", "--wind", "0.5", "--runner", "solo",
        "--remark", "fine", "--steps", "240", "--burnin", "64", "--batch-size", "16", "--eval-every", "240",
    ))  # fmt: skip
    run = the_run(tree.root)
    assert events[-1]["event"] == "summary" and events[-1]["updates"] > 0
    episodes = [event for event in events if event["event"] == "episode"]
    assert episodes and all(event["rows"] == event["length"] for event in episodes)
    (evaluation,) = (event for event in events if event["event"] == "evaluation")
    assert evaluation["mean_rows"] > 0
    options = tomllib.loads((run.path / "config.toml").read_text("utf-8"))
    assert {name: options[name] for name in ("game", "brain", "wind", "runner", "remark")} == {
        "game": "catch", "brain": "tiny", "wind": 0.5, "runner": "solo", "remark": "fine",
    }  # fmt: skip
    shown = EventAccumulator(str(run.path))
    shown.Reload()
    assert any(tag.endswith("rows") for tag in shown.Tags()["scalars"])
    progress = [event for event in events if event["event"] == "progress"]
    assert {event["luck"] for event in progress} == {point.value for point in shown.Scalars("charts/luck")} == {0.5}
    assert tree.python("-c", CHARTS).splitlines() == ["Luck {0.5}", "Luck"]


@pytest.mark.long
def test_they_are_in_the_help_and_what_does_not_fit_is_refused(tree: Tree) -> None:
    shown = " ".join(tree.run("--game", "catch", "--runner", "solo", "--help-all").split())
    for part in (
        "mario|snake|tetris|gym|catch", "single|solo|parallel", "solo: as single", "how windy it is (default: 0.0)",
        "a word on the run (default: none)", "mario-tui hello [WHOM] greet",
    ):  # fmt: skip
        assert part in shown, part
    assert tree.run("hello", "there") == "hello there\n"
    assert "hello:'Greet somebody'" in tree.run("completion", "zsh")
    for given, refused in (
        (("--game", "snake", "--wind", "0.5"), "--wind is not an option of snake; it needs --game catch"),
        (("--runner", "single", "--remark", "x"), "--remark is not an option of single; it needs --runner solo"),
    ):
        assert refused in tree.run("--no-ui", *given, status=2)
