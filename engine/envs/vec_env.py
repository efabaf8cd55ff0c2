"""What a trainer plays on: N games of one kind, stepped together, whatever they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Frames = Any
"""uint8, NDArray or Tensor."""


@dataclass(frozen=True)
class VectorStep:
    """What one environment step of all lanes gave; the arrays are the caller's to keep.

    Frames may stay on the device that drew them, as tensors; everything else is a few bytes a lane, on the host.

    A lane that ended shows its next episode's first frame in `frames` and the ended episode's last one in
    `final_frames` (elsewhere undefined). Lanes that don't restart show the last one in both.
    """

    frames: Frames  # [lanes, *frame_shape]
    final_frames: Frames  # [lanes, *frame_shape]
    rewards: NDArray[np.float32]  # [lanes], as the agent learns them
    terminated: NDArray[np.bool_]  # [lanes]: nothing follows
    truncated: NDArray[np.bool_]  # [lanes], cut by the environment: the value of what would follow counts
    returns: NDArray[Any]  # [lanes], of the episode so far, as people count them
    lengths: NDArray[np.int64]  # [lanes], environment steps of the episode so far
    scores: NDArray[np.int64]  # [lanes], of the episode so far: Mario's points, fruits of Snake, lines of Tetris
    furthest: NDArray[np.int64]  # [lanes], Mario's x position; 0 elsewhere
    clears: NDArray[np.bool_]  # [lanes], a flag was reached in this step
    info: NDArray[np.int64]  # [lanes, columns]; Mario's are named in `rules.INFO_NAMES`
    stages: NDArray[np.int64]  # [lanes], in which the step began: 0 is Mario's 1-1, 31 is 8-4; -1 elsewhere
    emulated: int  # frames of all lanes together, skipped scenes and new starts included; 0 without a console
    masks: NDArray[np.bool_] | None = None  # [lanes, actions], legal in `frames`; None where all always are
    final_masks: NDArray[np.bool_] | None = None  # the same for `final_frames`

    def played(self, frames: Frames, actions: NDArray[np.int64], masks: NDArray[np.bool_] | None) -> PlayedStep:
        """This step together with the frames [lanes, *frame_shape] and masks [lanes, actions] acted on, and the actions
        [lanes]."""
        return PlayedStep(
            frames=frames,
            actions=actions,
            rewards=self.rewards,
            terminated=self.terminated,
            truncated=self.truncated,
            final_frames=self.final_frames,
            masks=masks,
            final_masks=self.final_masks,
        )


@dataclass(frozen=True)
class PlayedStep:
    """One environment step of every lane, as a replay stores it. Arrays have a leading axis of lanes."""

    frames: Frames  # [lanes, *frame_shape], acted on
    actions: Any  # int64 [lanes]; array or tensor, as everything below
    rewards: Any  # float32 [lanes]
    terminated: Any  # bool [lanes]: nothing follows
    truncated: Any  # bool [lanes]: cut off, so that the value of `final_frames` counts
    final_frames: Frames  # [lanes, *frame_shape], read where `truncated` is set
    masks: Any = None  # bool [lanes, actions], legal in `frames`; None if all actions always are
    final_masks: Any = None  # bool [lanes, actions], legal in `final_frames`


@dataclass(frozen=True)
class Spec:
    """What replay and networks need to know of a game."""

    frame_shape: tuple[int, ...]
    """(height, width) of a picture, or (planes, height, width) of a board."""
    actions: int
    stack: int
    """Frames in an observation."""
    hold: int
    """Environment steps for which a random action is held at most while exploring."""
    masked: bool
    """Whether some actions are illegal at times."""


class Lanes(Protocol):
    """N games. An episode that ends is followed by the next one within the same step."""

    lanes: int

    @property
    def spec(self) -> Spec:
        """The kind of game."""

    @property
    def masks(self) -> NDArray[np.bool_] | None:
        """[lanes, actions], legal in the latest frames; None where all always are."""

    def reset(self) -> Frames:
        """Begin an episode in every lane; the first frames [lanes, *frame_shape]."""

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        """One environment step with action indices [lanes]."""

    def follow(self, level: float) -> None:
        """From the next step on, play what a curriculum has at that level; see `engine.envs.curricula`."""

    def screen(self, lane: int) -> NDArray[np.uint8]:
        """A picture for people, uint8 [240, 256, 3]."""

    def spread_starts(self) -> None:
        """Let new lanes begin as differently as the game allows, before the first `reset`."""

    def rewind(self) -> None:
        """Let all random decisions from the next `reset` on be those of new lanes."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next steps depend on, for a checkpoint."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from the `state` of as many lanes of the same game."""

    def close(self) -> None:
        """Free what the games hold."""
