"""The states of a sweep's runs and what they have reached, by setting: means over seeds with intervals, as CSV and
Markdown.

The state of a run comes from its record, which tells how it trains and how it ended, also if the user has resumed or
stopped it by itself, and from the sweep's journal, which tells what the sweep has to do with it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

from engine.config.fields import flag
from engine.protocol.results import Interval
from engine.runs.lookup import how_to_name
from engine.runs.run import LOG_FILE, Run, RunRecord
from engine.runs.sweep import Sweep, SweepPlan, setting_key, why_not_own
from engine.runtime.formats import json_line
from engine.runtime.students_t import half_width_of_sum
from engine.runtime.text import printable
from mario_tui.data.run_status import RunStatus, failure
from mario_tui.data.seed_statistics import LEAST_SEEDS, Statistic, spread
from mario_tui.extras.sweeps.folder import (
    STARTUP_SETTINGS,
    TRIES,
    History,
    is_stopping,
    journal_of,
    problem_of,
    stored_record,
)

WAITING, PRUNED, DELETED = "waiting", "pruned", "deleted"
"""States of runs of a sweep, besides those of `RunStatus`."""
Shown = Literal["result", "best", "last"]
"""What runs are compared by: their results, best evaluations or last episodes."""
_NORMAL = 1.959964
_REMEMBERED = 4096
"""A live table asks for the estimates of the same values again and again."""
Sample = tuple[float, ...]
"""What the seeds of one setting have reached, in increasing order."""


class Estimate(NamedTuple):
    """A statistic with its 95 % interval; both ends are None if there are too few seeds for one."""

    value: float
    low: float | None = None
    high: float | None = None


@lru_cache(_REMEMBERED)
def estimate(samples: tuple[Sample, ...], statistic: Statistic = "mean") -> Estimate | None:
    """The statistic of one setting, or the mean of that of several, weighted by their runs; None without any run. The
    interval tells how much depends on the seeds, not how far the settings are apart."""
    import numpy as np  # here, so that commands without sweeps start without it

    samples = tuple(filter(None, samples))
    if not samples:
        return None
    runs = sum(map(len, samples))
    parts = [(len(each) / runs, spread(np.array(each), statistic)) for each in samples]
    value = sum(weight * float(found.value) for weight, found in parts)
    if min(map(len, samples)) < LEAST_SEEDS:
        return Estimate(value)
    half = half_width_of_sum([(weight**2 * float(found.variance), found.freedom) for weight, found in parts])
    return Estimate(value, value - half, value + half)


@lru_cache(_REMEMBERED)
def improvement(ours: Sample, theirs: Sample) -> Estimate | None:
    """The probability that a run of ours is better than one of theirs; ties count half (Agarwal et al. 2021). None if
    either sample is empty.

    The interval is Newcombe's fifth (2006, https://doi.org/10.1002/sim.2324). It is missing if runs of equal settings
    would all be better than the others in more than 5 % of cases: then it can't be known.
    """
    value = _improves(ours, theirs)
    if value is None or 2 / math.comb(len(ours) + len(theirs), len(ours)) > 0.05:
        return value if value is None else Estimate(value)
    return Estimate(value, _lower(value, ours, theirs), 1 - _lower(1 - value, ours, theirs))


def _improves(ours: Sample, theirs: Sample) -> float | None:
    import numpy as np

    if not ours or not theirs:
        return None
    ordered = np.sort(theirs)
    halves = sum(int(np.searchsorted(ordered, ours, side).sum()) for side in ("left", "right"))
    return halves / (2 * len(ours) * len(theirs))


def _lower(found: float, ours: Sample, theirs: Sample) -> float:
    """The least probability from which the one found is 1.96 standard deviations away, by halving."""
    pairs, more = len(ours) * len(theirs), (len(ours) + len(theirs)) / 2 - 1
    low, high = 0.0, found
    for _ in range(40):
        p = (low + high) / 2
        variance = p * (1 - p) * (1 + more * ((1 - p) / (2 - p) + p / (1 + p))) / pairs
        low, high = (p, high) if found - p > _NORMAL * math.sqrt(variance) else (low, p)
    return high


@dataclass(frozen=True)
class MemberState:
    """A run of a sweep, as it is now."""

    run: Run
    settings: dict[str, Any]
    seed: int
    record: RunRecord | None
    history: History
    state: str
    """`WAITING`, `PRUNED`, `DELETED` or the run's status."""
    problem: str = ""
    """Why what has its place can't be used, such as a folder of somebody else."""

    @property
    def is_active(self) -> bool:
        """Return whether its host is alive."""
        return self.state not in (WAITING, PRUNED, DELETED) and RunStatus(self.state).is_active

    @property
    def has_failed(self) -> bool:
        return self.state not in (WAITING, PRUNED, DELETED) and RunStatus(self.state).has_failed

    @property
    def reason(self) -> str:
        """Why it has failed, also if it waits to be begun once more; of one that was stopped, by whom; else empty."""
        if self.problem:
            return self.problem
        if self.has_failed or self.state == WAITING:
            if self.history.last in ("failed", "lost", "refused"):
                return self.history.ended[-1].reason
            if self.record is not None and RunStatus.of_record(self.record).has_failed:
                return failure(self.record)  # that nobody has noted yet
            return "could not be started" * self.has_failed
        return self.record.reason if self.record is not None and self.state == RunStatus.STOPPED else ""


