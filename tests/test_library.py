"""The parts as a library: what README shows runs as it stands there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

import engine.buffers.replay

README = Path(__file__).parent.parent / "README.md"


def test_readme_examples_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = README.read_text("utf-8").split("## Use the parts as a library")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
        assert names["replay"].size == 200
        assert names["batch"].obs.shape == (32, 4, 50, 60)
    assert names["actions"].shape == (2,)
    assert (tmp_path / "replay" / "header.json").is_file()


def test_docstring_examples_run() -> None:
    found = doctest.testmod(engine.buffers.replay)
    assert found.failed == 0 < found.attempted
