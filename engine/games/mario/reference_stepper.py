"""Steps lanes on any console of the emulator protocol, frame by frame in Python.

The reference for `compiled_stepper`, which does the same in one compiled call: same rules, same order of random draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.emulators.protocol import Emulator
from engine.games.mario import rules
from engine.games.mario.stepper import StepOutcome
from engine.games.mario.task import MarioTask


class ReferenceStepper:
    """`engine.games.mario.stepper.Stepper` for any console."""

    def __init__(
        self, console: Emulator, task: MarioTask, book: NDArray[np.int64], starts: Sequence[bytes], restart: bool
    ) -> None:
        self._console, self._task, self._book, self._starts, self._restarts = console, task, book, list(starts), restart
        self.start_choices = all_starts(console.lanes, len(starts))
        self._whole_game = task.whole_game
        self._sticky = sticky_threshold(task.sticky)
        self._nothing = np.zeros(console.lanes, np.uint8)

    def reset(self, frames: NDArray[np.uint8], which: NDArray[np.bool_]) -> None:
        self._restart(which)
        self._console.picture(self._task.view, frames, which)

    def step(self, buttons: NDArray[np.uint8], outcome: StepOutcome) -> None:
        console, book, task = self._console, self._book, self._task
        held = buttons.copy()
        for lane in range(console.lanes):
            rules.begin_step(book[lane])
            if self._sticky and self._draw(lane) < self._sticky:
                held[lane] = book[lane, rules.BUTTONS]
        book[:, rules.BUTTONS] = outcome.held[:] = held
        playing = np.ones(console.lanes, np.bool_)
        first = held.copy()
        for lane in range(console.lanes):
            first[lane] = rules.first_buttons(console.ram[lane], held[lane], task.swim_strokes)
        for frame in range(task.frame_skip):
            self._frame(held if frame else first, playing)
            for lane in np.flatnonzero(playing).tolist():
                rules.observe(console.ram[lane], book[lane], self._whole_game, task.ends_at_loops)
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

    def set_start(self, start: int, state: bytes) -> None:
        self._starts[start : start + 1] = [state]

    def _restart(self, which: NDArray[np.bool_]) -> None:
        """Begin episodes: load a start state, run `noop_min` to `noop_max` no-op frames and one that draws."""
        frames = np.zeros(self._console.lanes, np.int64)
        for lane in np.flatnonzero(which).tolist():
            start = int(self.start_choices[lane, self._draw(lane) % self.start_choices.shape[1]])
            frames[lane] = 1 + self._task.noop_min + self._draw(lane) % self._task.starts
            self._console.load(lane, self._starts[start])
            self._book[lane, rules.START] = start
        for frame in range(int(frames.max())):
            self._frame(self._nothing, frames > frame)
        for lane in np.flatnonzero(which).tolist():
            rules.begin_episode(self._console.ram[lane], self._book[lane])

    def _skip_scenes(self, playing: NDArray[np.bool_]) -> None:
        self._book[:, rules.PHASE] = 0
        waiting = playing.copy()
        for _ in range(rules.MAX_SCENE_FRAMES):
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
    """The 32-bit threshold: a random draw below it repeats the last action."""
    return int(probability * 2**32)


def all_starts(lanes: int, starts: int) -> NDArray[np.int64]:
    """`Stepper.start_choices` [lanes, starts] with which every episode may begin at any start state."""
    return np.tile(np.arange(starts), (lanes, 1))
