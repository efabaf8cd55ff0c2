"""N games of Super Mario Bros, stepped together, on our own console or on nes-py.

Both consoles run under the same rules with the same random decisions, so that a seed and a sequence of actions mean the
same on either. Games that end begin anew from saved start states: by themselves, or when they are told to.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.config.joypad import START, A, action_buttons
from engine.envs.curricula import stage_slots
from engine.envs.emulators.cartridge import installed_mario
from engine.envs.emulators.nes import NesBatch, load_cartridge
from engine.envs.emulators.nes_py import NesPyEmulator
from engine.envs.emulators.protocol import Emulator
from engine.envs.frame_stack import STACK
from engine.envs.mario import rules
from engine.envs.mario.compiled_stepper import NativePlayer
from engine.envs.mario.reference_stepper import SteppedPlayer
from engine.envs.mario.task import MarioTask
from engine.envs.vec_env import Spec, VectorStep
from engine.errors import UserError

EMULATORS = ("native", "nes-py")
CLEAR_BONUS = 3.0
PROGRESS_SCALE = 15.0
_NOOP_DRAW = 1
"""Which of a new lane's random numbers says how long its first episode begins with doing nothing."""
_LATEST_START = 5000
"""Frames from power-on after which another cartridge than Mario's is not waited for; his needs some 200."""
_LONGEST_HOLD = 8
"""Held buttons explore a platform game better than single random presses: a full jump needs A for half a second."""


@dataclass(frozen=True)
class Outcome:
    """Arrays that a player fills in a step, a row for each lane."""

    frames: NDArray[np.uint8]
    final_frames: NDArray[np.uint8]
    ended: NDArray[np.int64]  # [lanes, 2]: terminated, truncated
    held: NDArray[np.uint8]  # [lanes], the joypad bytes of the step: where an action stuck, those of the step before
    episode: NDArray[np.int64]  # [lanes, 3]: return, length, furthest x
    info: NDArray[np.int64]  # [lanes, 10]


class Stepper(Protocol):
    """Steps all lanes of one console under the rules."""

    begins: NDArray[np.int64]
    """Start states that a lane's next episode may begin with, [lanes, any number], each number as likely as the others.
    """

    def reset(self, frames: NDArray[np.uint8], which: NDArray[np.bool_]) -> None:
        """Begin an episode in the lanes of `which` [lanes] and write their first pictures."""

    def step(self, buttons: NDArray[np.uint8], outcome: Outcome) -> None:
        """Hold `buttons` [lanes] for one environment step; write what came of it."""


