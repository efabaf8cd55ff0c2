"""The record of an episode that ended in a lane. Everything that counts, reports or shows episodes starts from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from engine.envs.lanes import VectorStep
from engine.protocol.messages import Episode
from engine.protocol.outcome import MAX_RESULTS, Outcome

LARGEST_RETURN = 1e15
"""Return and result that a checkpoint can hold (`engine.runs.run.Score`)."""


@dataclass(frozen=True)
class EpisodeRecord:
    """All fields are numbers, so that a record fits into shared memory."""

    lane: int
    """Index within the process that played it."""
    episode_return: float
    """As people count it; in Mario the sum of gym-super-mario-bros 7.4 rewards."""
    length: int
    """Environment steps."""
    success: bool
    """Whether it ended by reaching the game's goal."""
    task: int
    """Index in `Outcome.tasks` of the task in which it ended; -1 without any."""
    cleared: int
    """Tasks in which it reached the goal: bit i stands for the i-th of `Outcome.tasks`."""
    results: tuple[float, ...]
    """In the order of `Outcome.results`."""

    NUMBERS: ClassVar[int] = 7 + MAX_RESULTS
    """Length of `numbers`."""

    def numbers(self) -> list[float]:
        """The record as numbers: the fields, and the results after their count."""
        unused = [0.0] * (MAX_RESULTS - len(self.results))
        fields = (self.lane, self.episode_return, self.length, self.success, self.task, self.cleared)
        return [*map(float, fields), float(len(self.results)), *self.results, *unused]

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> Self:
        """The record whose `numbers` these are."""
        lane, episode_return, length, success, task, cleared, count, *results = numbers
        return cls(
            int(lane), episode_return, int(length), bool(success), int(task), int(cleared), tuple(results[: int(count)])
        )

    def task_name(self, outcome: Outcome) -> str:
        """The task in which it ended; empty without any."""
        return "" if self.task < 0 else outcome.tasks[self.task]

    def cleared_tasks(self, outcome: Outcome) -> list[str]:
        """Tasks in which it reached the goal, in the game's order."""
        return [name for index, name in enumerate(outcome.tasks) if self.cleared >> index & 1]

    def message(self, outcome: Outcome, *, actor: int = 0, env_steps: int, episode: int, epsilon: float) -> Episode:
        """The event for clients.

        Args:
            outcome: of the game.
            actor: process that played it.
            env_steps: of the run, or of the evaluation, when it ended.
            episode: its number, from 1.
            epsilon: exploration rate of its lane when it ended.
        """
        return Episode(
            actor=actor,
            lane=self.lane,
            env_steps=env_steps,
            episode=episode,
            episode_return=self.episode_return,
            length=self.length,
            success=self.success,
            epsilon=epsilon,
            results=self.results,
            task=self.task_name(outcome),
            cleared=self.cleared_tasks(outcome),
        )


def add_cleared(cleared: NDArray[np.int64], step: VectorStep) -> None:
    """Add the tasks in which a step reached the goal to those of the current episodes, [lanes], one bit each."""
    if step.success.any():
        cleared |= np.where(step.success & (step.tasks >= 0), 1 << step.tasks.clip(0), 0)


def ended_episodes(step: VectorStep, cleared: NDArray[np.int64] | None = None) -> list[EpisodeRecord]:
    """The episodes that ended in a step, by lane. Those that began at stored states are left out, because their returns
    and results can't be compared with others.

    Args:
        cleared: [lanes], tasks in which the current episode reached the goal, one bit each; None if nobody asks.

    Raises `ValueError` for numbers with which no checkpoint could be loaded, or types that would be taken for others.
    """
    for name in ("terminated", "truncated", "success", "from_start", *(["failed"] if step.failed is not None else [])):
        if getattr(getattr(step, name), "dtype", None) != np.bool_:  # an array of numbers would be one of indices
            raise ValueError(f"{name} of a step must be an array of bool")
    if getattr(step.results, "ndim", None) != 2:
        raise ValueError("results of a step must be an array [lanes, results]")
    if not step.game_frames >= 0:
        raise ValueError(f"game_frames of a step must be at least 0, got {step.game_frames}")
    episodes = [
        EpisodeRecord(
            lane=lane,
            episode_return=float(step.returns[lane]),
            length=int(step.lengths[lane]),
            success=bool(step.success[lane]),
            task=int(step.tasks[lane]),
            cleared=0 if cleared is None else int(cleared[lane]),
            results=tuple(step.results[lane].tolist()),
        )
        for lane in np.flatnonzero((step.terminated | step.truncated) & step.from_start).tolist()
    ]
    for episode in episodes:
        if len(episode.results) > MAX_RESULTS:
            raise ValueError(f"an episode must have at most {MAX_RESULTS} results, got {len(episode.results)}")
        for name, number in (("return", episode.episode_return), *(("result", each) for each in episode.results)):
            if not abs(number) <= LARGEST_RETURN:
                raise ValueError(f"a {name} of an episode must be between -1e15 and 1e15, got {number}")
    return episodes


def mean_results(played: Sequence[EpisodeRecord]) -> tuple[float, ...]:
    """The mean of each result over episodes, in the order that the game declares."""
    return tuple(np.mean([episode.results for episode in played], axis=0).tolist())
