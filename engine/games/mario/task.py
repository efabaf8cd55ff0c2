"""Options of the Super Mario Bros environment: stages, actions, reward, and how episodes begin and end; and the
contract of what steps it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.console.view import VIEWS, View
from engine.errors import UserError
from engine.games.mario.actions import WHOLE_GAME, WITHOUT_HALFWAY, action_buttons, action_names, has_halfway, stages_of

REWARDS = ("progress", "classic")
STALL_STEPS = 300
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a string"),
    "int": (Integral, "an integer"),
    "float": (Real, "a number"),
    "bool": ((bool, np.bool_), "a bool"),
    "View": (View, "a View"),
}
"""For each type of an option: what is accepted, which is more than its annotation says, and how errors call it."""


@dataclass(frozen=True, kw_only=True)
class MarioTask:
    """Options of the environment. Raises `UserError` on construction if a value is not accepted.

    Args:
        stage: `1-1` to `8-4`: one stage; an episode ends with death or flag. `1-1,1-2`: one of these in each episode.
            `random`: any stage in each episode. `game`: the whole game with three lives; an episode ends with the last
            one.
        reward: `classic` is the reward of gym-super-mario-bros 7.4, summed over the frames of the step. `progress` is
            the one that agents learn best from: increase of the furthest x + clock ticks (negative) - 25 for death,
            clipped to +-15 and divided by 15, + 3 for the flag, unless Mario will hang there for ever. The furthest x
            is counted for each area of a stage, so nothing is paid twice where a pipe or a maze leads back.
        actions: `right-only`, `simple`, `complex`, or a list of button combinations such as `noop,right,right+A`.
        frame_skip: number of frames for which an action is held.
        swim_strokes: whether A is released in the first frame of a step under water. Mario swims up only when A is
            pressed; so every step with A is a stroke.
        sticky: probability that the action of the frame before is repeated instead (Machado et al. 2018: 0.25).
        sticky_frames: whether that is decided in each frame of a step; if not, for the whole step.
        noop_min, noop_max: an episode begins with a random number of no-op frames in this range (Mnih et al. 2015: 0 to
            30).
        random_phase: whether an episode begins in a random phase of the game's counters and random numbers, and its
            frames end where they may at that stage of the whole game. Otherwise its no-ops alone tell one start from
            another. Only on the native console.
        usual_ends: share of the episodes in a random phase, 0 to 1, whose frames end where they do without one. For
            training, so that a policy learns the stage as it is played alone, too.
        halfway_starts: share of the episodes, 0 to 1, that begin in the middle of their stage, where the game goes on
            after a death behind it, if the stage has such a place (see `HALFWAY`).
        stall_steps: number of environment steps without a new furthest x after which an episode is truncated; 0 for
            never.
        ends_at_loops: whether an episode ends like death where the mazes of 4-4, 7-4 and 8-4 move Mario back, which
            the screen does not show, and at the pipes of a warp zone, to which no way is paid: on x they lie beyond the
            pipe that leads to the flag. For training; not with `game`.
        view: crop and size of the agent's frames.
    """

    stage: str = "1-1"
    reward: str = "progress"
    actions: str = "right-only"
    frame_skip: int = 4
    swim_strokes: bool = False
    sticky: float = 0.0
    sticky_frames: bool = True
    noop_min: int = 0
    noop_max: int = 30
    random_phase: bool = False
    usual_ends: float = 0.0
    halfway_starts: float = 0.0
    stall_steps: int = STALL_STEPS
    ends_at_loops: bool = False
    view: View = VIEWS["50x60-red"]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kind, words = _KINDS[str(field.type)]
            if not isinstance(given := getattr(self, field.name), kind):
                raise UserError(f"{field.name} must be {words} such as {field.default!r}, got {given!r}")
        try:
            stages_of(self.stage)
        except UserError as error:
            raise UserError(f"stage: {error}") from None
        if self.reward not in REWARDS:
            raise UserError(f"reward must be one of {', '.join(REWARDS)}, got {self.reward!r}")
        if not 1 <= self.frame_skip <= 60:
            raise UserError(f"frame_skip must be between 1 and 60, got {self.frame_skip}")
        if self.swim_strokes and self.frame_skip < 2:
            raise UserError(f"frame_skip must be at least 2 with swim_strokes, got {self.frame_skip}")
        if not 0 <= self.sticky < 1:
            raise UserError(f"sticky must be at least 0 and less than 1, got {self.sticky}")
        if not 0 <= self.halfway_starts <= has_halfway(self.stage):
            limits = f"at least 0 and at most 1, and 0 {WITHOUT_HALFWAY}"
            raise UserError(f"halfway_starts must be {limits}, got {self.halfway_starts}")
        if not 0 <= self.usual_ends <= 1:
            raise UserError(f"usual_ends must be at least 0 and at most 1, got {self.usual_ends}")
        for name in ("noop_min", "stall_steps"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.noop_max < self.noop_min:
            raise UserError(f"noop_max must be at least noop_min ({self.noop_min}), got {self.noop_max}")
        action_buttons(self.actions)  # raises `UserError` for unknown names

    @property
    def starts(self) -> int:
        """Numbers of no-op frames with which an episode of a stage can begin."""
        return self.noop_max - self.noop_min + 1

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages at which an episode can begin."""
        return stages_of(self.stage)

    @property
    def whole_game(self) -> bool:
        return self.stage == WHOLE_GAME

    @property
    def action_names(self) -> tuple[str, ...]:
        return action_names(self.actions)


@dataclass(frozen=True)
class StepOutcome:
    """Arrays that a stepper fills in a step, with a row for each lane."""

    frames: NDArray[np.uint8]
    final_frames: NDArray[np.uint8]
    ended: NDArray[np.int64]  # [lanes, 2]: terminated, truncated
    held: NDArray[
        np.uint8
    ]  # [lanes], joypad bytes of its last frame: with sticky actions maybe those of the previous step
    episode: NDArray[np.int64]  # [lanes, 3]: return, length, furthest x
    info: NDArray[np.int64]  # [lanes, 10]


class Stepper(Protocol):
    """Steps all lanes of a console according to the rules."""

    start_choices: NDArray[np.int64]
    """Indices of start states [lanes, n]; a lane's next episode draws one of its row, all with the same probability."""

    def reset(self, frames: NDArray[np.uint8], which: NDArray[np.bool_]) -> None:
        """Begin an episode in the lanes where `which` [lanes] is set, and write their first frames to `frames`."""

    def step(self, buttons: NDArray[np.uint8], outcome: StepOutcome) -> None:
        """Hold the joypad bytes `buttons` [lanes] for one environment step and fill `outcome`."""

    def set_start(self, start: int, state: bytes) -> None:
        """Add the start state number `start`, or replace it. Raises `ValueError` if the console can't load it."""


def sticky_threshold(probability: float) -> int:
    """The 32-bit threshold: a random draw below it repeats the last action."""
    return int(probability * 2**32)


def all_starts(lanes: int, starts: int) -> NDArray[np.int64]:
    """`Stepper.start_choices` [lanes, starts] with which every episode may begin at any start state."""
    return np.tile(np.arange(starts), (lanes, 1))
