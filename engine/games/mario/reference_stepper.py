"""Steps lanes on any console of the emulator protocol, frame by frame in Python.

The reference for `compiled_stepper`, which does the same in one compiled call: same rules, same order of random draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from engine.console.nes import FRAME_CYCLES, POSITION, NesBatch, shorten_frame
from engine.console.protocol import Emulator
from engine.games.mario import rules
from engine.games.mario.task import MarioTask, StepOutcome, all_starts, sticky_threshold

_POKES = (
    (rules.POKE_DEAD, rules.PLAYER_STATE, 6), (rules.POKE_AREA_TIMER, rules.AREA_TIMER, 1),
    (rules.POKE_PRELEVEL_TIMER, rules.PRELEVEL_TIMER, 0),
)  # fmt: skip


class ReferenceStepper:
    """`engine.games.mario.task.Stepper` for any console; several `threads` only if it is nes-py."""

    def __init__(
        self,
        console: Emulator,
        task: MarioTask,
        book: NDArray[np.int64],
        starts: Sequence[bytes],
        restart: bool,
        threads: int = 1,
    ) -> None:
        self._console, self._task, self._book, self._starts, self._restarts = console, task, book, list(starts), restart
        self._threads = threads
        self.start_choices = all_starts(console.lanes, len(starts))
        self._sticky = sticky_threshold(task.sticky)
        self._alone = np.eye(console.lanes, dtype=np.bool_)

    def reset(self, frames: NDArray[np.uint8], which: NDArray[np.bool_]) -> None:
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(self._restart, np.flatnonzero(which).tolist()))
        self._console.picture(self._task.view, frames, which)

    def step(self, buttons: NDArray[np.uint8], outcome: StepOutcome) -> None:
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(lambda lane: self._play(lane, int(buttons[lane]), outcome), range(self._console.lanes)))
        book, stall_steps = self._book, self._task.stall_steps
        outcome.held[:] = book[:, rules.BUTTONS]
        outcome.ended[:, 0] = book[:, rules.DONE]
        limit = min(stall_steps, rules.STUCK) if stall_steps > 0 else rules.STUCK
        outcome.ended[:, 1] = (book[:, rules.STALLED] >= limit) & (book[:, rules.DONE] == 0)
        outcome.episode[:] = book[:, (rules.RETURN, rules.LENGTH, rules.FURTHEST)]
        self._console.picture(self._task.view, outcome.frames)
        ended = np.logical_or(*outcome.ended.T)
        if ended.any():
            outcome.final_frames[ended] = outcome.frames[ended]
            if self._restarts:
                self.reset(outcome.frames, ended)

    def set_start(self, start: int, state: bytes) -> None:
        self._starts[start : start + 1] = [state]

    def _play(self, lane: int, buttons: int, outcome: StepOutcome) -> None:
        book, ram, task = self._book[lane], self._console.ram[lane], self._task
        rules.begin_step(book)
        held = int(book[rules.BUTTONS])
        for frame in range(task.frame_skip):
            if (frame == 0 or task.sticky_frames) and not (self._sticky and self._draw(lane) < self._sticky):
                held = buttons
            self._frame(lane, rules.first_buttons(ram, held, task.swim_strokes) if frame == 0 else held)
            rules.observe(ram, book, task.whole_game, task.ends_at_loops)
            rules.read_info(ram, outcome.info[lane])
            if book[rules.DONE]:
                break
            if book[rules.STALLED] < rules.STUCK and self._skip_scenes(lane) == rules.MAX_SCENE_FRAMES:
                book[rules.STALLED] = rules.STUCK
            if book[rules.STALLED] >= rules.STUCK:
                rules.read_info(ram, outcome.info[lane])
                break
        book[rules.BUTTONS] = held
        rules.finish_step(book)

    def _restart(self, lane: int) -> None:
        """Begin an episode: load a start state, run `noop_min` to `noop_max` no-op frames and one that draws; in a
        random phase also a part of a frame first."""
        start = int(self.start_choices[lane, self._draw(lane) % self.start_choices.shape[1]])
        self._console.load(lane, self._starts[start])
        self._book[lane, rules.START] = start
        frames = 1 + self._task.noop_min + self._draw(lane) % self._task.starts
        if self._task.random_phase:
            for word in range(rules.PHASE_WORDS):
                self._console.poke(lane, rules.phase_address(word), rules.phase_value(word, self._draw(lane)))
            assert isinstance(self._console, NesBatch)  # lanes refuse others
            state, usual_ends = self._console.state[lane], round(256 * self._task.usual_ends)
            first, *_ = self._console.read(self._starts[0])  # a state that an episode reached has that one's end
            end = rules.phase_end(self._console.ram[lane], int(first[POSITION]) // 3, usual_ends, self._draw(lane))
            shorten_frame(state, (end - int(state[POSITION]) // 3) % FRAME_CYCLES)
            self._frame(lane, 0)
        for _ in range(frames):
            self._frame(lane, 0)
        rules.begin_episode(self._console.ram[lane], self._book[lane])

    def _skip_scenes(self, lane: int) -> int:
        self._book[lane, rules.PHASE] = 0
        for frames in range(rules.MAX_SCENE_FRAMES):
            wanted = rules.next_scene(self._console.ram[lane], self._book[lane], self._task.whole_game)
            for poke, address, value in _POKES:
                if wanted & poke:
                    self._console.poke(lane, address, value)
            if not wanted & rules.RUN_FRAME:
                return frames
            self._frame(lane, 0)
        return rules.MAX_SCENE_FRAMES

    def _frame(self, lane: int, buttons: int) -> None:
        self._console.step(np.full(self._console.lanes, buttons, np.uint8), 1, self._alone[lane])
        self._book[lane, rules.FRAMES] += 1

    def _draw(self, lane: int) -> int:
        count = int(self._book[lane, rules.DRAWS])
        self._book[lane, rules.DRAWS] = count + 1
        return rules.draw(int(self._book[lane, rules.STREAM]), count)