def member_states(
    sweep: Sweep, plan: SweepPlan, record_of: Callable[[Run], RunRecord | None] | None = None
) -> list[MemberState]:
    """All runs of a sweep, in order. `record_of`: returns their records, if they were read already. Raises `UserError`
    if something can't be read."""
    journal, record_of, found = journal_of(sweep, plan), record_of or partial(stored_record, sweep), list[MemberState]()
    for number, member in enumerate(plan.members):
        run = sweep.run(number)
        record, history = record_of(run), journal.of(run.name)
        problem = "" if record is not None or history.is_pruned else problem_of(sweep, run)
        state = state_of(history, None if record is None else RunStatus.of_record(record))
        state = str(RunStatus.FAILED) if problem else state
        found.append(MemberState(run, member.settings, member.seed, record, history, state, problem))
    return found


def state_of(history: History, status: RunStatus | None) -> str:
    """The state of a run with this history. `status`: that of its record; None if it has none."""
    if status is not None and (status.is_active or status is RunStatus.FINISHED):
        return str(status)
    if history.is_pruned:
        return PRUNED
    if status is None and history.last in ("deleted", "finished", "stopped"):  # or removed by other means
        return DELETED
    if status is RunStatus.STOPPED and history.last not in ("resumed", "lost"):
        return str(status)
    if history.tries < TRIES:
        return WAITING
    return str(RunStatus.LOST if history.last == "lost" else status or RunStatus.FAILED)


class MemberResult(MemberState):
    """A run of a sweep, and what it has reached."""

    @property
    def best(self) -> float | None:
        """Mean return of its best evaluation."""
        return None if self.record is None or self.record.best is None else self.record.best.mean_return

    @property
    def final(self) -> Interval | None:
        """Its result: the mean return of its final evaluation, and the interval over its episodes."""
        result = None if self.record is None else self.record.result
        return None if result is None else result.mean_return

    @property
    def last(self) -> float | None:
        """Mean return of the last episodes of training."""
        return None if self.record is None else self.record.mean_return

    @property
    def trained_steps(self) -> int:
        """Environment steps, without those beyond the wanted ones that complete an iteration."""
        record = self.record
        return 0 if record is None else min(record.env_steps, record.steps or record.env_steps)


