"""The parts as a library: the examples of the documentation run as they are, one after the other on each page."""

from __future__ import annotations

import doctest
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import engine.buffers.replay
import engine.runtime.stopwatch
from engine.config.game import options_with
from engine.evaluation.policy import load_policy
from engine.games import BUILT_IN
from engine.games.snake.rules import SnakeLanes
from engine.runs.checkpoints import policy_metadata
from engine.runs.policies import Metadata
from engine.runs.run import Run
from mario_tui.data.feed import recorded_state
from tests.support.policy_files import shipped
from tests.support.program import run_program

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "docs" / "library.md"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    page for page in sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))) if PYTHON.search(page.read_text("utf-8"))
]
Names = dict[str, Any]


def filled(names: Names) -> None:
    assert names["replay"].size == 200
    assert names["batch"].obs.shape == (32, 4, 50, 60)


def mario(names: Names) -> None:
    assert names["pictures"].shape == (256, 50, 60)
    assert names["step"].rewards.shape == (256,)


def gymnasium(names: Names) -> None:
    assert names["env"].reset()[0].shape == names["env"].observation_space.shape
    assert names["many"].num_envs == 64
    assert names["board"].reset()[1]["action_mask"].shape == (4,)
    names["env"].close()
    names["many"].close()


def trained(names: Names) -> None:
    assert names["info"]["flag_get"]
    names["env"].close()


def boards(names: Names) -> None:
    assert names["frames"].shape == (256, 4, 14, 7)
    assert names["step"].rewards.shape == (256,)


def mapped(names: Names) -> None:
    filled(names)
    assert Path("replay", "header.json").is_file()


def agent(names: Names) -> None:
    filled(names)
    assert names["actions"].shape == (2,)


@torch.no_grad()
def policy_in_plain_pytorch(names: Names) -> None:
    """The same actions in 1,000 observations of the game."""
    path = shipped("mario-1-1")
    network = load_policy(path)
    played = pytest.importorskip("engine.extras.export.export_onnx").played
    obs = torch.from_numpy(played(policy_metadata(path), network, {})[0])
    found, expected = names["q_values"](obs), network(obs)
    assert len(obs) == 1000 and torch.equal(found.argmax(1), expected.argmax(1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def weights_of_ones_own(names: Names) -> None:
    obs = torch.from_numpy(SnakeLanes(64, height=6, width=6).reset().numpy())[:, None]
    torch.testing.assert_close(load_policy(Path("mine.safetensors"))(obs), names["network"](obs[:, 0] / 255))
    done = run_program("eval", "mine.safetensors", "--episodes", "2", cwd=Path())
    assert done.stdout.startswith("mine.safetensors: trained on 6x6\n") and "2 games, mean score" in done.stdout


def reported(names: Names) -> None:
    record = Run(names["run"].path).record()
    assert (record.name, record.state, record.env_steps) == ("cart-pole", "finished", 2_000)
    assert record.episodes > 20 and record.best is not None


def named_numbers(names: Names) -> None:
    record = Run(names["run"].path).record()
    assert (record.told_state, record.env_steps, record.steps) == ("finished", 59_904, 60_000)
    lasting = recorded_state(Run(names["run"].path)).points.items[-1]
    assert lasting.numbers.keys() == {"approx_kl", "entropy", "explained_variance"}
    assert 0 < lasting.numbers["entropy"] < math.log(2) and lasting.numbers["approx_kl"] > 0


AFTER: list[Callable[[Names], None]] = [
    mario,
    gymnasium,
    trained,
    boards,
    filled,
    mapped,
    agent,
    policy_in_plain_pytorch,
    weights_of_ones_own,
    reported,
    named_numbers,
]
"""What holds after each example of the page of the library."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
@pytest.mark.process
def test_examples_run_one_after_the_other(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = PYTHON.findall(page.read_text("utf-8"))
    checks = AFTER if page == LIBRARY else [lambda _: None] * len(blocks)
    monkeypatch.chdir(tmp_path)
    names: Names = {}
    for block, check in zip(blocks, checks, strict=True):
        exec(block, names)
        check(names)


def test_the_page_of_the_library_tells_every_field_of_a_policy() -> None:
    fields = LIBRARY.read_text("utf-8").partition("### The file")[2].partition("### ")[0]
    told = {name for row in re.findall(r"^- (.*?) \(", fields, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    required = {option for game in BUILT_IN for option in options_with("policy", game)}
    assert told == required | set(Metadata.__struct_fields__)


@pytest.mark.parametrize(
    "module", [engine.buffers.replay, engine.runtime.stopwatch], ids=lambda module: module.__name__
)
def test_docstring_examples_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.failed == 0 < found.attempted
