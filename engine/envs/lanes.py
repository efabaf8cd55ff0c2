"""The interface of all environments for training: N games of one kind, stepped together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.config.game import Spec
from engine.protocol.messages import Thought

Frames = Any
"""NDArray or Tensor, of the dtype that the `Spec` says."""


def on_host(frames: Frames) -> NDArray[Any]:
    """Frames as an array, wherever they are."""
    return frames if isinstance(frames, np.ndarray) else frames.cpu().numpy()


@dataclass(frozen=True)
class VectorStep:
    """The result of one environment step of all lanes; later steps do not overwrite its arrays.

    Frames may be tensors on the device that drew them; everything else is a few bytes per lane, on the host.

    If an episode ended, `frames` has the first frame of the next episode and `final_frames` the last one of the ended
    episode; otherwise `final_frames` is undefined. Lanes that don't restart have the last frame in both.
    """

    frames: Frames  # [lanes, *frame_shape]
    final_frames: Frames  # [lanes, *frame_shape]
    rewards: NDArray[np.float32]  # [lanes], for the agent: scaled and shaped
    terminated: NDArray[np.bool_]  # [lanes], the episode ended in a terminal state: no bootstrapping
    truncated: NDArray[np.bool_]  # [lanes], the episode was cut off by a limit: bootstrap from `final_frames`
    returns: NDArray[Any]  # [lanes], return of the episode so far, for people: not scaled or shaped
    lengths: NDArray[np.int64]  # [lanes], environment steps of the episode so far
    results: NDArray[np.float64]  # [lanes, results], of the episode so far, in the order that the game declares
    success: NDArray[np.bool_]  # [lanes], whether the game's goal was reached in this step
    from_start: NDArray[np.bool_]  # [lanes], whether the episode began at a start of the game, not at a stored state
    tasks: NDArray[np.int64]  # [lanes], task at the beginning of the step, an index of `Outcome.tasks`; -1 without any
    game_frames: int  # of all lanes together, including skipped scenes and new starts; 0 if steps are the game's frames
    masks: NDArray[np.bool_] | None = None  # [lanes, actions], legal in `frames`; None if all are always legal
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


class Lanes(Protocol):
    """N games. When an episode ends, the next one begins within the same step, if lanes restart."""

    lanes: int

    @property
    def spec(self) -> Spec:
        """The kind of game."""

    @property
    def masks(self) -> NDArray[np.bool_] | None:
        """Legal actions in the latest frames [lanes, actions]; None if all are always legal."""

    def reset(self) -> Frames:
        """Begin an episode in every lane; returns the first frames [lanes, *frame_shape]."""

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        """One environment step with action indices [lanes]."""

    def set_curriculum_level(self, level: float) -> None:
        """Apply a curriculum's level from the next step on; see `engine.envs.curriculum`."""

    def screen(self, lane: int, thought: Thought | None = None) -> NDArray[np.uint8]:
        """A picture for people, uint8 [240, 256, 3]. Tetris draws the agent's decision, if it is given."""

    def facts(self, lane: int) -> dict[str, int]:
        """Values of a board game to show beside the picture, such as its lines."""

    def task_of(self, lane: int) -> str:
        """The task of a policy at which the lane's episodes begin, in lanes that play a policy."""

    def spread_starts(self) -> None:
        """Give the lanes as many different starts as the game allows. Call before the first `reset`."""

    def rewind(self) -> None:
        """Restart the random numbers: from the next `reset` on, lanes behave like new ones."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next steps depend on, for a checkpoint."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> Frames | None:
        """Load the `state` of the same number of lanes of the same game. Lanes whose games can't be stored begin new
        episodes, and return the first frames [lanes, *frame_shape]."""

    def close(self) -> None:
        """Release resources."""
