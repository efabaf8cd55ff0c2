"""Which settings of a sweep are stopped early: those that Optuna's median pruner finds worse than the others.

A setting is a trial, and all its runs are stopped together: a mean over those seeds alone that did well would be too
high. Its value at a step is the mean of the evaluations that were due there, over those of its seeds that have got
there. What the recordings of the runs tell is all that is remembered: Optuna's study is made anew from it each time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.errors import UserError
from engine.protocol.messages import Evaluation
from engine.runs.run import Run
from engine.runs.sweep import STARTUP_SETTINGS
from mario_tui.data.recorded import recorded_state
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_table import MemberResult, SettingResult

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class Evaluations:
    """Mean returns of the evaluations of runs, by the step at which they were due; a recording is read when it has
    changed."""

    def __init__(self) -> None:
        self._every = dict[str, int]()
        self._known = dict[str, tuple[int, Mapping[int, float]]]()

    def have_news(self, runs: Iterable[Run]) -> bool:
        """Whether there is a recording that was not read yet as it is now."""
        return any(_written_at(run) != self._known.get(run.name, (0, {}))[0] for run in runs)

    def of(self, run: Run) -> Mapping[int, float]:
        """Those of a run. Evaluations that somebody has asked for in between do not count."""
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
        for member in result.members:
            for step, value in self.of(member.run).items():
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
