"""Totals of a run, its lanes and its tasks: the progress report, and the tables of actors and tasks."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from engine.envs.episode import EpisodeRecord
from engine.protocol.messages import Lane, Progress, State, TaskRecord
from engine.protocol.outcome import Outcome
from engine.runs.checkpoint_state import MEAN_OVER, RECENT, SHOWN_RETURNS, KeptCounters, KeptLane, KeptTask

if TYPE_CHECKING:
    from engine.agents import Losses


_RATE_WINDOW_S = 10.0


class Counters:
    """Environment steps, frames, updates and episodes over all sessions of a run, and their current rates.

    Pauses do not count as trained time (`stop_clock`, `start_clock`).
    """

    def __init__(self, kept: KeptCounters | None = None) -> None:
        kept = kept or KeptCounters()
        self.env_steps, self.frames, self.episodes = kept.env_steps, kept.frames, kept.episodes
        self.returns: deque[float] = deque(kept.returns, maxlen=MEAN_OVER)
        self.best_return = kept.best_return
        self._wall_before = kept.wall_s
        self._since: float | None = time.monotonic()
        self._marks: deque[tuple[float, int, int, int]] = deque()  # (wall_s, env_steps, frames, updates)
        self._losses: list[Losses] = []

    def state(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {
            "env_steps": self.env_steps,
            "frames": self.frames,
            "episodes": self.episodes,
            "returns": list(self.returns),
            "best_return": self.best_return,
            "wall_s": self.wall_s,
        }

    @property
    def wall_s(self) -> float:
        """Seconds of training, without pauses."""
        return self._wall_before + (time.monotonic() - self._since if self._since is not None else 0.0)

    @property
    def mean_return(self) -> float:
        """Over the last 100 episodes; NaN before the first."""
        return finite_mean(self.returns)

    def forget_returns(self) -> None:
        """Start mean and best return anew, such as for another task."""
        self.returns.clear()
        self.best_return = float("-inf")

    def stop_clock(self) -> None:
        self._wall_before = self.wall_s
        self._since = None

    def start_clock(self) -> None:
        self._since = time.monotonic()
        self._marks.clear()

    def record_episode(self, episode_return: float) -> None:
        self.episodes += 1
        self.returns.append(episode_return)
        self.best_return = max(self.best_return, episode_return)

    def record_losses(self, losses: list[Losses]) -> None:
        self._losses += losses

    def report(
        self, *, state: State, steps: int, updates: int, burnin_left: int, episodes: int | None = None, **numbers: Any
    ) -> Progress:
        """A progress report; losses are means since the last report. `steps`, `episodes`: the limits of the run;
        `numbers`: the fields of the report that are not known here."""
        wall = self.wall_s
        if not self._marks or wall > self._marks[-1][0]:  # a pause may last for days
            self._marks.append((wall, self.env_steps, self.frames, updates))
        while len(self._marks) > 2 and wall - self._marks[0][0] > _RATE_WINDOW_S:
            self._marks.popleft()
        then, steps_then, frames_then, updates_then = self._marks[0]
        span = max(wall - then, 1e-9)
        steps_per_s = (self.env_steps - steps_then) / span
        left_s = _seconds_left(steps - self.env_steps, steps_per_s)
        if episodes is not None:  # few end within the window of the other rates
            by_episodes_s = _seconds_left(episodes - self.episodes, self.episodes / wall if wall else 0.0)
            left_s = None if by_episodes_s is None or left_s is None else min(left_s, by_episodes_s)
        if burnin_left > 0:  # it is much faster than learning
            left_s = None
        losses, self._losses = self._losses, []
        return Progress(
            at=time.time(),
            state=state,
            env_steps=self.env_steps,
            frames=self.frames,
            updates=updates,
            episodes=self.episodes,
            wall_s=wall,
            remaining_s=left_s,
            env_steps_per_s=steps_per_s,
            frames_per_s=(self.frames - frames_then) / span,
            updates_per_s=(updates - updates_then) / span,
            mean_return=self.mean_return,
            best_return=self.best_return,
            loss=finite_mean([each.loss for each in losses]),
            q_mean=finite_mean([each.q_mean for each in losses]),
            burnin_left=burnin_left,
            **numbers,
        )


def _seconds_left(count: int, per_s: float) -> float | None:
    """None if unknown."""
    return max(0, count) / per_s if per_s > 0 else None


def finite_mean(values: Collection[float]) -> float:
    """Mean of the finite values; infinite if there are only others, NaN if there are none (see `Progress`)."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.inf if values else math.nan


class LaneStats:
    """Statistics of `members` processes with `lanes` lanes each. `outcome`: of the game."""

    def __init__(self, outcome: Outcome, members: int, lanes: int) -> None:
        self._outcome, self._lanes = outcome, lanes
        self._records = [KeptLane(0, float("-inf"), 0, []) for _ in range(members * lanes)]
        self._tasks: dict[str, KeptTask] = {}

    def record_episode(self, member: int, episode: EpisodeRecord, env_steps: int) -> None:
        """Record an episode that ended when the run was at `env_steps`."""
        record = self._records[member * self._lanes + episode.lane]
        if len(episode.results) != (declared := len(self._outcome.results)):
            raise ValueError(
                f"an episode must have {declared} results, as its game declares, got {len(episode.results)}"
            )
        record.episodes += 1
        record.returns = [*record.returns[1 - SHOWN_RETURNS :], episode.episode_return]
        record.best = max(record.best, episode.episode_return)
        record.clears += episode.success
        for result, value in zip(self._outcome.results, episode.results, strict=True):
            if not math.isnan(value):
                record.best_results[result.name] = max(record.best_results.get(result.name, value), value)
        cleared = episode.cleared_tasks(self._outcome)
        ended_in = [episode.task_name(self._outcome)] if episode.task >= 0 else []
        for name in {*cleared, *ended_in}:
            task, has_cleared = self._tasks.setdefault(name, KeptTask(0, 0, None, [])), name in cleared
            task.episodes += 1
            task.clears += has_cleared
            task.recent = [*task.recent[1 - RECENT :], has_cleared]
            if has_cleared and task.first_clear is None:
                task.first_clear = env_steps

    def lanes(self, epsilons: NDArray[np.float64]) -> list[Lane]:
        """Every lane with its epsilon [members x lanes]."""
        return [
            Lane(
                actor=place // self._lanes,
                lane=place % self._lanes,
                epsilon=float(epsilons[place]),
                episodes=record.episodes,
                last_return=record.returns[-1] if record.returns else math.nan,
                mean_return=finite_mean(record.returns),
                best_return=record.best if record.returns else math.nan,
                best_results=tuple(record.best_results.get(result.name, 0.0) for result in self._outcome.results),
                clears=record.clears,
                returns=record.returns,
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
        return [asdict(record) for record in self._records]

    def tasks_state(self) -> dict[str, dict[str, Any]]:
        """State of the tasks, for a checkpoint."""
        return {name: asdict(task) for name, task in self._tasks.items()}

    def load_state(self, state: Sequence[KeptLane], tasks: Mapping[str, KeptTask]) -> None:
        """Restore a `state` and a `tasks_state`. If the number of lanes differs, the lanes start empty."""
        self._tasks |= tasks
        if len(state) == len(self._records):
            self._records = list(state)
