"""Statistics of every lane and every stage, for the tables of actors and stages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from engine.envs.episode import EpisodeRecord
from engine.protocol.messages import Lane, StageRecord
from engine.runs.checkpoint_state import RECENT, SHOWN_RETURNS, KeptLane, KeptStage


@dataclass
class _Record:
    episodes: int = 0
    best: float = float("-inf")
    best_x: int = 0
    best_score: int = 0
    clears: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=SHOWN_RETURNS))


@dataclass
class _Stage:
    episodes: int = 0
    clears: int = 0
    first_clear: int | None = None  # environment steps of the run
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))

    def record(self, cleared: bool, env_steps: int) -> None:
        self.episodes += 1
        self.clears += cleared
        self.recent.append(cleared)
        if cleared and self.first_clear is None:
            self.first_clear = env_steps


class LaneStats:
    """Statistics of `members` processes with `lanes` lanes each."""

    def __init__(self, members: int, lanes: int) -> None:
        self._lanes = lanes
        self._records = [_Record() for _ in range(members * lanes)]
        self._stages: dict[str, _Stage] = {}

    def record_episode(self, member: int, episode: EpisodeRecord, env_steps: int) -> None:
        """Record an episode that ended when the run was at `env_steps`."""
        record = self._records[member * self._lanes + episode.lane]
        record.episodes += 1
        record.returns.append(episode.episode_return)
        record.best = max(record.best, episode.episode_return)
        record.best_x = max(record.best_x, episode.x_pos)
        record.best_score = max(record.best_score, episode.score)
        record.clears += episode.flag
        cleared = episode.cleared_stages
        ended_in = [episode.stage_name] if episode.stage_name else []
        for stage in {*cleared, *ended_in}:
            self._stages.setdefault(stage, _Stage()).record(stage in cleared, env_steps)

    def lanes(self, epsilons: NDArray[np.float64]) -> list[Lane]:
        """Every lane with its epsilon [members x lanes]."""
        return [
            Lane(
                actor=place // self._lanes,
                lane=place % self._lanes,
                epsilon=float(epsilons[place]),
                episodes=record.episodes,
                last_return=record.returns[-1] if record.returns else math.nan,
                mean_return=sum(record.returns) / len(record.returns) if record.returns else math.nan,
                best_return=record.best if record.returns else math.nan,
                best_x=record.best_x,
                best_score=record.best_score,
                clears=record.clears,
                returns=list(record.returns),
            )
            for place, record in enumerate(self._records)
        ]

    def stages(self) -> list[StageRecord]:
        """Every stage that was played, in the game's order."""
        return [
            StageRecord(
                stage=name,
                episodes=stage.episodes,
                clears=stage.clears,
                recent=len(stage.recent),
                recent_clears=sum(stage.recent),
                first_clear=stage.first_clear,
            )
            for name, stage in sorted(self._stages.items())
        ]

    def state(self) -> list[dict[str, Any]]:
        """State of the lanes, for a checkpoint."""
        return [{**vars(record), "returns": list(record.returns)} for record in self._records]

    def stages_state(self) -> dict[str, dict[str, Any]]:
        """State of the stages, for a checkpoint."""
        return {name: {**vars(stage), "recent": list(stage.recent)} for name, stage in self._stages.items()}

    def load_state(self, state: Sequence[KeptLane], stages: Mapping[str, KeptStage]) -> None:
        """Restore a `state` and a `stages_state`. If the number of lanes differs, the lanes start empty."""
        for name, held in stages.items():
            self._stages[name] = _Stage(**{**asdict(held), "recent": deque(held.recent, maxlen=RECENT)})
        if len(state) == len(self._records):
            for record, kept in zip(self._records, state, strict=True):
                vars(record).update(asdict(kept), returns=deque(kept.returns, maxlen=SHOWN_RETURNS))
