"""Super Mario Bros in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.games.mario import rules
from engine.games.mario.actions import ACTION_SETS
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask

if TYPE_CHECKING:
    from engine.extras.distillation.mario.plan_search import Way

TASK = MarioTask(noop_max=0)
RIGHT_B = ACTION_SETS["right-only"].index("right+B")
"""Runs to the right."""
INTO_GOOMBA = 60
"""Environment steps in which Mario, if he only runs, meets the first enemy of World 1-1."""


def running(steps: int) -> Way:
    """What Mario does if he only runs: not a way to the flag, but a beginning of one."""
    from engine.extras.distillation.mario.plan_search import Way

    env = MarioLanes(TASK, 1)
    env.reset()
    _, area, _ = rules.where(env.emulator.ram)
    return Way(np.full(steps, RIGHT_B), np.full(steps, area[0]), 40 + 10 * np.arange(steps))
