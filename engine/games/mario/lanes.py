"""Batched Super Mario Bros on the native console or on nes-py.

Both consoles use the same rules and the same random decisions, so a seed and a sequence of actions give the same games
on either. A new episode starts from a saved state, automatically or on request.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config.capabilities import RIGHT, START, A
from engine.config.fields import must_be_one_of
from engine.config.game import Spec
from engine.console.cartridge import installed_mario
from engine.console.nes import NesBatch, load_cartridge
from engine.console.nes_py import NesPyEmulator
from engine.console.protocol import Emulator
from engine.console.view import View
from engine.envs.lanes import Lanes, VectorStep
from engine.errors import UserError
from engine.games.mario import rules
from engine.games.mario.actions import HALFWAY, HOLD, NOT_WITH_NES_PY, STACK, action_buttons
from engine.games.mario.compiled_stepper import CompiledStepper
from engine.games.mario.curriculum import stage_slots
from engine.games.mario.reference_stepper import ReferenceStepper
from engine.games.mario.start_states import StartStates
from engine.games.mario.task import MarioTask, StepOutcome, Stepper
from engine.protocol.messages import Thought
from engine.runtime.stored_arrays import LARGEST_COUNT, check_numbers, stored_array

_LOG = logging.getLogger(__name__)
EMULATORS = ("native", "nes-py")
CLEAR_BONUS = 3.0
PROGRESS_SCALE = 15.0
_STAGES = np.full((256, 256), -1)
"""The stage, an index of `STAGES`, of each world and stage in RAM."""
_STAGES[:8, :4] = np.arange(32).reshape(8, 4)
_NOOP_DRAW = 1
"""Index of the random number that sets the number of no-ops in a new lane's first episode."""
_PARTS = 100
"""The most parts in which a share of episodes is counted."""
_MAX_START_FRAMES = 5000
"""Frames from power-on within which the game must have begun. Super Mario Bros needs about 200; others may never."""
_STANDS_FRAMES, _WALKS_FRAMES, _WALKED = 30, 60, 16
"""How a game is recognised: Mario stands still for so many frames and then walks for so many, by at least so many
pixels. In Super Mario Bros it is 81 pixels on land and 60 under water."""
_AREAS = bytes.fromhex(
    "00050A0E13171B20 2529C02660 2829012762 24352063 2229412C61 2A312662 2E232D60 3329012764 30322165"
)
"""A table in the program of Super Mario Bros: where the areas of each world begin in the list that follows. Stages are
found by it; The Lost Levels has another."""


@dataclass(frozen=True)
class LaneState:
    """One lane between two steps, for `MarioLanes.load_lane`."""

    console: bytes
    book: NDArray[np.int64]  # [BOOK_WORDS]


@dataclass(frozen=True, kw_only=True)
class MarioStep(VectorStep):
    """A step with what gym-super-mario-bros tells of it."""

    info: NDArray[np.int64]  # [lanes, 10], columns as in `rules.INFO_NAMES`


