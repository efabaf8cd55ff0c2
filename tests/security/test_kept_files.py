"""What the program keeps for itself in the user's folders: a file that it can't have written is as good as missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.agents.precision_cache import remembered
from engine.games.mario.search.way_cache import WayCache
from engine.games.mario.task import MarioTask
from mario_tui.data.colours import colours_of
from mario_tui.screens.remembered import Remembered, recall, remember


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**36)


KEPT: dict[str, tuple[Callable[[], object], Callable[[], object], object]] = {
    "layout": (lambda: remember("dashboard", Remembered(turned=True)), lambda: recall("dashboard"), Remembered()),
    "colours": (lambda: colours_of(["a", "b"]), lambda: colours_of(["b"]), [0]),
    "way": (lambda: way().save(np.array([1, 2])), lambda: way().load() is None, True),
    "precision": (lambda: remembered({}, lambda: "bfloat16"), lambda: remembered({}, lambda: "float32"), "float32"),
}
"""What writes a file, what reads it, and the answer if there is none."""
FILES: dict[str, Callable[[Path], object]] = {
    "nested": lambda path: path.write_bytes(b"[" * 100_000),
    "nested in an unknown field": lambda path: path.write_bytes(b'{"unknown":' * 10_000),
    "Latin-1": lambda path: path.write_bytes(b'{"hidden": ["\xe4"], "\xe4": 1, "precision": "\xe4"}'),
    "another type": lambda path: path.write_bytes(b'["log", 1e400, 9999999999999999999999]'),
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "64 GiB": _sparse,
}


def way() -> WayCache:
    return WayCache("1-1", MarioTask(), 0)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", KEPT)
def test_a_file_of_another_kind_is_as_good_as_missing(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write, read, usual = KEPT[name]
    write()
    (path,) = tmp_path.rglob("*.json")
    assert read() != usual
    path.unlink()
    FILES[kind](path)
    assert read() == usual
