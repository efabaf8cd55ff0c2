"""What Optuna decides in a sweep: the next setting (TPE, Bergstra et al. 2011), and which settings are stopped early
(median pruner).

A setting is a trial, and all its runs are stopped together: a mean over those seeds alone that did well would be too
high. Its value at a step is the mean of the evaluations that were due there, over those of its seeds that have got
there. Only the recordings and records of the runs are remembered: Optuna's study is made anew from them each time.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from engine.errors import UserError
from engine.protocol.messages import Evaluation
from engine.runs.run import Run
from engine.runs.sweep import Search
from engine.runtime.text import install_command
from mario_tui.data.feed import recorded_state
from mario_tui.data.run_status import RunStatus
from mario_tui.extras.sweeps.folder import STARTUP_SETTINGS
from mario_tui.extras.sweeps.results import MemberResult, SettingResult, setting_text
from mario_tui.extras.sweeps.variations import Space, spaces

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

_TRIES = 20
"""Choices of a setting that is there already, after which one is drawn at random."""
_DRAWS = 1000
"""Random draws that gave only known settings, after which there are taken to be no others."""


class Evaluations:
    """Mean returns of the evaluations of runs, by the step at which they were due; a recording is read when it has
    changed."""

    def __init__(self) -> None:
        self._every = dict[str, int]()
        self._known = dict[str, tuple[int, Mapping[int, float]]]()

    def have_news(self, runs: Iterable[Run]) -> bool:
        """Return whether there is a recording that was not read yet as it is now."""
        return any(_written_at(run) != self._known.get(run.name, (0, {}))[0] for run in runs)

    def of(self, run: Run) -> Mapping[int, float]:
        """Return those of a run. Evaluations that somebody has asked for in between do not count."""
        written_at = _written_at(run)
        if written_at != self._known.get(run.name, (0, {}))[0]:
            found, every = dict[int, float](), self._eval_every(run)
            for event in recorded_state(run).events:
                if not (isinstance(event, Evaluation) and every and math.isfinite(event.mean_return)):
                    continue
                if due := event.env_steps // every * every:
                    found.setdefault(due, event.mean_return)
            self._known[run.name] = (written_at, found)
        return self._known.get(run.name, (0, {}))[1]

    def _eval_every(self, run: Run) -> int:
        if run.name not in self._every:
            try:
                self._every[run.name] = run.config().eval_every
            except UserError:
                return 0
        return self._every[run.name]

    def means(self, result: SettingResult) -> dict[int, float]:
        """Of a setting, over its seeds, by step in order."""
        found: dict[int, list[float]] = {}
        for run in (member.run for member in result.members if member.record is not None):
            for step, value in self.of(run).items():
                found.setdefault(step, []).append(value)
        return {step: statistics.fmean(values) for step, values in sorted(found.items())}


class Pruner:
    """Judges each setting that trains at each step, again once there are more to compare it with.

    No setting is pruned before its step `after`, nor before `STARTUP_SETTINGS` others have finished a run.
    """

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations
        self._judged = dict[str, tuple[int, int]]()

    def worse(self, results: Sequence[SettingResult], after: int) -> list[tuple[SettingResult, int]]:
        """The settings to be pruned, and the step at which each is worse than the median of the others."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruner = optuna.pruners.MedianPruner(
            n_startup_trials=STARTUP_SETTINGS, n_warmup_steps=after, n_min_trials=STARTUP_SETTINGS
        )
        complete, found = [(each, self._trial(each)) for each in results if each.done and not each.is_pruned], []
        for result in results:
            name, reached = result.members[0].run.name, self._reached(result.members)
            others = [trial for each, trial in complete if each is not result]
            if result.is_pruned or not reached or self._judged.get(name) == (reached, len(others)):
                continue
            self._judged[name] = reached, len(others)
            study = optuna.create_study(direction="maximize", pruner=pruner)
            study.add_trials(others)
            trial = study.ask()
            for step, value in self._evaluations.means(result).items():
                if step <= reached:
                    trial.report(value, step)
            if trial.should_prune():
                found.append((result, reached))
        return found

    def _trial(self, result: SettingResult) -> FrozenTrial:
        import optuna

        values = self._evaluations.means(result)
        return optuna.create_trial(value=max(values.values(), default=0.0), intermediate_values=values)

    def _reached(self, members: Sequence[MemberResult]) -> int:
        """The last step for which all runs of a setting that train or are finished have a value; 0 if there is none, or
        nothing to stop."""
        training = [each for each in members if each.is_active]
        finished = [each for each in members if each.state == RunStatus.FINISHED] if training else []
        return min((max(self._evaluations.of(each.run), default=0) for each in training + finished), default=0)


def _written_at(run: Run) -> int:
    try:
        return run.history_path.stat().st_mtime_ns
    except OSError:
        return 0


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