class MarioLanes(Lanes):
    """Many games of Super Mario Bros, stepped together; see `engine.envs.lanes.Lanes`.

    Args:
        task: stages, reward, actions and other options of the game.
        lanes: number of games.
        emulator: `native` or `nes-py`.
        threads: number of threads that step lanes; results do not depend on it.
        seed: seed of all random decisions.
        restart: whether a lane whose episode ended begins the next one within the step. Otherwise its console stays at
            the last frame until `reset`.
        stage_per_lane: with several stages, whether each lane always plays the same one, so that an evaluation covers
            all stages evenly. Otherwise each episode draws its stage.
        rom: cartridge file; None for the one in gym-super-mario-bros.
        start_states: share of episodes, 0 to 0.5, that begin at states which earlier ones reached. Only with `native`,
            whose states are small.
        guided: share of episodes that begin at states of ways to the flag, which `begin_on_ways` sets; as above.
        draws: whether frames are drawn. Without, `native` takes half the time, and frames are undefined.

    Raises `UserError` if the cartridge is missing or can't be used, and for a random phase on nes-py.
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
        stage_per_lane: bool = False,
        rom: Path | None = None,
        start_states: float = 0.0,
        guided: float = 0.0,
        draws: bool = True,
    ) -> None:
        self.task = task
        self.lanes = lanes
        self.frame_shape = task.view.shape
        self.actions = len(task.action_names)
        self.spec = Spec(self.frame_shape, self.actions, stack=STACK, hold=HOLD)
        if task.random_phase and emulator != "native":
            raise UserError(f"random_phase {NOT_WITH_NES_PY}")
        self.emulator: Emulator = make_emulator(emulator, lanes, threads, rom)
        self.book = np.zeros((lanes, rules.BOOK_WORDS), np.int64)
        self.book[:, rules.STREAM] = [rules.stream(seed, lane) for lane in range(lanes)]
        self._buttons = np.array(action_buttons(task.actions), np.uint8)
        starts = stage_starts(emulator, task.stages, whole_game=task.whole_game, rom=rom)
        if task.halfway_starts:  # one for each stage, in the same order
            starts += stage_starts(emulator, task.stages, halfway=True, rom=rom)
        self._true_starts = len(starts)
        self._stepper: Stepper = (
            CompiledStepper(self.emulator, task, self.book, starts, restart, draws)
            if isinstance(self.emulator, NesBatch)
            else ReferenceStepper(self.emulator, task, self.book, starts, restart, threads)
        )
        self._own_starts = (
            StartStates(self.emulator, self._stepper, first=len(starts), reached=start_states, guided=guided, seed=seed)
            if start_states + guided and isinstance(self.emulator, NesBatch)
            else None
        )
        self._level = math.nan
        if stage_per_lane:
            stages = len(task.stages)
            spread = np.linspace(0, stages, min(lanes, stages), endpoint=False).astype(np.int64)
            rounds = np.arange(lanes) // len(spread)
            before, after = (np.floor((rounds + more) * task.halfway_starts + 0.5) for more in (0, 1))
            self._stepper.start_choices = (np.resize(spread, lanes) + stages * (after > before))[:, None]
        elif task.halfway_starts:
            self._begin_at(list(range(len(task.stages))))

    @property
    def stages(self) -> NDArray[np.int64]:
        """The stage of each lane [lanes], as an index of `STAGES`; -1 in glitched worlds outside 1-1 to 8-4."""
        ram = self.emulator.ram
        return _STAGES[ram[:, rules.WORLD], ram[:, rules.STAGE]]

    def task_of(self, lane: int) -> str:
        """The stage at which the episodes of a lane begin, with `stage_per_lane`."""
        return self.task.stages[int(self._stepper.start_choices[lane, 0]) % len(self.task.stages)]

    def reset(self, which: NDArray[np.bool_] | None = None) -> NDArray[np.uint8]:
        """Begin an episode in the lanes where `which` (bool [lanes], None for all) is set.

        Returns their first frames, uint8 [lanes, height, width]; those of other lanes are undefined. Raises
        `ValueError` for a wrong shape or dtype.
        """
        chosen = np.ones(self.lanes, np.bool_) if which is None else which
        if chosen.shape != (self.lanes,) or chosen.dtype != np.bool_:
            raise ValueError(f"which must be bool ({self.lanes},), got {chosen.dtype} {chosen.shape}")
        frames = np.empty((self.lanes, *self.frame_shape), np.uint8)
        self._stepper.reset(frames, chosen)
        self._mark(frames, self.book[:, rules.BUTTONS])
        return frames

    def reseed(self, lane: int, seed: int) -> None:
        """Seed a lane: its next random decisions will be those of lane 0 of new lanes with that seed."""
        self.book[lane, rules.STREAM] = rules.stream(seed, 0)
        self.book[lane, rules.DRAWS] = 0

    def spread_starts(self) -> None:
        """Let the first episode of the n-th lane of each stage begin with `noop_min` + n no-op frames, up to `noop_max`
        and then from the beginning. Fewer lanes than starts are spread evenly over them, each stage's between those of
        the others.

        A deterministic policy always plays the same episode from the same start, so this covers all its episodes.
        """
        starts, stage_of_lane = self.task.starts, self._stepper.start_choices[:, 0]
        stages = np.unique(stage_of_lane).tolist()  # and their middles, of which each has all starts, too
        for place, stage in enumerate(stages):
            lanes = np.flatnonzero(stage_of_lane == stage).tolist()
            for nth, lane in enumerate(lanes):
                shift = nth * len(stages) + place  # in parts of the distance between two lanes of a stage
                extra = shift * max(starts, len(lanes)) // (len(lanes) * len(stages)) % starts
                stream = int(self.book[lane, rules.STREAM])
                while rules.draw(stream, _NOOP_DRAW) % starts != extra:
                    stream = rules.stream(stream, lane)
                self.book[lane, rules.STREAM] = stream

    def step(self, actions: NDArray[np.int64]) -> MarioStep:
        """One environment step with action indices [lanes]. Raises `ValueError` for another number of them."""
        return self.step_buttons(self._buttons[actions])

    def step_buttons(self, buttons: NDArray[np.uint8]) -> MarioStep:
        """One environment step with joypad bytes [lanes], independent of the action set.

        Raises `ValueError` for another number of them.
        """
        if buttons.shape != (self.lanes,):
            raise ValueError(f"expected an action for each of {self.lanes} lanes, got the shape {buttons.shape}")
        shape = (self.lanes, *self.frame_shape)
        outcome = StepOutcome(
            frames=np.empty(shape, np.uint8),
            final_frames=np.empty(shape, np.uint8),
            ended=np.empty((self.lanes, 2), np.int64),
            held=np.empty(self.lanes, np.uint8),
            episode=np.empty((self.lanes, 3), np.int64),
            info=np.empty((self.lanes, len(rules.INFO_NAMES)), np.int64),
        )
        stages = self.stages  # before the step: one that reaches a flag may end in the next stage
        from_start = self.book[:, rules.START] < self._true_starts
        self._stepper.step(buttons, outcome)
        self._mark(outcome.frames, self.book[:, rules.BUTTONS])
        self._mark(outcome.final_frames, outcome.held)
        clears = self.book[:, rules.CLEARED] != 0
        if self.task.whole_game:  # also if the rule has not seen the flag
            clears |= (stages >= 0) & (self.stages == stages + 1)
        if self._own_starts is not None:
            terminated = outcome.ended[:, 0] != 0
            self._own_starts.observe(terminated | (outcome.ended[:, 1] != 0), terminated & ~clears)
        return MarioStep(
            frames=outcome.frames,
            final_frames=outcome.final_frames,
            rewards=self._rewards(clears),
            terminated=outcome.ended[:, 0] != 0,
            truncated=outcome.ended[:, 1] != 0,
            returns=outcome.episode[:, 0],
            lengths=outcome.episode[:, 1],
            results=np.stack(
                (outcome.episode[:, 2], outcome.info[:, rules.SCORE], outcome.info[:, rules.TIME]), 1, dtype=np.float64
            ),
            success=clears,
            tasks=stages,
            from_start=from_start,
            game_frames=int(self.book[:, rules.FRAMES].sum()),
            info=outcome.info,
        )

    def set_curriculum_level(self, level: float) -> None:
        """With several stages: let the next episodes begin at the stages of a curriculum's level."""
        if level != self._level:
            self._level = level
            self._begin_at(stage_slots(level))

    @property
    def has_ways(self) -> bool:
        """Whether there are states of ways to the flag."""
        return self._own_starts is not None and self._own_starts.has_ways

    def begin_on_ways(self, states: Mapping[int, bytes]) -> None:
        """Let the share `guided` of the next episodes begin at these saved consoles, by place (`place_of`)."""
        assert self._own_starts is not None
        self._own_starts.add_ways(states)

    def screen(self, lane: int, thought: Thought | None = None) -> NDArray[np.uint8]:
        """The console's last frame in RGB, uint8 [240, 256, 3]."""
        return self.emulator.screen(lane)

    def frames_in(self, view: View) -> NDArray[np.uint8]:
        """The last frames, uint8 [lanes, height, width], in another view, with the same mark."""
        frames = np.empty((self.lanes, *view.shape), np.uint8)
        self.emulator.picture(view, frames)
        self._mark(frames, self.book[:, rules.BUTTONS])
        return frames

    def rewind(self) -> None:
        self.book[:, rules.DRAWS] = 0

    def state(self) -> dict[str, NDArray[Any]]:
        """`book` [lanes, BOOK_WORDS], the concatenated bytes of all consoles' saved states, and where each ends."""
        consoles = [self.emulator.save(lane) for lane in range(self.lanes)]
        return {
            "true_starts": np.array([self._true_starts]),
            "book": self.book.copy(),
            "consoles": np.frombuffer(b"".join(consoles), np.uint8),
            "console_ends": np.cumsum([len(console) for console in consoles]),
            **({} if self._own_starts is None else self._own_starts.state()),
        }

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """See `Lanes.load_state`. Raises `ValueError` for what no games of these lanes can have."""
        book = stored_array(state, "book", self.book.shape, np.int64)
        check_numbers("book", book, -LARGEST_COUNT, LARGEST_COUNT)
        check_numbers("buttons", book[:, rules.BUTTONS : rules.BUTTONS + 1], 0, 0xFF)
        consoles = stored_array(state, "consoles", (None,), np.uint8)
        ends = stored_array(state, "console_ends", (self.lanes,), np.int64)
        check_numbers("console_ends", ends, 0, consoles.size)
        self.book[:] = book
        known = len(self.task.stages)  # in earlier versions
        if "true_starts" in state:
            true_starts = stored_array(state, "true_starts", (1,), np.int64)
            check_numbers("true_starts", true_starts, 1, 2 * known)
            known = int(true_starts[0])
        if known != self._true_starts:  # by another `halfway_starts`; states that lanes have reached follow
            reached = book[:, rules.START] >= known
            self.book[:, rules.START] = np.where(reached, self._true_starts, 0)
        if self._own_starts is not None and "start_places" in state:
            self._own_starts.load_state(state, known)
        for lane, (begin, end) in enumerate(pairwise([0, *ends.tolist()])):
            self.emulator.load(lane, consoles[begin:end].tobytes())

    def lane_state(self, lane: int) -> LaneState:
        """The state of one lane, between steps."""
        return LaneState(self.emulator.save(lane), self.book[lane].copy())

    def load_lane(self, lane: int, state: LaneState) -> None:
        """Continue in a lane from the state of any lane with the same kind of console and cartridge."""
        self.emulator.load(lane, state.console)
        self.book[lane] = state.book

    def close(self) -> None:
        self.emulator.close()

    def _begin_at(self, stages: list[int]) -> None:
        """Let the next episodes begin at these stages (indices, each as often as it is there), and the task's share of
        them in the middle."""
        share = Fraction(self.task.halfway_starts).limit_denominator(_PARTS)
        begin = stages * (share.denominator - share.numerator)
        starts = begin + [stage + len(self.task.stages) for stage in stages * share.numerator]
        if self._own_starts is not None:
            self._own_starts.set_true_starts(starts)
        else:
            self._stepper.start_choices = np.tile(starts, (self.lanes, 1))

    def _mark(self, frames: NDArray[np.uint8], buttons: NDArray[Any]) -> None:
        """Draw the view's mark in the corner of frames where joypad bytes [lanes] include A, clear it elsewhere."""
        if side := self.task.view.mark:
            frames[:, :side, :side] = np.where(buttons & A, 255, 0)[:, None, None]

    def _rewards(self, clears: NDArray[np.bool_]) -> NDArray[np.float32]:
        if self.task.reward == "classic":
            return self.book[:, rules.STEP_CLASSIC].astype(np.float32)
        scaled = self.book[:, rules.STEP_PROGRESS] / PROGRESS_SCALE
        progress = np.minimum(np.maximum(scaled, -1.0), 1.0)  # for one lane a third of the time of np.clip
        return (progress + CLEAR_BONUS * clears).astype(np.float32)


