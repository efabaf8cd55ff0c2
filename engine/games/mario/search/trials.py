"""Tries plans in an emulator that draws nothing. A plan is a sequence of actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.games.mario import rules
from engine.games.mario.lanes import LaneState, MarioLanes
from engine.games.mario.task import MarioTask


@dataclass(frozen=True)
class TriedPlans:
    """What became of plans; arrays [plans]."""

    alive: NDArray[np.bool_]  # or cleared
    clears: NDArray[np.bool_]
    gains: NDArray[np.float64]  # pixels, less the ticks of the game's clock
    lengths: NDArray[np.int64]  # environment steps until death, flag or standstill


class Trials:
    """Lanes in which plans are tried.

    Args:
        task: actions and frame skip. Its `stall_steps` and `ends_at_loops` say what is a mistake, like death.
        lanes: maximum number of plans. Those without a plan cost as much as the others.
        threads: threads that step them.
        rom: cartridge file; None for the one in gym-super-mario-bros.
    """

    def __init__(self, task: MarioTask, lanes: int, *, threads: int, rom: Path | None) -> None:
        self.env = MarioLanes(task, lanes, threads=threads, restart=False, rom=rom, draws=False)

    def run(self, states: Sequence[LaneState], plans: NDArray[np.int64]) -> TriedPlans:
        """Follow plans [plans, steps]: plan i from `states[i % len(states)]`."""
        lanes = self.env.lanes
        for lane in range(lanes):
            self.env.load_lane(lane, states[lane % len(states)])
        actions = np.resize(plans, (lanes, plans.shape[1]))
        over, clears = np.arange(lanes) >= len(plans), np.zeros(lanes, np.bool_)
        gains, lengths = np.zeros(lanes), np.full(lanes, plans.shape[1])
        for moment in range(plans.shape[1]):
            step = self.env.step(actions[:, moment])
            gains += np.where(over, 0, self.env.book[:, rules.STEP_PROGRESS])
            ends = (step.terminated | step.truncated) & ~over
            clears |= ends & step.success
            lengths[ends] = moment + 1
            over |= ends
            if over.all():
                break
        tried = slice(len(plans))
        return TriedPlans((~over | clears)[tried], clears[tried], gains[tried], lengths[tried])

    def run_from_each(self, starts: Sequence[LaneState], actions: NDArray[np.int64]) -> TriedPlans:
        """Follow the same actions [steps] from each start."""
        return self.run(starts, np.tile(actions, (len(starts), 1)))

    def close(self) -> None:
        self.env.close()