class MarioLanes:
    """See the module's docstring.

    Args:
        task: what is played and how.
        lanes: number of games.
        emulator: `native` or `nes-py`.
        threads: threads that step lanes; the numbers do not depend on it.
        seed: of every random decision of the environment.
        restart: whether a lane whose episode ended begins the next one within the step. Otherwise its console stands
            still at the last frame until `reset`.
        in_turns: where there are several stages, whether each lane has its own, so that all get their part of an
            evaluation. Otherwise every episode begins at any of them.
        rom: cartridge file, default the one inside gym-super-mario-bros.
    """

    def __init__(
        self,
        task: MarioTask,
        lanes: int,
        *,
        emulator: str = "native",
        threads: int = 1,
        seed: int = 0,
        restart: bool = True,
        in_turns: bool = False,
        rom: Path | None = None,
    ) -> None:
        self.task = task
        self.lanes = lanes
        self.frame_shape = task.view.shape
        self.actions = len(task.action_names)
        self.emulator: Emulator = make_emulator(emulator, lanes, threads, rom)
        self.book = np.zeros((lanes, rules.BOOK_WORDS), np.int64)
        self.book[:, rules.STREAM] = [rules.stream(seed, lane) for lane in range(lanes)]
        self._buttons = np.array(action_buttons(task.actions), np.uint8)
        starts = start_states(emulator, task.stages, whole_game=task.whole_game, rom=rom)
        self._stepper: Stepper = (
            NativePlayer(self.emulator, task, self.book, starts, restart)
            if isinstance(self.emulator, NesBatch)
            else SteppedPlayer(self.emulator, task, self.book, starts, restart)
        )
        self._level = math.nan
        if in_turns:
            spread = np.linspace(0, len(starts), min(lanes, len(starts)), endpoint=False).astype(np.int64)
            self._stepper.begins = np.resize(spread, (lanes, 1))

    @property
    def spec(self) -> Spec:
        return Spec(self.frame_shape, self.actions, stack=STACK, hold=_LONGEST_HOLD, masked=False)

    @property
    def masks(self) -> None:
        return None

    def reset(self, which: NDArray[np.bool_] | None = None) -> NDArray[np.uint8]:
        """Begin an episode in the lanes of `which` (bool [lanes], None for all).

        Their first pictures, uint8 [lanes, height, width]; those of other lanes are undefined.
        """
        frames = np.empty((self.lanes, *self.frame_shape), np.uint8)
        self._stepper.reset(frames, np.ones(self.lanes, np.bool_) if which is None else which)
        self._mark(frames, self.book[:, rules.BUTTONS])
        return frames

    def reseed(self, lane: int, seed: int) -> None:
        """Let a lane's random decisions, from its next on, be those of lane 0 of new lanes with that seed."""
        self.book[lane, rules.STREAM] = rules.stream(seed, 0)
        self.book[lane, rules.DRAWS] = 0

    def spread_starts(self) -> None:
        """Let lane i's first episode begin with i frames of doing nothing, modulo those that there may be.

        A policy without chance plays the same episode again from the same start, so this shows all it can do.
        """
        starts = self.task.noop_max + 1
        for lane in range(self.lanes):
            stream = int(self.book[lane, rules.STREAM])
            while rules.draw(stream, _NOOP_DRAW) % starts != lane % starts:
                stream = rules.stream(stream, lane)
            self.book[lane, rules.STREAM] = stream

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        """One environment step with action indices [lanes]."""
        return self.step_buttons(self._buttons[actions])

    def step_buttons(self, buttons: NDArray[np.uint8]) -> VectorStep:
        """One environment step with joypad bytes [lanes], whatever the action set."""
        shape = (self.lanes, *self.frame_shape)
        outcome = Outcome(
            frames=np.empty(shape, np.uint8),
            final_frames=np.empty(shape, np.uint8),
            ended=np.empty((self.lanes, 2), np.int64),
            held=np.empty(self.lanes, np.uint8),
            episode=np.empty((self.lanes, 3), np.int64),
            info=np.empty((self.lanes, len(rules.INFO_NAMES)), np.int64),
        )
        stages = self._stages()  # of before: a step that reaches a flag may end in the next stage
        self._stepper.step(buttons, outcome)
        self._mark(outcome.frames, self.book[:, rules.BUTTONS])
        self._mark(outcome.final_frames, outcome.held)
        clears = self.book[:, rules.CLEARED] != 0
        return VectorStep(
            frames=outcome.frames,
            final_frames=outcome.final_frames,
            rewards=self._rewards(clears),
            terminated=outcome.ended[:, 0] != 0,
            truncated=outcome.ended[:, 1] != 0,
            returns=outcome.episode[:, 0],
            lengths=outcome.episode[:, 1],
            scores=outcome.info[:, rules.SCORE],
            furthest=outcome.episode[:, 2],
            clears=clears,
            info=outcome.info,
            stages=stages,
            emulated=int(self.book[:, rules.FRAMES].sum()),
        )

    def follow(self, level: float) -> None:
        """Of several stages, let the next episodes begin at those of a curriculum's level."""
        if level != self._level:
            self._level = level
            self._stepper.begins = np.tile(stage_slots(level), (self.lanes, 1))

    def screen(self, lane: int) -> NDArray[np.uint8]:
        """The console's last frame in RGB, uint8 [240, 256, 3]."""
        return self.emulator.screen(lane)

    def rewind(self) -> None:
        self.book[:, rules.DRAWS] = 0

    def state(self) -> dict[str, NDArray[Any]]:
        """The rules' book, and every console's saved state: their bytes one behind the other, and where each ends."""
        consoles = [self.emulator.save(lane) for lane in range(self.lanes)]
        return {
            "book": self.book.copy(),
            "consoles": np.frombuffer(b"".join(consoles), np.uint8),
            "console_ends": np.cumsum([len(console) for console in consoles]),
        }

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        self.book[:] = state["book"]
        ends = state["console_ends"].tolist()
        for lane, (begin, end) in enumerate(pairwise([0, *ends])):
            self.emulator.load(lane, state["consoles"][begin:end].tobytes())

    def close(self) -> None:
        self.emulator.close()

    def _mark(self, frames: NDArray[np.uint8], buttons: NDArray[Any]) -> None:
        """Draw the view's mark, of joypad bytes [lanes]."""
        side = self.task.view.mark
        frames[:, :side, :side] = np.where(buttons & A, 255, 0)[:, None, None]

    def _stages(self) -> NDArray[np.int64]:
        """Where each lane is, as an index of `STAGES`; -1 in the worlds that there should not be."""
        ram = self.emulator.ram
        world, stage = ram[:, rules.WORLD].astype(np.int64), ram[:, rules.STAGE].astype(np.int64)
        return np.where((world < 8) & (stage < 4), 4 * world + stage, -1)

    def _rewards(self, clears: NDArray[np.bool_]) -> NDArray[np.float32]:
        if self.task.reward == "classic":
            return self.book[:, rules.STEP_CLASSIC].astype(np.float32)
        progress = np.clip(self.book[:, rules.STEP_PROGRESS], -PROGRESS_SCALE, PROGRESS_SCALE) / PROGRESS_SCALE
        return (progress + CLEAR_BONUS * clears).astype(np.float32)