def make_emulator(name: str, lanes: int, threads: int, rom: Path | None = None) -> Emulator:
    """A console with a cartridge. Raises `UserError` if there is no such emulator (a policy names it, and may be
    foreign), or if the cartridge is missing or not supported."""
    if name == "native":
        return NesBatch(lanes, load_cartridge(rom), threads)
    if name == "nes-py":
        return NesPyEmulator(lanes, threads, rom)
    raise UserError(f"emulator {must_be_one_of(EMULATORS, name)}")


def stage_starts(
    emulator: str, stages: Sequence[str], *, whole_game: bool = False, halfway: bool = False, rom: Path | None = None
) -> list[bytes]:
    """Saved states at the first frame of each stage, or in its middle, for any lane of that emulator."""
    return [
        _start_state(emulator, None if whole_game else stage, HALFWAY[stage] if halfway else 0, rom) for stage in stages
    ]


@functools.cache
def _start_state(emulator: str, stage: str | None, page: int, rom: Path | None) -> bytes:
    """Run from power-on to the first frame of a stage (None: of the game), like gym-super-mario-bros 7.4; or to that of
    a life that goes on at a screen in the middle of the stage, its `page`, unless that is 0.

    Raises `UserError` if the game does not begin, or not like Super Mario Bros.
    """
    console = make_emulator(emulator, 1, 1, rom)
    has_areas = rom is None or _AREAS in load_cartridge(rom).program.tobytes()
    world, number = (int(part) for part in (stage or "1-1").split("-"))
    area = number + 1 if world in (1, 2, 4, 7) and number >= 2 else number  # these worlds have an extra first area
    ram = console.ram[0]

    frames = itertools.count()

    def refuse(reason: str) -> UserError:
        return UserError(f"--rom: {rom or installed_mario()}: {reason}; accepted: a cartridge of Super Mario Bros")

    if not has_areas and number > 1:
        raise refuse(f"{stage} can't be found, because its worlds have other areas than those of Super Mario Bros")

    def press(buttons: int) -> None:
        if next(frames) == _MAX_START_FRAMES:
            raise refuse(f"the game has not begun after {_MAX_START_FRAMES:,} frames")
        console.step(np.array([buttons], np.uint8))

    press(START)
    press(0)
    while rules.clock(ram) == 0:
        press(START)
        if stage is not None:
            numbers = {rules.WORLD: world - 1, rules.STAGE: number - 1, rules.AREA: area - 1, rules.HALFWAY_PAGE: page}
            for address, value in numbers.items():
                console.poke(0, address, value)
        press(0)
        console.poke(0, rules.PRELEVEL_TIMER, 0)
    last = rules.clock(ram)
    while rules.clock(ram) >= last:
        last = rules.clock(ram)
        press(START)
        press(0)
    state = console.save(0)
    place = None if stage is None else (world - 1, number - 1)
    if rom is not None and page == 0 and (reason := _why_not_mario(console, place)):
        raise refuse(f"the game does not play like Super Mario Bros, because {reason}")
    if not has_areas:
        _LOG.warning("--rom: %s is not Super Mario Bros: rewards and ends may not fit", rom)
    console.close()
    return state


