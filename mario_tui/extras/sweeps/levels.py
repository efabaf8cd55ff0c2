"""What the runs of a sweep have reached by setting, and by the value of each option that varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.config.fields import flag
from mario_tui.data.seed_statistics import Statistic
from mario_tui.extras.sweeps.results import Estimate, SettingResult, Shown, estimate, most_steps, value_text

_MOST_LEVELS = 6
"""Numbers of a random sample are put into ranges if there are more different ones."""
_RANGES = 5


@dataclass(frozen=True)
class ListedSetting:
    """A setting of a sweep, the `number`-th from 0, at the time of reading."""

    number: int
    result: SettingResult
    final: Estimate | None
    best: Estimate | None
    last: Estimate | None
    is_shorter: bool
    """Whether not all of its runs have trained as long as the longest of the sweep."""
    better: Estimate | None = None
    """The probability that one of its runs is better than one of another setting."""

    @property
    def key(self) -> str:
        return str(self.number)

    def estimated(self, metric: Shown) -> Estimate | None:
        """Return what its runs have reached, over all of them."""
        return {"result": self.final, "best": self.best, "last": self.last}[metric]


@dataclass(frozen=True)
class Level:
    """The runs with one value of an option, or with those in a range."""

    label: str
    runs: int
    """Those for which the metric is known."""
    reached: Estimate | None
    """By all these runs."""
    is_shorter: bool
    """Whether one of these settings is."""
    settings: tuple[tuple[int, float], ...]
    """Number of each setting, and the same of its own runs."""


@dataclass(frozen=True)
class OptionLevels:
    """An option, and its values in their order."""

    name: str
    levels: tuple[Level, ...]


def listed_settings(results: Sequence[SettingResult], statistic: Statistic) -> list[ListedSetting]:
    """The settings in the order in which they were given."""
    most = most_steps(results)
    return [
        ListedSetting(
            number, result, estimate((result.final,), statistic), estimate((result.best,), statistic),
            estimate((result.last,), statistic), result.trained_steps < most,
        )
        for number, result in enumerate(results)
    ]  # fmt: skip


def names_of(settings: Sequence[ListedSetting]) -> list[str]:
    """The options that vary."""
    return list(dict.fromkeys(name for each in settings for name in each.result.settings))


def metric_of(settings: Sequence[ListedSetting]) -> Shown:
    """Return what the values of options are compared by: results once all runs have one, the last episodes of training
    only where nothing was evaluated."""
    if all(each.result.has_results for each in settings):
        return "result"
    return "best" if any(each.best for each in settings) else "last"


def levels_of(settings: Sequence[ListedSetting], statistic: Statistic) -> list[OptionLevels]:
    """All options that vary."""
    metric = metric_of(settings)
    return [OptionLevels(flag(name)[2:], _levels(settings, name, metric, statistic)) for name in names_of(settings)]


def place_of(value: Any) -> tuple[int, float, str]:
    """Sort key of an option's values: numbers, then texts, then none."""
    if value is None:
        return 2, 0.0, ""
    return (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))


def _levels(settings: Sequence[ListedSetting], name: str, metric: Shown, statistic: Statistic) -> tuple[Level, ...]:
    having = [each for each in settings if name in each.result.settings]
    values = sorted({each.result.settings[name] for each in having}, key=place_of)
    count = len(values)
    if count > _MOST_LEVELS and all(isinstance(value, int | float) for value in values):
        groups = [values[count * at // _RANGES : count * (at + 1) // _RANGES] for at in range(_RANGES)]
    else:
        groups = [[value] for value in values]
    levels = []
    for group in groups:
        label = " to ".join(dict.fromkeys((value_text(group[0]), value_text(group[-1]))))
        found = [each for each in having if each.result.settings[name] in group]
        samples = tuple(each.result.reached(metric) for each in found)
        estimates = [(each.number, each.estimated(metric)) for each in found]
        own = tuple((number, each.value) for number, each in estimates if each is not None)
        is_shorter = any(each.is_shorter for each in found if each.estimated(metric))
        levels.append(Level(label, sum(map(len, samples)), estimate(samples, statistic), is_shorter, own))
    return tuple(levels)
