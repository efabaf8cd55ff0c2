"""A small sweep, and what `sweep status` tells of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.runs.sweep import Sweep
from mario_tui.extras.sweeps.folder import journal_of
from tests.support.program import (
    run_program,
)

SNAKE = ("--game", "snake:5x5", "--burnin", "200", "--buffer-size", "4000")


def status(name: str, cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_program("sweep", "status", name, "--json", cwd=cwd).stdout)
    return found


def tries_of(sweep: Sweep, run: str) -> int:
    return journal_of(sweep, sweep.plan()).of(run).tries
