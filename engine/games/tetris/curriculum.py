"""The curriculum of Tetris: a reward that is shaped more and more; see `engine.envs.lanes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def shaping(level: float) -> tuple[float, ...]:
    """Weights of `TERMS` at a level; they are subtracted from the reward."""
    phase = min(int(level), len(_SHAPING) - 1)
    now, after = _SHAPING[phase][1], _SHAPING[min(phase + 1, len(_SHAPING) - 1)][1]
    share = level - phase
    return tuple((1 - share) * ours + share * next_ours for ours, next_ours in zip(now, after, strict=True))


class RewardCurriculum:
    """Shapes the reward. A phase lasts `steps` environment steps; its second half blends in the next phase. The first
    one begins when the run has played `begin` environment steps."""

    def __init__(self, steps: int, begin: int = 0) -> None:
        self.level, self.phases = 0.0, tuple(name for name, _ in _SHAPING)
        self._steps, self._begin = steps, begin

    def record_episode(self, task: str, success: bool) -> None:
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
        self._begin = int(state["begin"])
