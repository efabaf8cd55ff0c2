"""Statistics over the seeds of settings, with 95 % intervals by bootstrap over seeds (Agarwal et al. 2021,
arXiv:2108.13264): percentiles of the statistic of resampled seeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RESAMPLES = 2000
_REMEMBERED = 4096
"""A live table asks for the estimates of the same values again and again."""
Statistic = Literal["mean", "iqm"]
"""`iqm`: the interquartile mean."""
Sample = tuple[float, ...]
"""What the seeds of one setting have reached, in increasing order."""


class Estimate(NamedTuple):
    """A statistic with its 95 % interval; both ends are None if a setting has a single seed."""

    value: float
    low: float | None = None
    high: float | None = None


@lru_cache(_REMEMBERED)
def estimate(samples: tuple[Sample, ...], statistic: Statistic = "mean") -> Estimate | None:
    """A statistic of all runs of one or several settings; None without any run. Seeds are resampled within their
    setting, so the interval tells how much depends on the seeds, not how far the settings are apart."""
    import numpy as np  # here, so that commands without sweeps start without it

    samples = tuple(filter(None, samples))
    if not samples:
        return None
    value = float(statistic_of(np.concatenate(samples), statistic))
    if min(map(len, samples)) < 2:
        return Estimate(value)
    return Estimate(value, *_interval(statistic_of(np.hstack(_resampled(samples)), statistic)))


@lru_cache(_REMEMBERED)
def improvement(ours: Sample, theirs: Sample) -> Estimate | None:
    """`improves` with its interval; None if either sample is empty."""
    import numpy as np

    value = improves(ours, theirs)
    if value is None or min(len(ours), len(theirs)) < 2:
        return value if value is None else Estimate(value)
    better = np.sign(np.subtract.outer(ours, theirs)) / 2 + 0.5  # [our runs, their runs]
    our, their = map(_counts, _chosen((ours, theirs)))
    return Estimate(value, *_interval(((our @ better) * their).sum(axis=1) / better.size))


def improves(ours: Sample, theirs: Sample) -> float | None:
    """The probability that a run of ours is better than one of theirs; ties count half (Agarwal et al. 2021). None if
    either sample is empty."""
    import numpy as np

    if not ours or not theirs:
        return None
    ordered = np.sort(theirs)
    halves = sum(int(np.searchsorted(ordered, ours, side).sum()) for side in ("left", "right"))
    return halves / (2 * len(ours) * len(theirs))


def statistic_of(values: NDArray[np.float64], statistic: Statistic) -> NDArray[np.float64]:
    """The statistic over the last axis. Of the interquartile mean, the middle half counts, and the values at its
    borders in part."""
    if statistic == "mean":
        return values.mean(axis=-1)
    import numpy as np

    count = values.shape[-1]
    places, cut = np.arange(count), count / 4
    weights = np.clip(np.minimum(places + 1, count - cut) - np.maximum(places, cut), 0, None)
    return np.sort(values, axis=-1) @ (weights / weights.sum())


def _resampled(samples: Sequence[Sample]) -> list[NDArray[np.float64]]:
    """Of each sample: resamples, as `[resamples, runs]`."""
    import numpy as np

    return [np.array(each)[chosen] for each, chosen in zip(samples, _chosen(samples), strict=True)]


def _chosen(samples: Sequence[Sample]) -> list[NDArray[np.int64]]:
    """Which runs of each sample are in its resamples, the same every time, as `[resamples, runs]`."""
    import numpy as np

    random = np.random.default_rng(0)
    return [random.integers(len(each), size=(_RESAMPLES, len(each))) for each in samples]


def _counts(chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """How often each run is in each resample, as `[resamples, runs]`."""
    import numpy as np

    resamples, runs = chosen.shape
    places = chosen + runs * np.arange(resamples)[:, None]
    return np.bincount(places.ravel(), minlength=chosen.size).reshape(chosen.shape).astype(float)


def _interval(found: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % percentile interval."""
    import numpy as np

    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)
