"""Plays lanes on any console of the emulator protocol, frame by frame from Python.

The reference for `native`, which does the same in one compiled call: same rules, same order of random draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.envs.emulators.protocol import Emulator
from engine.envs.mario import rules
from engine.envs.mario.task import MarioTask

if TYPE_CHECKING:
    from engine.envs.mario.lanes import Outcome


class SteppedPlayer:
    """See `engine.envs.mario.lanes.Stepper`."""

    def __init__(
        self, console: Emulator, task: MarioTask, book: NDArray[np.int64], starts: Sequence[bytes], restart: bool
    ) -> None:
        self._console, self._task, self._book, self._starts, self._restarts = console, task, book, starts, restart
        self.begins = any_start(console.lanes, len(starts))
        self._whole_game = task.whole_game
        self._sticky = sticky_threshold(task.sticky)
        self._nothing = np.zeros(console.lanes, np.uint8)

    def reset(self, frames: NDArray[np.uint8], which: NDArray[np.bool_]) -> None:
        self._restart(which)
        self._console.picture(self._task.view, frames, which)

    def step(self, buttons: NDArray[np.uint8], outcome: Outcome) -> None:
        console, book, task = self._console, self._book, self._task
        held = buttons.copy()
        for lane in range(console.lanes):
            rules.begin_step(book[lane])
            if self._sticky and self._draw(lane) < self._sticky:
                held[lane] = book[lane, rules.BUTTONS]
        book[:, rules.BUTTONS] = outcome.held[:] = held
        playing = np.ones(console.lanes, np.bool_)
        for _ in range(task.frame_skip):
            self._frame(held, playing)
            for lane in np.flatnonzero(playing).tolist():
                rules.observe(console.ram[lane], book[lane], self._whole_game)
                rules.read_info(console.ram[lane], outcome.info[lane])
            playing &= book[:, rules.DONE] == 0
            if not playing.any():
                break
            self._skip_scenes(playing)
        for lane in range(console.lanes):
            rules.finish_step(book[lane])
        outcome.ended[:, 0] = book[:, rules.DONE]
        outcome.ended[:, 1] = (
            (book[:, rules.STALLED] >= task.stall_steps) & (book[:, rules.DONE] == 0) if task.stall_steps else 0
        )
        outcome.episode[:] = book[:, (rules.RETURN, rules.LENGTH, rules.FURTHEST)]
        console.picture(task.view, outcome.frames)
        ended: NDArray[np.bool_] = np.logical_or(*(column != 0 for column in outcome.ended.T))
        if ended.any():
            outcome.final_frames[ended] = outcome.frames[ended]
            if self._restarts:
                self.reset(outcome.frames, ended)

    def _restart(self, which: NDArray[np.bool_]) -> None:
        """New episodes: a start state, 0 to `noop_max` frames of doing nothing, and one that draws the screen."""
        frames = np.zeros(self._console.lanes, np.int64)
        for lane in np.flatnonzero(which).tolist():
            start = int(self.begins[lane, self._draw(lane) % self.begins.shape[1]])
            frames[lane] = 1 + self._draw(lane) % (self._task.noop_max + 1)
            self._console.load(lane, self._starts[start])
            self._book[lane, rules.START] = start
        for frame in range(int(frames.max())):
            self._frame(self._nothing, frames > frame)
        for lane in np.flatnonzero(which).tolist():
            rules.begin_episode(self._console.ram[lane], self._book[lane])

    def _skip_scenes(self, playing: NDArray[np.bool_]) -> None:
        self._book[:, rules.PHASE] = 0
        waiting = playing.copy()
        for _ in range(rules.LONGEST_SCENE):
            for lane in np.flatnonzero(waiting).tolist():
                wanted = rules.next_scene(self._console.ram[lane], self._book[lane], self._whole_game)
                if wanted & rules.POKE_DEAD:
                    self._console.poke(lane, rules.PLAYER_STATE, 6)
                if wanted & rules.POKE_AREA_TIMER:
                    self._console.poke(lane, rules.AREA_TIMER, 1)
                if wanted & rules.POKE_PRELEVEL_TIMER:
                    self._console.poke(lane, rules.PRELEVEL_TIMER, 0)
                waiting[lane] = bool(wanted & rules.RUN_FRAME)
            if not waiting.any():
                break
            self._frame(self._nothing, waiting)

    def _frame(self, buttons: NDArray[np.uint8], active: NDArray[np.bool_]) -> None:
        self._console.step(buttons, 1, active)
        self._book[:, rules.FRAMES] += active

    def _draw(self, lane: int) -> int:
        count = int(self._book[lane, rules.DRAWS])
        self._book[lane, rules.DRAWS] = count + 1
        return rules.draw(int(self._book[lane, rules.STREAM]), count)


def sticky_threshold(probability: float) -> int:
    """A draw of 32 bits below this repeats the last action."""
    return int(probability * 2**32)


def any_start(lanes: int, starts: int) -> NDArray[np.int64]:
    """Every episode at any of the start states: `Stepper.begins` [lanes, starts]."""
    return np.tile(np.arange(starts), (lanes, 1))
