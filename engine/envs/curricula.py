"""Curricula, which change the stages or the reward of a run as it makes progress.

The progress of a curriculum is one number, its level: phase n is level n, counted from 0, and a fraction blends in the
next phase. The coordinator of a run sets it (`Curriculum`), and all lanes apply it (`Lanes.set_curriculum_level`) with
the functions of this module.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from engine.protocol import messages
from engine.protocol.messages import Part

TERMS = ("height", "holes", "bumpiness")
"""Measures of a board of Tetris; see `TetrisLanes.set_shaping`."""
_SHAPING = (
    ("clears", (0.0, 0.0, 0.0)),
    ("height and holes, half", (0.255, 0.18, 0.0)),
    ("height, holes and bumpiness", (0.51, 0.36, 0.18)),
)
"""Phases of the reward: name, and weights of `TERMS`, relative to one cell of a cleared line. The last phase uses the
weights of https://codemyroad.wordpress.com/2013/04/14/tetris-ai-the-near-perfect-player/"""
FINAL_SHAPING = _SHAPING[-1][1]
"""Weights of `TERMS` in the last phase."""


def stage_slots(level: float) -> list[int]:
    """Indices of stages, from which each episode draws one: half are the newest stage, every other one occurs once."""
    newest = int(level)
    return [*range(newest), *[newest] * max(1, newest)]


def shaping(level: float) -> tuple[float, ...]:
    """Weights of `TERMS` at a level; they are subtracted from the reward."""
    phase = min(int(level), len(_SHAPING) - 1)
    now, after = _SHAPING[phase][1], _SHAPING[min(phase + 1, len(_SHAPING) - 1)][1]
    share = level - phase
    return tuple((1 - share) * ours + share * next_ours for ours, next_ours in zip(now, after, strict=True))


class Curriculum(Protocol):
    """Sets the level of a run."""

    level: float
    phases: tuple[str, ...]
    """Names of the phases."""

    def record_episode(self, stage: str, cleared: bool) -> None:
        """Count an episode of a lane that hardly explores. May raise the level."""

    def advance(self, env_steps: int) -> None:
        """Set the level for a run that has played `env_steps` environment steps."""

    def parts(self) -> list[Part]:
        """The stages or reward terms with their current weights."""

    def goal(self) -> str:
        """The condition for the next phase; empty in the last phase."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint (JSON)."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state`."""


class StageCurriculum:
    """Adds the next stage when a share of `rate` of the last `episodes` episodes at the newest one reached the flag.

    Stages are never removed.
    """

    def __init__(self, stages: tuple[str, ...], *, rate: float, episodes: int) -> None:
        self.level, self.phases = 0.0, stages
        self._rate, self._episodes = rate, episodes
        self._recent: dict[str, deque[bool]] = {stage: deque(maxlen=episodes) for stage in stages}

    def record_episode(self, stage: str, cleared: bool) -> None:
        if stage not in self._recent:  # reached through a warp zone
            return
        self._recent[stage].append(cleared)
        newest = self._recent[self.phases[int(self.level)]]
        passed = len(newest) == self._episodes and sum(newest) >= self._rate * self._episodes
        if passed and self.level + 1 < len(self.phases):
            self.level += 1

    def advance(self, env_steps: int) -> None:
        """Does nothing: only episodes count, and several may be recorded between two calls."""

    def parts(self) -> list[Part]:
        slots = stage_slots(self.level)
        return [
            Part(
                name=stage,
                weight=slots.count(place) / len(slots),
                clear_rate=sum(recent) / len(recent) if recent else math.nan,
                episodes=len(recent),
            )
            for place, (stage, recent) in enumerate(self._recent.items())
        ]

    def goal(self) -> str:
        newest = int(self.level)
        if newest + 1 == len(self.phases):
            return ""
        return (
            f"{self.phases[newest + 1]} joins when {self._rate:.0%} of the last {self._episodes} episodes at "
            f"{self.phases[newest]} reached the flag"
        )

    def state(self) -> dict[str, Any]:
        return {
            "joined": self.phases[: int(self.level) + 1],
            "recent": {stage: list(recent) for stage, recent in self._recent.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state`, which may be from a run with other stages; only common stages are used."""
        for stage, recent in self._recent.items():
            recent.extend(state["recent"].get(stage, ()))
        while self.level + 1 < len(self.phases) and self.phases[int(self.level) + 1] in state["joined"]:
            self.level += 1


class RewardCurriculum:
    """Shapes the reward. A phase lasts `steps` environment steps; its second half blends in the next phase. The first
    one begins when the run has played `begin` environment steps."""

    def __init__(self, steps: int, begin: int = 0) -> None:
        self.level, self.phases = 0.0, tuple(name for name, _ in _SHAPING)
        self._steps, self._begin = steps, begin

    def record_episode(self, stage: str, cleared: bool) -> None:
        """Does nothing: only environment steps count."""

    def advance(self, env_steps: int) -> None:
        phase, rest = divmod(max(0, env_steps - self._begin), self._steps)
        self.level = min(phase + max(0.0, 2 * rest / self._steps - 1), len(self.phases) - 1.0)

    def parts(self) -> list[Part]:
        return [Part(name=term, weight=weight) for term, weight in zip(TERMS, shaping(self.level), strict=True)]

    def goal(self) -> str:
        after = int(self.level) + 1
        if after == len(self.phases):
            return ""
        return f"{self.phases[after]} from step {self._begin + after * self._steps:,} on"

    def state(self) -> dict[str, Any]:
        return {"begin": self._begin}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._begin = int(state.get("begin", 0))  # missing in checkpoints of earlier versions


def report(curriculum: Curriculum) -> messages.Curriculum:
    """The message that the dashboard's panel shows."""
    phase = int(curriculum.level)
    return messages.Curriculum(
        phase=phase + 1,
        phases=len(curriculum.phases),
        name=curriculum.phases[phase],
        goal=curriculum.goal(),
        parts=curriculum.parts(),
    )
