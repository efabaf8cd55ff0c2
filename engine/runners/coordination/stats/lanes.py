"""Statistics of every lane and every task, for the tables of actors and tasks."""

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
from engine.protocol.messages import Lane, TaskRecord
from engine.protocol.outcome import Outcome
from engine.runs.checkpoint_state import RECENT, SHOWN_RETURNS, KeptLane, KeptTask


@dataclass
class _Record:
    episodes: int = 0
    best: float = float("-inf")
    clears: int = 0
    best_results: dict[str, float] = field(default_factory=dict)
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=SHOWN_RETURNS))


@dataclass
class _Task:
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
    """Statistics of `members` processes with `lanes` lanes each. `outcome`: of the game."""

    def __init__(self, outcome: Outcome, members: int, lanes: int) -> None:
        self._outcome, self._lanes = outcome, lanes
        self._records = [_Record() for _ in range(members * lanes)]
        self._tasks: dict[str, _Task] = {}

    def record_episode(self, member: int, episode: EpisodeRecord, env_steps: int) -> None:
        """Record an episode that ended when the run was at `env_steps`."""
        record = self._records[member * self._lanes + episode.lane]
        if len(episode.results) != (declared := len(self._outcome.results)):
            raise ValueError(
                f"an episode must have {declared} results, as its game declares, got {len(episode.results)}"
            )
        record.episodes += 1
        record.returns.append(episode.episode_return)
        record.best = max(record.best, episode.episode_return)
        record.clears += episode.success
        for result, value in zip(self._outcome.results, episode.results, strict=True):
            record.best_results[result.name] = max(record.best_results.get(result.name, value), value)
        cleared = episode.cleared_tasks(self._outcome)
        ended_in = [episode.task_name(self._outcome)] if episode.task >= 0 else []
        for task in {*cleared, *ended_in}:
            self._tasks.setdefault(task, _Task()).record(task in cleared, env_steps)

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
                best_results=tuple(record.best_results.get(result.name, 0.0) for result in self._outcome.results),
                clears=record.clears,
                returns=list(record.returns),
            )
            for place, record in enumerate(self._records)
        ]

    def tasks(self) -> list[TaskRecord]:
        """Every task that was played, in the game's order."""
        return [
            TaskRecord(
                task=name,
                episodes=task.episodes,
                clears=task.clears,
                recent=len(task.recent),
                recent_clears=sum(task.recent),
                first_clear=task.first_clear,
            )
            for name in self._outcome.tasks
            if (task := self._tasks.get(name)) is not None
        ]

    def state(self) -> list[dict[str, Any]]:
        """State of the lanes, for a checkpoint."""
        return [{**vars(record), "returns": list(record.returns)} for record in self._records]

    def tasks_state(self) -> dict[str, dict[str, Any]]:
        """State of the tasks, for a checkpoint."""
        return {name: {**vars(task), "recent": list(task.recent)} for name, task in self._tasks.items()}

    def load_state(self, state: Sequence[KeptLane], tasks: Mapping[str, KeptTask]) -> None:
        """Restore a `state` and a `tasks_state`. If the number of lanes differs, the lanes start empty."""
        for name, held in tasks.items():
            self._tasks[name] = _Task(**{**asdict(held), "recent": deque(held.recent, maxlen=RECENT)})
        if len(state) == len(self._records):
            for record, kept in zip(self._records, state, strict=True):
                vars(record).update(kept.fields(), returns=deque(kept.returns, maxlen=SHOWN_RETURNS))
