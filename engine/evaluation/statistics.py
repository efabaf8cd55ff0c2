"""Means, rates and their 95 % intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from engine.envs.episode import EpisodeRecord, mean_results
from engine.protocol.outcome import Outcome
from engine.protocol.results import TaskScore
from engine.runtime.students_t import half_width


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % score interval (low, high) of a rate (Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953)."""
    z, rate = 1.959964, successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2))
    low = centre - half if successes > 0 else 0.0  # exact at both ends, where rounding errors would remain
    high = centre + half if successes < trials else 1.0
    return low, high


def score_of(task: str, outcome: Outcome, played: Sequence[EpisodeRecord]) -> TaskScore:
    """The score of the episodes of one task of a game with this outcome."""
    return TaskScore(
        task=task,
        episodes=len(played),
        clears=sum(episode.success for episode in played),
        mean_return=statistics.fmean(episode.episode_return for episode in played),
        results=outcome.named(mean_results(played)),
    )


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, low and high end of its 95 % interval (Student's t). The ends are NaN for a single value."""
    mean, half = statistics.fmean(values), half_width(values)
    return mean, mean - half, mean + half