def _why_not_mario(console: Emulator, stage: tuple[int, int] | None) -> str:
    """Return what a game does otherwise than Super Mario Bros at the start of a stage (world and number, from 0; None
    for any one); empty if nothing. The rules read addresses that hold anything in other games, also values that look
    right."""
    ram = console.ram[0]

    def hold(buttons: int, frames: int) -> list[int]:
        """x after each frame."""
        path = []
        for _ in range(frames):
            console.step(np.array([buttons], np.uint8))
            path.append(int(rules.where(console.ram)[2][0]))
        return path

    if stage not in (None, (int(ram[rules.WORLD]), int(ram[rules.STAGE]))):
        return f"its world and stage (${rules.WORLD:04X}, ${rules.STAGE:04X}) are not those that were chosen"
    time, stood = rules.clock(ram), hold(0, _STANDS_FRAMES)
    if not rules.stands(console.ram)[0]:
        return f"no Mario stands there (${rules.PLAYER_STATE:04X})"
    if len(set(stood)) > 1:
        return "Mario's x ($006D, $0086) changes while no button is held"
    walked = hold(RIGHT, _WALKS_FRAMES)
    steps = np.diff(walked)
    if walked[-1] - stood[-1] < _WALKED or steps.min() < 0 or steps.max() > rules.FASTEST:
        return "Mario's x ($006D, $0086) does not grow pixel by pixel while right is held"
    if ram[rules.CLOCK : rules.CLOCK + 3].max() > 9 or not 0 < time - rules.clock(ram) < _WALKS_FRAMES:
        return f"its clock (${rules.CLOCK:04X}) does not count down"
    return ""
