"""Mario's curriculum: stages that join one after the other; see `engine.envs.lanes`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from engine.protocol.messages import Part


def stage_slots(level: float) -> list[int]:
    """Indices of stages, from which each episode draws one: half are the newest stage, every other one occurs once."""
    newest = int(level)
    return [*range(newest), *[newest] * max(1, newest)]


class StageCurriculum:
    """Adds the next stage when a share of `rate` of the last `episodes` episodes at the newest one reached the flag.

    Stages are never removed.
    """

    def __init__(self, stages: tuple[str, ...], *, rate: float, episodes: int) -> None:
        self.level, self.phases = 0.0, stages
        self._rate, self._episodes = rate, episodes
        self._recent: dict[str, deque[bool]] = {stage: deque(maxlen=episodes) for stage in stages}

    def record_episode(self, task: str, success: bool) -> None:
        if task not in self._recent:  # reached through a warp zone
            return
        self._recent[task].append(success)
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