@dataclass(frozen=True)
class SettingResult:
    """The runs of one setting."""

    settings: dict[str, Any]
    members: tuple[MemberResult, ...]

    @property
    def done(self) -> int:
        return sum(member.state == RunStatus.FINISHED for member in self.members)

    @property
    def is_pruned(self) -> bool:
        return any(member.history.is_pruned for member in self.members)

    @property
    def is_done(self) -> bool:
        """Return whether all of its runs are finished, pruned or deleted."""
        return all(member.state in (RunStatus.FINISHED, PRUNED, DELETED) for member in self.members)

    @property
    def is_over(self) -> bool:
        """Return whether none of its runs waits or trains."""
        return not any(member.state == WAITING or member.is_active for member in self.members)

    @property
    def env_steps(self) -> int:
        return sum(member.record.env_steps for member in self.members if member.record is not None)

    @property
    def trained_steps(self) -> int:
        """Return what all of its runs have trained."""
        return min(member.trained_steps for member in self.members)

    @property
    def wall_s(self) -> float:
        return sum(member.record.wall_s for member in self.members if member.record is not None)

    @property
    def best(self) -> Sample:
        """Of those of its runs that have evaluated."""
        return _known(member.best for member in self.members)

    @property
    def last(self) -> Sample:
        return _known(member.last for member in self.members)

    @property
    def final(self) -> Sample:
        """The results of those of its runs that have one."""
        return _known(member.final.mean for member in self.members if member.final is not None)

    @property
    def has_results(self) -> bool:
        """Return whether each of its runs has one."""
        return len(self.final) == len(self.members)

    def reached(self, metric: Shown) -> Sample:
        return {"result": self.final, "best": self.best, "last": self.last}[metric]

    def improves(self, other: SettingResult | None) -> Estimate | None:
        """The probability that one of its runs has a better result than one of the other setting's, or a better best
        evaluation while some have no result; None if either has none, or both are the same."""
        if other is None or other is self:
            return None
        metric: Shown = "result" if self.has_results and other.has_results else "best"
        return improvement(self.reached(metric), other.reached(metric))


def is_done(plan: SweepPlan, results: Sequence[SettingResult]) -> bool:
    """Return whether all runs are finished, pruned or deleted, and a search has chosen all settings."""
    return not plan.is_searching and all(result.is_done for result in results)


def _known(values: Iterable[float | None]) -> Sample:
    return tuple(sorted(value for value in values if value is not None))


def results_of(
    sweep: Sweep, plan: SweepPlan, record_of: Callable[[Run], RunRecord | None] | None = None
) -> list[SettingResult]:
    """All settings of a sweep, in the order in which they were given; see `member_states`."""
    by_setting = dict[str, list[MemberResult]]()  # by values, as JSON
    for member in member_states(sweep, plan, record_of):
        by_setting.setdefault(setting_key(member.settings), []).append(MemberResult(**vars(member)))
    return [SettingResult(members[0].settings, tuple(members)) for members in by_setting.values()]


def most_steps(results: Iterable[SettingResult]) -> int:
    """Return what the run that has trained longest has. A setting with a run that has not got there is marked
    `SHORTER`."""
    return max((member.trained_steps for result in results for member in result.members), default=0)


def state_of_sweep(sweep: Sweep, plan: SweepPlan, results: Sequence[SettingResult]) -> RunStatus:
    """Return where a sweep is as a whole."""
    if is_stopping(sweep, plan):
        return RunStatus.STOPPING
    members = [member for result in results for member in result.members]
    if sweep.queue_pid() is not None or any(member.is_active for member in members):
        return RunStatus.RUNNING
    if is_done(plan, results):
        return RunStatus.FINISHED
    has_failed = any(member.has_failed or (member.state == WAITING and member.reason) for member in members)
    return RunStatus.FAILED if has_failed else RunStatus.STOPPED


def states_of(results: Iterable[SettingResult]) -> Counter[str]:
    """Return how many runs are in each state."""
    return Counter(member.state for result in results for member in result.members)


def states_text(results: Iterable[SettingResult]) -> str:
    """`2 running, 1 waiting`."""
    return ", ".join(f"{count} {state}" for state, count in states_of(results).items())


def how_to_go_on(sweep: Sweep) -> str:
    """Return what the user can do with a sweep without a queue."""
    if sweep.is_own:
        return f"to go on: mario-tui sweep resume {how_to_name(sweep)}"
    return why_not_own()


def failed_lines(sweep: Sweep, results: Iterable[SettingResult]) -> list[str]:
    """A line for each run that has failed: why, and which log tells more; and for each try whose place another has."""
    lines = []
    for member in (member for result in results for member in result.members):
        for each in member.history.ended:
            if each.folder:
                log = sweep.path / each.folder / LOG_FILE
                lines.append(f"{member.run.name}, earlier try {each.event}: {each.reason}; log: {log}")
        if member.has_failed:
            log = sweep.log_path if member.record is None else member.run.log_path
            lines.append(f"{member.run.name} {member.state}: {member.reason}; log: {log}")
    return [printable(line) for line in lines]


