"""The next setting of a sweep, chosen by Optuna's TPE sampler (Bergstra et al. 2011) from what earlier ones reached.

What the runs have reached is all that is remembered: Optuna's study is made anew from it each time.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from engine.errors import UserError
from engine.runs.sweep import Search
from engine.runtime.extras import install_command
from mario_tui.data.sweep_table import SettingResult, setting_text
from mario_tui.data.variations import Space, spaces
from mario_tui.sweep_pruning import Evaluations

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_TRIES = 20
"""Choices of a setting that is there already, after which one is drawn at random."""
_DRAWS = 1000
"""Random draws that gave only known settings, after which there are taken to be no others."""


def check_optuna(flag: str) -> None:
    """Raise `UserError` if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise UserError(f"{flag}: needs Optuna; install it with: {install_command('optuna')}")


def next_setting(search: Search, results: Sequence[SettingResult], evaluations: Evaluations) -> dict[str, Any] | None:
    """A setting that no result has; None if none is found. The first quarter of them is random."""
    import optuna
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {each.name: each for each in spaces(search.vary)}
    distributions = {name: _distribution(each) for name, each in space.items()}
    known = {setting_text(result.settings) for result in results}
    trials = []
    for result in results:
        reached = result.reached(search.metric)
        if reached and all(map(math.isfinite, reached)) and result.is_over:
            told = (
                {"state": TrialState.PRUNED, "intermediate_values": evaluations.means(result)}
                if result.is_pruned
                else {"value": statistics.fmean(reached)}
            )
            params = _within(result.settings, space)
            trials.append(optuna.create_trial(params=params, distributions=distributions, **told))
    for number in range(_TRIES):
        sampler = optuna.samplers.TPESampler(
            seed=search.seed + _TRIES * len(results) + number, n_startup_trials=max(2, search.count // 4)
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(trials)
        chosen = study.ask(distributions).params
        setting = {name: each if space[name].values else space[name].rounded(each) for name, each in chosen.items()}
        if setting_text(setting) not in known:
            return setting
    source = random.Random(search.seed + len(results))
    drawn = ({name: each.draw(source) for name, each in space.items()} for _ in range(_DRAWS))
    return next((setting for setting in drawn if setting_text(setting) not in known), None)


def _distribution(space: Space) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if space.values:
        return CategoricalDistribution(space.values)
    if space.is_int:
        return IntDistribution(int(space.low), int(space.high), log=space.is_log)
    return FloatDistribution(space.low, space.high, log=space.is_log)


def _within(settings: Mapping[str, Any], space: Mapping[str, Space]) -> dict[str, Any]:
    """The values of a setting, of which rounding may have put one past the end of its range."""
    return {
        name: settings[name] if each.values else min(each.high, max(each.low, settings[name]))
        for name, each in space.items()
    }
