"""What the replay holds, for the panel: how its priorities are distributed, and how old the draws are."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.buffers import Replay, Survey
from engine.buffers.sampling import EPSILON
from engine.protocol.messages import Distribution, ReplayContents

BINS = 24
_EVERY_S = 5.0
_ZERO = 2 * EPSILON  # priorities up to here belong to TD errors of about zero
_OLDEST = 0.9  # of the age of the oldest entry


class ReplayStats:
    """Call it once per report, in the coordinator. It surveys the replay every `_EVERY_S` seconds, or `at_once`."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._contents: ReplayContents | None = None
        self._next_at = float("-inf")

    def __call__(self, at_once: bool) -> ReplayContents | None:
        now = time.monotonic()
        if at_once or self._contents is None or now >= self._next_at:
            self._next_at = now + _EVERY_S
            self._contents = summarise(self._replay.survey())
        return self._contents


def summarise(survey: Survey) -> ReplayContents | None:
    """The distributions of a survey; None if nothing can be drawn.

    Ages are weighted by the probability of a draw: what learning gets to see, without the noise of a few batches.
    """
    if not survey.ages.size:
        return None
    oldest = max(1.0, float(survey.ages.max()))
    order = np.argsort(survey.ages)
    ages, passed = survey.ages[order], np.cumsum(survey.chances[order] / survey.chances.sum())
    drawn = Distribution(
        low=0.0,
        high=oldest,
        median=float(ages[min(int(np.searchsorted(passed, 0.5)), ages.size - 1)]),
        shares=_shares(survey.ages / oldest, survey.chances),
    )
    oldest_share = float(survey.chances[survey.ages >= _OLDEST * oldest].sum() / survey.chances.sum())
    if survey.priorities is None:
        return ReplayContents(ages=drawn, oldest_share=oldest_share)
    is_zero = survey.priorities <= _ZERO
    priorities = survey.priorities if is_zero.all() else survey.priorities[~is_zero]
    powers = np.log10(priorities)
    low, high = powers.min(), powers.max()
    distribution = Distribution(
        low=float(priorities.min()),
        high=float(priorities.max()),
        median=float(np.median(priorities)),
        shares=_shares((powers - low) / ((high - low) or 1.0), np.ones_like(powers)),
    )
    return ReplayContents(
        ages=drawn, oldest_share=oldest_share, priorities=distribution, zero_share=float(is_zero.mean())
    )


def _shares(places: NDArray[Any], weights: NDArray[np.float64]) -> list[float]:
    """The share of the weights in each of `BINS` equal bins; places [n] are from 0 to 1."""
    bins = np.minimum((places * BINS).astype(np.int64), BINS - 1)
    sums = np.bincount(bins, weights, BINS)
    shares: list[float] = np.minimum(sums / sums.sum(), 1.0).tolist()
    return shares