def row(result: SettingResult, first: SettingResult | None, most: int) -> dict[str, Any]:
    """A setting for JSON, compared with the first one, and with the `most_steps`."""
    values: dict[str, Any] = {
        "setting": setting_text(result.settings), "options": result.settings, "done": result.done,
        "runs": len(result.members), "pruned": result.is_pruned, "env_steps": result.env_steps,
        "wall_s": round(result.wall_s, 1), "trained_steps": result.trained_steps,
        "trained_as_long": result.trained_steps == most,
    }  # fmt: skip
    for name, reached in (("result", result.final), ("best", result.best), ("last", result.last)):
        mean, middle = estimate((reached,)), estimate((reached,), "iqm")
        values[name] = mean and middle and {
            "mean": mean.value, "low": mean.low, "high": mean.high,
            "iqm": middle.value, "iqm_low": middle.low, "iqm_high": middle.high, "count": len(reached),
        }  # fmt: skip
    itself = Estimate(0.5) if result.best else None
    better = itself if result is first else result.improves(first)
    low, high = (None, None) if better is None else (better.low, better.high)
    return {
        **values, "improves_on_first": better and better.value,
        "improves_on_first_low": low, "improves_on_first_high": high,
    }  # fmt: skip


def member_row(member: MemberResult) -> dict[str, Any]:
    """A run as flat values."""
    record, final = member.record, member.final
    return {
        "run": member.run.name, **member.settings, "seed": member.seed, "state": member.state, "reason": member.reason,
        "env_steps": 0 if record is None else record.env_steps,
        "result": final and final.mean, "result_low": final and final.low, "result_high": final and final.high,
        "best": member.best, "last": member.last,
        "wall_s": 0.0 if record is None else round(record.wall_s, 1),
    }  # fmt: skip


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    text, names = io.StringIO(), dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


EXPLAINED = (
    f"Mean over seeds; from {LEAST_SEEDS} seeds on with its 95 % interval (Student's t). Result: of finished runs over "
    "fresh episodes; best evaluation: the largest during training, which is partly luck. Better: probability that the "
    "result of a run (while some have none, the best evaluation) is above that of a run of the first setting."
)
TOO_FEW = "too few seeds"
SHORTER = "*"


def explained(results: Sequence[SettingResult]) -> str:
    """Return what the table shows."""
    most = most_steps(results)
    is_unequal = any(result.trained_steps < most for result in results)
    return f"{EXPLAINED} {SHORTER}: {shorter(most)}." if is_unequal else EXPLAINED


def shorter(most: int) -> str:
    """Return what `SHORTER` tells."""
    return f"not all of its runs have trained for {most:,} steps, as the longest has"


def as_markdown(results: Sequence[SettingResult], first: SettingResult | None, commands: Sequence[str]) -> str:
    """The table for a paper or a pull request, with the commands that make it again."""
    most = most_steps(results)
    heads = ["setting", "seeds done", "env steps", "result", "best evaluation", "last episodes", "better"]
    judged = any(result.final for result in results)
    if not judged:
        heads.remove("result")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for result in results:
        setting, runs = _in_table(setting_text(result.settings)), len(result.members)
        pruned, mark = ", pruned" * result.is_pruned, f"\\{SHORTER}" * (result.trained_steps < most)
        reached = [shown(each, mark) for each in (*([result.final] * judged), result.best, result.last)]
        cells = f"{result.done} of {runs}{pruned}", f"{result.env_steps:,}", *reached
        lines.append(f"| `{setting}` | {' | '.join(cells)} | {better_text(result.improves(first))} |")
    listing = [f"`{commands[0]}`"] if len(commands) == 1 else ["", "```bash", *commands, "```"]
    return "\n".join([*lines, "", explained(results).replace(SHORTER, f"\\{SHORTER}"), *listing, ""])


