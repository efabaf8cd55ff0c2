"""The list "Where to add" of docs/architecture.md: what its entries name is all that has to be touched.

A copy of both packages gets a game of its own, a network, a result, options, a runner and a command, each in the places
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


def run(arguments: list[str]) -> int:
    print("hello", *arguments)
    return 0
'''


@dataclass(frozen=True)
class Tree:
    """A copy of both packages."""

    root: Path

    def edit(self, file: str, before: str, after: str) -> None:
        path = self.root / file
        source = path.read_text("utf-8")
        assert source.count(before) == 1, (file, before)
        path.write_text(source.replace(before, after), "utf-8")

    def run(self, *arguments: str, status: int = 0) -> str:
        """What `mario-tui` prints, or tells on standard error if its exit status is another one than 0."""
        cache = {"PYTHONPATH": str(self.root), "XDG_CACHE_HOME": str(self.root / "cache")}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "mario_tui", *arguments],
            cwd=self.root, env={**os.environ, **cache}, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stderr if status else done.stdout


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
    # options: of a game, and of a runner
    tree.edit(
        "engine/games/catch/game.py", "    balls: int",
        '    wind: float = option(0.0, "environment", "how windy it is", low=0.0, high=1.0)\n    balls: int',
    )  # fmt: skip
    tree.edit(
        "engine/config/common_options.py", "    sinks: str = option(",
        '    remark: str = option("none", "output", "a word on the run")\n    sinks: str = option(',
    )  # fmt: skip
    # a runner
    tree.edit("engine/config/runners.py", 'RunnerInfo(\n            name="parallel",', ROW)
    (tree.root / "engine/runners/solo.py").write_text("from engine.runners.single import Runner as Runner\n")
    # a command
    (tree.root / "mario_tui/commands/hello.py").write_text(COMMAND)
    tree.edit("mario_tui/cli.py", '    "runs": "runs",', '    "runs": "runs",\n    "hello": "hello",')
    tree.edit("mario_tui/commands/train.py", "  mario-tui serve ", "  mario-tui hello\n  mario-tui serve ")
    return tree


@pytest.mark.long
def test_a_run_has_the_game_with_its_result_the_network_the_options_and_the_runner(tree: Tree) -> None:
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


@pytest.mark.long
def test_they_are_in_the_help_and_what_does_not_fit_is_refused(tree: Tree) -> None:
    shown = " ".join(tree.run("--game", "catch", "--runner", "solo", "--help").split())
    for part in (
        "mario|snake|tetris|gym|catch", "single|solo|parallel", "solo: as single", "how windy it is (default: 0.0)",
        "a word on the run (default: none)", "mario-tui hello",
    ):  # fmt: skip
        assert part in shown, part
    assert tree.run("hello", "there") == "hello there\n"
    for given, refused in (
        (("--game", "snake", "--wind", "0.5"), "--wind is not an option of snake; it needs --game catch"),
        (("--runner", "single", "--remark", "x"), "--remark is not an option of single; it needs --runner solo"),
    ):
        assert refused in tree.run("--no-ui", *given, status=2)
