"""Starting a run from the terminal UI."""

from __future__ import annotations

from pathlib import Path

import pytest

from mario_tui.launch import busy_warning
from tests.support.app import folder_of_runs, hold


def test_a_start_beside_other_runs_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new, alive, _ended, paused = folder_of_runs(
        tmp_path / "checkpoints", new="running", alive="running", ended="finished", paused="paused"
    )
    assert busy_warning(new) == ""  # a host that crashed leaves its record behind
    with hold(alive), hold(paused):
        assert busy_warning(new).startswith("alive is training on this machine as well; the runs share ")