def make_emulator(name: str, lanes: int, threads: int, rom: Path | None = None) -> Emulator:
    """A console with Super Mario Bros in it. Raises `UserError` if the cartridge is missing or not one it can run."""
    if name == "native":
        return NesBatch(lanes, load_cartridge(rom), threads)
    return NesPyEmulator(lanes, threads, rom)


def start_states(emulator: str, stages: Sequence[str], *, whole_game: bool, rom: Path | None = None) -> list[bytes]:
    """A saved state at the first frame of each stage, for any lane of that emulator."""
    return [_start_state(emulator, None if whole_game else stage, rom) for stage in stages]


@functools.cache
def _start_state(emulator: str, stage: str | None, rom: Path | None) -> bytes:
    """From power-on to a stage's first frame, as gym-super-mario-bros 7.4 does it; None: where the game begins."""
    console = make_emulator(emulator, 1, 1, rom)
    world, number = (int(part) for part in (stage or "1-1").split("-"))
    area = number + 1 if world in (1, 2, 4, 7) and number >= 2 else number  # these worlds have an extra first area
    ram = console.ram[0]

    frames = itertools.count()

    def press(buttons: int) -> None:
        if next(frames) == _LATEST_START:
            raise UserError(
                f"--rom: {rom or installed_mario()}: the game has not begun after {_LATEST_START:,} frames; accepted: "
                "a cartridge of Super Mario Bros"
            )
        console.step(np.array([buttons], np.uint8))

    press(START)
    press(0)
    while rules.clock(ram) == 0:
        press(START)
        if stage is not None:
            for address, value in ((rules.WORLD, world - 1), (rules.STAGE, number - 1), (rules.AREA, area - 1)):
                console.poke(0, address, value)
        press(0)
        console.poke(0, rules.PRELEVEL_TIMER, 0)
    last = rules.clock(ram)
    while rules.clock(ram) >= last:
        last = rules.clock(ram)
        press(START)
        press(0)
    state = console.save(0)
    console.close()
    return state
