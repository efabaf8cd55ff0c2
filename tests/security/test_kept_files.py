"""What the program keeps for itself in the user's folders: a file that it can't have written is as good as missing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.agents.autotune import remembered
from engine.errors import UserError
from engine.games.mario.task import MarioTask
from mario_tui.data.differences import colours_of
from mario_tui.extras.sweeps.node import own_folder
from mario_tui.screens.panel_grid import Remembered, recall, remember
from tests.support.odd_files import ODD_FILES

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
    **ODD_FILES,
}


def way() -> Any:
    return pytest.importorskip("engine.extras.distillation.mario.ways").WayCache("1-1", MarioTask(), 0)


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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This program's cache, with what was written under a umask that lets others write."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "above" / "cache"))
    mask = os.umask(0)
    try:
        for name in ("way", "precision"):
            KEPT[name][0]()
        own_folder()
    finally:
        os.umask(mask)
    return tmp_path / "above" / "cache" / "mario-tui"


def test_only_this_user_gets_into_the_cache(cache: Path) -> None:
    folders = cache.parent.parent, cache.parent, cache, *(cache / name for name in ("ways", "precision", "sweeps"))
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


@pytest.mark.parametrize("name", ["way", "precision"])
def test_what_others_may_have_put_into_the_cache_is_as_good_as_missing(name: str, cache: Path) -> None:
    _, read, usual = KEPT[name]
    assert read() != usual
    cache.parent.chmod(0o777)
    assert read() == usual


def test_no_run_of_a_node_lies_where_others_can_write(cache: Path) -> None:
    cache.parent.chmod(0o777)
    with pytest.raises(UserError, match=f"can't hold runs, because {cache.parent} can be written by others; set XDG_"):
        own_folder()


def test_folders_of_an_earlier_version_are_closed(cache: Path) -> None:
    for folder in (cache, cache / "ways", cache / "sweeps"):
        folder.chmod(0o777)
    assert KEPT["way"][1]() is False and own_folder().parent == cache / "sweeps"
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (cache, cache / "ways", cache / "sweeps")} == {0o700}
