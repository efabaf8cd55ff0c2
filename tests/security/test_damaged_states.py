"""Stored games and replays with something changed in them: refused, or played as well as any.

`make test-long` tries 10,000 of them while kernels check their indices; see test_checked_kernels.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.damaged_states import subjects, try_damaged


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", subjects(Path()))
def test_damaged_states_are_refused_or_played(name: str, tmp_path: Path) -> None:
    outcomes = try_damaged(name, subjects(tmp_path)[name], 35)
    assert outcomes["refused"] > 5 and outcomes["played"] > 5
