"""The curriculum of a run, which its coordinator advances and its members follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.envs.curriculum import Curriculum, report
from engine.protocol import messages
from engine.protocol.messages import Phase
from engine.runners.learning.checkpoint import refused
from engine.runners.parent_link import ParentLink
from engine.runners.shared_state import SharedState
from engine.runs.checkpoint_state import Extra, read_state


class RunCurriculum:
    """Advances `curriculum`, publishes its level, and tells when a new phase begins.

    `ladder`: final epsilon of each lane of all members. The quarter of the lanes that explores least is judged.
    """

    def __init__(
        self, curriculum: Curriculum, ladder: NDArray[np.float64], link: ParentLink, shared_state: SharedState
    ) -> None:
        self._curriculum, self._link, self._shared_state = curriculum, link, shared_state
        self._phase = int(curriculum.level)
        self._judged = ladder <= np.sort(ladder)[max(1, ladder.size // 4) - 1]

    def record_episode(self, place: int, task: str, success: bool) -> None:
        """Count an episode of the lane at `place` among all members' lanes."""
        if self._judged[place]:
            self._curriculum.record_episode(task, success)

    def advance(self, env_steps: int) -> None:
        """Advance to what the run has reached after `env_steps` environment steps."""
        curriculum = self._curriculum
        curriculum.advance(env_steps)
        self._shared_state.publish_level(curriculum.level)
        names = curriculum.phases
        while self._phase < int(curriculum.level):
            self._phase += 1
            self._link.send(
                Phase(env_steps=env_steps, phase=self._phase + 1, phases=len(names), name=names[self._phase])
            )

    def report(self) -> messages.Curriculum:
        return report(self._curriculum)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return self._curriculum.state()


def curriculum_at(config: RunConfig, extra: Extra) -> Curriculum | None:
    """The run's curriculum with the state from a checkpoint's `extra`; a new one if that has none."""
    env_steps = extra.counters.env_steps
    curriculum = config.game_info.make_curriculum(config, env_steps)
    if curriculum is not None and extra.curriculum is not None:
        with refused("curriculum"):
            curriculum.load_state(msgspec.to_builtins(extra.curriculum))
    if curriculum is not None:
        curriculum.advance(env_steps)
    return curriculum


def curriculum_level_at(config: RunConfig, checkpoint: Path | None) -> float:
    """The level of the run's curriculum at a checkpoint; 0 without a curriculum or a checkpoint."""
    curriculum = curriculum_at(config, Extra() if checkpoint is None else read_state(checkpoint).extra)
    return 0.0 if curriculum is None else curriculum.level
