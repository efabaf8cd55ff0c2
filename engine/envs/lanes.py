"""The interface of all environments for training: N games of one kind, stepped together; and what goes with them: a
stack of frames, and a curriculum.

A curriculum changes the tasks or the reward of a run as it makes progress. That is one number, its level: phase n is
level n, counted from 0, and a fraction blends in the next phase. The coordinator of a run sets it (`Curriculum`), and
all lanes apply it (`Lanes.set_curriculum_level`). A game brings its own (`engine.config.capabilities.HasCurriculum`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.config.game import Spec
from engine.protocol import messages
from engine.protocol.messages import Part, Thought

Frames = Any
"""NDArray or Tensor, of the dtype that the `Spec` says."""
Picture = NDArray[np.uint8]
"""For people, RGB [240, 256, 3] unless it says another size."""
GROUND = np.array((24, 26, 33), np.float64)
"""The colour behind what pictures of the program's own show."""
_DEFAULT: Any = None


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
    results: NDArray[np.float64] = _DEFAULT  # [lanes, results], of the episode so far, in the order of the outcome
    success: NDArray[np.bool_] = _DEFAULT  # [lanes], whether the game's goal was reached in this step; default: nowhere
    from_start: NDArray[np.bool_] = _DEFAULT  # [lanes], whether the episode began at a start of the game (the default),
    # not at a stored state
    tasks: NDArray[np.int64] = _DEFAULT  # [lanes], task at the beginning of the step, an index of `Outcome.tasks`; -1
    # (the default) without any
    game_frames: int = 0  # of all lanes together, including skipped scenes and new starts; 0 if steps are the frames
    masks: NDArray[np.bool_] | None = None  # [lanes, actions], legal in `frames`; None if all are always legal
    final_masks: NDArray[np.bool_] | None = None  # the same for `final_frames`
    failed: NDArray[np.bool_] | None = None  # [lanes], where `truncated` is set because the game failed in this step

    def __post_init__(self) -> None:
        lanes = len(self.rewards)
        if self.results is _DEFAULT:
            object.__setattr__(self, "results", np.zeros((lanes, 0)))
        if self.success is _DEFAULT:
            object.__setattr__(self, "success", np.zeros(lanes, bool))
        if self.from_start is _DEFAULT:
            object.__setattr__(self, "from_start", np.ones(lanes, bool))
        if self.tasks is _DEFAULT:
            object.__setattr__(self, "tasks", np.full(lanes, -1))

    def played(self, frames: Frames, actions: NDArray[np.int64], masks: NDArray[np.bool_] | None) -> PlayedStep:
        """This step together with the frames [lanes, *frame_shape] and masks [lanes, actions] acted on, and the actions
        [lanes]."""
        return PlayedStep(
            frames=frames,
            actions=actions,
            rewards=self.rewards,
            terminated=self.terminated,
            truncated=self.truncated if self.failed is None else self.truncated & ~self.failed,
            final_frames=self.final_frames,
            masks=masks,
            final_masks=self.final_masks,
            failed=self.failed,
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
    failed: NDArray[np.bool_] | None = None
    """[lanes], nothing came of the action, and nothing is learned from it: the frame acted on is the last of an episode
    that was truncated by the step before."""


class Lanes(ABC):
    """N games. When an episode ends, the next one begins within the same step, if lanes restart.

    A game must have what is abstract here. Without the rest it works: it has no picture, and a resumed run begins new
    episodes.
    """

    lanes: int
    spec: Spec
    """The kind of game."""
    masks: NDArray[np.bool_] | None = None
    """Legal actions in the latest frames [lanes, actions]; None if all are always legal."""

    @abstractmethod
    def reset(self) -> Frames:
        """Begin an episode in every lane; return the first frames [lanes, *frame_shape]."""

    @abstractmethod
    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        """Play one environment step with action indices [lanes]."""

    def set_curriculum_level(self, level: float) -> None:
        """Apply a curriculum's level from the next step on; see `engine.envs.lanes`."""

    def screen(self, lane: int, thought: Thought | None = None) -> NDArray[np.uint8]:
        """Return a picture for people, uint8 [240, 256, 3]. Tetris draws the agent's decision, if it is given."""
        return np.zeros((240, 256, 3), np.uint8)

    def facts(self, lane: int) -> dict[str, int]:
        """Return values to show beside the picture, such as the lines of a board game."""
        return {}

    def task_of(self, lane: int) -> str:
        """Return the task of a policy at which the lane's episodes begin, in lanes that play a policy."""
        return ""

    def spread_starts(self) -> None:
        """Give the lanes as many different starts as the game allows. Called before the first `reset`."""

    def rest_after(self, last: NDArray[np.bool_]) -> None:
        """Let lanes [lanes] whose episode is the `last` rest after it, until the next `reset`, if their steps cost
        something: nobody looks at them any more."""

    def rewind(self) -> None:
        """Restart the random numbers: from the next `reset` on, lanes behave like new ones. Without this, evaluations
        differ by chance."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that the next steps depend on, for a checkpoint."""
        return {}

    def load_state(self, state: dict[str, NDArray[Any]]) -> Frames | None:
        """Load the `state` of the same number of lanes of the same game. Lanes whose games can't be stored begin new
        episodes, and return the first frames [lanes, *frame_shape]."""
        return self.reset()

    def close(self) -> None:
        """Release resources."""


class FrameStack:
    """The last frames of every lane; `obs` is [lanes, stack, *frame_shape], of the frames' dtype."""

    def __init__(self, frames: Frames, stack: int) -> None:
        self._stack = stack
        self.obs: Frames = frames[:, None] if stack == 1 else np.repeat(frames[:, None], stack, axis=1)

    def push(self, frames: Frames, ended: NDArray[np.bool_]) -> None:
        """Add frames [lanes, *frame_shape]. Where an episode `ended` (bool [lanes]), the frame is the first of the next
        one and fills the whole stack."""
        if self._stack == 1:
            self.obs = frames[:, None]
            return
        self.obs = np.concatenate((self.obs[:, 1:], frames[:, None]), axis=1)
        self.obs[ended] = frames[ended][:, None]


class Curriculum(Protocol):
    """Sets the level of a run."""

    level: float
    phases: tuple[str, ...]
    """Names of the phases."""

    def record_episode(self, task: str, success: bool) -> None:
        """Count an episode of a lane that hardly explores, and whether it reached the game's goal. May raise the
        level."""

    def advance(self, env_steps: int) -> None:
        """Set the level for a run that has played `env_steps` environment steps."""

    def parts(self) -> list[Part]:
        """The tasks or reward terms with their current weights."""

    def goal(self) -> str:
        """The condition for the next phase; empty in the last phase."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint (JSON)."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state`."""


def curriculum_report(curriculum: Curriculum) -> messages.Curriculum:
    """The message that the dashboard's panel shows."""
    phase = int(curriculum.level)
    return messages.Curriculum(
        phase=phase + 1,
        phases=len(curriculum.phases),
        name=curriculum.phases[phase],
        goal=curriculum.goal(),
        parts=curriculum.parts(),
    )