def _in_table(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("`", "'")


def better_text(found: Estimate | None) -> str:
    """A probability of improvement, such as `0.83 (0.45 to 0.96)`."""
    if found is None:
        return "–"
    known = found.low is not None and found.high is not None
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})" if known else TOO_FEW


def shown(reached: Sample, mark: str = "") -> str:
    """A mean with its interval, such as `3.21 (2.90 to 3.44)`; the mark follows the mean."""
    found = estimate((reached,))
    if found is None:
        return "–"
    text = f"{found.value:.4g}{mark}"
    return text if found.low is None or found.high is None else f"{text} ({found.low:.4g} to {found.high:.4g})"


def setting_text(settings: Mapping[str, Any]) -> str:
    """A setting in words, such as `learning-rate=0.0003 n-step=3`."""
    return " ".join(f"{flag(name)[2:]}={value_text(value)}" for name, value in settings.items())


def shown_setting(settings: Mapping[str, Any]) -> str:
    """`setting_text` of a setting that stands alone."""
    return setting_text(settings) or "(no option varies)"


def value_text(value: Any) -> str:
    """A value of an option as it is typed: another text for another value."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(value: Any) -> str:
    """Values as `--vary` has them."""
    return ",".join(map(_as_typed, value if isinstance(value, list) else [value]))


def _as_typed(value: Any) -> str:
    """A text with a comma is quoted, unless it is JSON itself."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return json_line(value) if value[:1] == '"' or ("," in value and not _is_json(value)) else value
    return json_line(value) if isinstance(value, bool | dict) else str(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def commands_of(plan: SweepPlan) -> list[str]:
    """Return what makes sweeps with these runs: a command for all settings with the same seeds if they are all
    combinations of values, else one for each setting; of seeds with gaps, one for each stretch."""
    if not plan.members:
        return ["mario-tui sweep"]
    seeds: dict[str, list[int]] = {}
    for member in plan.members:
        seeds.setdefault(setting_key(member.settings), []).append(member.seed)
    alike: dict[tuple[tuple[str, ...], tuple[range, ...]], list[dict[str, Any]]] = {}
    for settings in plan.settings:
        stretches = tuple(_stretches(seeds[setting_key(settings)]))
        alike.setdefault((tuple(settings), stretches), []).append(settings)
    commands, prunes = [], True
    for (names, stretches), several in alike.items():
        values = {name: dict.fromkeys(listed(each[name]) for each in several) for name in names}
        is_grid = len(several) == math.prod(map(len, values.values()))
        more = _pruning(plan) if is_grid and len(several) > STARTUP_SETTINGS else []
        prunes = prunes and bool(more)
        grids = [values] if is_grid else [{name: [listed(value)] for name, value in each.items()} for each in several]
        commands += [_command(plan, grid, stretch, more) for grid in grids for stretch in stretches]
    if _pruning(plan) and not prunes:
        commands.insert(0, f"# these were in one sweep, with {shlex.join(_pruning(plan))}")
    return commands


def _stretches(seeds: Sequence[int]) -> list[range]:
    """Seeds as ranges without gaps."""
    found: list[range] = []
    for seed in sorted(seeds):
        if found and found[-1].stop == seed:
            found[-1] = range(found[-1].start, seed + 1)
        else:
            found.append(range(seed, seed + 1))
    return found


def _pruning(plan: SweepPlan) -> list[str]:
    return [] if plan.prune_after is None else ["--prune", "median", "--prune-after", str(plan.prune_after)]


def _command(plan: SweepPlan, varied: Mapping[str, Iterable[str]], seeds: range, more: Sequence[str]) -> str:
    words = ["mario-tui", "sweep", *more]
    for name, value in plan.options.items():
        on = isinstance(value, bool)
        words += [flag(name) if value else flag(f"no_{name}")] if on else [flag(name), str(value)]
    words += [] if plan.threads is None else ["--threads", str(plan.threads)]
    words += [] if plan.ray == "none" else ["--ray", plan.ray]
    for name, values in varied.items():
        words += ["--vary", f"{flag(name)[2:]}={','.join(values)}"]
    words += ["--seeds", str(len(seeds)), *(["--first-seed", str(seeds.start)] if seeds.start else [])]
    return printable(shlex.join(words))
