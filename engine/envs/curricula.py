"""Curricula: what a run plays, or is paid for, changes as it gets better.

How far a curriculum has come is one number, its level: a whole one for each phase from 0 on, with a fraction where the
next phase is being blended in. The process that leads a run decides it (`Curriculum`); all lanes follow it
(`Lanes.follow`) by the functions on this page.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from engine.config.run_config import RunConfig
from engine.config.stages import stages_of
from engine.protocol import messages
from engine.protocol.messages import Part

TERMS = ("height", "holes", "bumpiness")
"""What is counted on a board of Tetris, see `engine.envs.boards.tetris`."""
_SHAPING = (
    ("clears", (0.0, 0.0, 0.0)),
    ("height and holes, half", (0.255, 0.18, 0.0)),
    ("height, holes and bumpiness", (0.51, 0.36, 0.18)),
)
"""Phases of the reward: what each unit of a term takes from it, in cells of a cleared line. The last are the weights of
https://codemyroad.wordpress.com/2013/04/14/tetris-ai-the-near-perfect-player/"""


def stage_slots(level: float) -> list[int]:
    """Places of stages, of which an episode takes any: half are the newest stage's, each other one has one."""
    newest = int(level)
    return [*range(newest), *[newest] * max(1, newest)]


def shaping(level: float) -> tuple[float, ...]:
    """What a unit of each of `TERMS` takes from the reward."""
    phase = min(int(level), len(_SHAPING) - 1)
    now, after = _SHAPING[phase][1], _SHAPING[min(phase + 1, len(_SHAPING) - 1)][1]
    share = level - phase
    return tuple((1 - share) * ours + share * next_ours for ours, next_ours in zip(now, after, strict=True))


class Curriculum(Protocol):
    """Decides the level."""

    level: float
    phases: tuple[str, ...]
    """Their names."""

    def book(self, stage: str, cleared: bool) -> None:
        """Count an episode of a lane that hardly explores; it may set the level."""

    def advance(self, env_steps: int) -> None:
        """Set the level for a run of so many environment steps."""

    def parts(self) -> list[Part]:
        """What it is made of, as it is now."""

    def goal(self) -> str:
        """What brings the next phase; empty in the last one."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""


class StageCurriculum:
    """The next stage joins when `rate` of the last `episodes` at the newest one reached the flag. None ever leaves."""

    def __init__(self, stages: tuple[str, ...], *, rate: float, episodes: int) -> None:
        self.level, self.phases = 0.0, stages
        self._rate, self._episodes = rate, episodes
        self._recent: dict[str, deque[bool]] = {stage: deque(maxlen=episodes) for stage in stages}

    def book(self, stage: str, cleared: bool) -> None:
        if stage not in self._recent:  # a warp zone may have led elsewhere
            return
        self._recent[stage].append(cleared)
        newest = self._recent[self.phases[int(self.level)]]
        passed = len(newest) == self._episodes and sum(newest) >= self._rate * self._episodes
        if passed and self.level + 1 < len(self.phases):
            self.level += 1

    def advance(self, env_steps: int) -> None:
        """Only episodes count, each as it is booked: several of other processes may come at once."""

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
        """Of a run through the same stages, or through others of which some are the same."""
        for stage, recent in self._recent.items():
            recent.extend(state["recent"].get(stage, ()))
        while self.level + 1 < len(self.phases) and self.phases[int(self.level) + 1] in state["joined"]:
            self.level += 1


class RewardCurriculum:
    """A phase lasts `steps` environment steps; in its second half the next one is blended in."""

    def __init__(self, steps: int) -> None:
        self.level, self.phases = 0.0, tuple(name for name, _ in _SHAPING)
        self._steps = steps

    def book(self, stage: str, cleared: bool) -> None:
        """Only steps count."""

    def advance(self, env_steps: int) -> None:
        phase, rest = divmod(env_steps, self._steps)
        self.level = min(phase + max(0.0, 2 * rest / self._steps - 1), len(self.phases) - 1.0)

    def parts(self) -> list[Part]:
        return [Part(name=term, weight=weight) for term, weight in zip(TERMS, shaping(self.level), strict=True)]

    def goal(self) -> str:
        after = int(self.level) + 1
        return "" if after == len(self.phases) else f"{self.phases[after]} from step {after * self._steps:,} on"

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """The run's environment steps say it all."""


def make_curriculum(config: RunConfig) -> Curriculum | None:
    """What a run's options ask for."""
    if not config.curriculum:
        return None
    if config.game == "mario":
        return StageCurriculum(
            stages_of(config.stage), rate=config.curriculum_rate, episodes=config.curriculum_episodes
        )
    return RewardCurriculum(config.curriculum_steps)


def report(curriculum: Curriculum) -> messages.Curriculum:
    """What the panel shows."""
    phase = int(curriculum.level)
    return messages.Curriculum(
        phase=phase + 1,
        phases=len(curriculum.phases),
        name=curriculum.phases[phase],
        goal=curriculum.goal(),
        parts=curriculum.parts(),
    )
