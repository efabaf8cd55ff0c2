"""The parts as a library: the examples of the documentation run as they are, one after the other on each page."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import engine.buffers.replay

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


def boards(names: Names) -> None:
    assert names["frames"].shape == (256, 4, 14, 7)
    assert names["step"].rewards.shape == (256,)


def mapped(names: Names) -> None:
    filled(names)
    assert Path("replay", "header.json").is_file()


def agent(names: Names) -> None:
    filled(names)
    assert names["actions"].shape == (2,)


def stopwatch(names: Names) -> None:
    assert set(names["stopwatch"].sections) >= {"collect", "learn"}


AFTER: list[Callable[[Names], None]] = [mario, gymnasium, boards, filled, mapped, agent, stopwatch]
"""What holds after each example of the page of the library."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_examples_run_one_after_the_other(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = PYTHON.findall(page.read_text("utf-8"))
    checks = AFTER if page == LIBRARY else [lambda _: None] * len(blocks)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "tests" / "support" / "plugin_game")  # whose parts a page shows one by one
    names: Names = {}
    for block, check in zip(blocks, checks, strict=True):
        exec(block, names)
        check(names)


def test_docstring_examples_run() -> None:
    found = doctest.testmod(engine.buffers.replay)
    assert found.failed == 0 < found.attempted
