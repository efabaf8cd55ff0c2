"""What the runs of a sweep have reached, by setting: counts, means over seeds with intervals, as CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.config.fields import flag
from engine.runs.lookup import how_to_name
from engine.runs.run import ACTIVE, Run, RunRecord, record_if_begun
from engine.runs.sweep import NOT_OWN, STARTUP_SETTINGS, TRIES, Metric, Sweep, SweepPlan, setting_key
from engine.runtime.json_text import json_line
from engine.runtime.text import printable
from mario_tui.data.exit_status import failure
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_statistics import Sample, estimate, improves

WAITING, PRUNED = "waiting", "pruned"
"""States of runs of a sweep, besides those of `RunStatus`."""


@dataclass(frozen=True)
class MemberResult:
    """A run of a sweep, as it is now."""

    run: Run
    settings: dict[str, Any]
    seed: int
    state: str
    """`WAITING`, `PRUNED` or the run's status."""
    record: RunRecord | None
    is_pruned: bool
    """Whether its setting was given up, though it may still train for a moment."""

    @property
    def is_active(self) -> bool:
        """Whether its host is alive."""
        return self.state not in (WAITING, PRUNED) and RunStatus(self.state).is_active

    @property
    def has_failed(self) -> bool:
        return self.state not in (WAITING, PRUNED) and RunStatus(self.state).has_failed

    @property
    def best(self) -> float | None:
        """Mean return of its best evaluation."""
        return None if self.record is None or self.record.best is None else self.record.best.mean_return

    @property
    def last(self) -> float | None:
        """Mean return of the last episodes of training."""
        return None if self.record is None else self.record.mean_return


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
        return any(member.is_pruned for member in self.members)

    @property
    def is_done(self) -> bool:
        """Whether all of its runs are finished or pruned."""
        return all(member.state in (RunStatus.FINISHED, PRUNED) for member in self.members)

    @property
    def is_over(self) -> bool:
        """Whether none of its runs waits or trains."""
        return not any(member.state == WAITING or member.is_active for member in self.members)

    @property
    def env_steps(self) -> int:
        return sum(member.record.env_steps for member in self.members if member.record is not None)

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

    def reached(self, metric: Metric) -> Sample:
        return self.best if metric == "best" else self.last

    def improves(self, other: SettingResult | None) -> float | None:
        """The probability that one of its runs has a better best evaluation than one of the other setting's; None if
        either has none."""
        return None if other is None else improves(self.best, other.best)


def is_waiting(status: RunStatus | None, tries: int | None) -> bool:
    """Whether a run in this state (None: it has not begun) is still to be started, after `tries` tries (None: unknown).

    One that somebody has stopped is only if `tries` is 0, which `sweep resume` writes.
    """
    if status is RunStatus.STOPPED:
        return tries == 0
    return (tries or 0) < TRIES and (status is None or status.has_failed)


def is_done(plan: SweepPlan, results: Sequence[SettingResult]) -> bool:
    """Whether all runs are finished or pruned, and a search has chosen all settings."""
    return not plan.is_searching and all(result.is_done for result in results)


def _known(values: Iterable[float | None]) -> Sample:
    return tuple(sorted(value for value in values if value is not None))


def results_of(sweep: Sweep, plan: SweepPlan) -> list[SettingResult]:
    """All settings of a sweep, in the order in which they were given."""
    tries, pruned, by_setting = sweep.tries(), set(plan.pruned), dict[str, list[MemberResult]]()  # by values, as JSON
    for number, member in enumerate(plan.members):
        run = sweep.run(number)
        record = record_if_begun(run)
        status = None if record is None else RunStatus.of_record(record)
        state = WAITING if is_waiting(status, tries.get(run.name)) else str(status or RunStatus.FAILED)
        if run.name in pruned and state not in (*ACTIVE, RunStatus.FINISHED):
            state = PRUNED
        found = MemberResult(run, member.settings, member.seed, state, record, run.name in pruned)
        by_setting.setdefault(setting_key(member.settings), []).append(found)
    return [SettingResult(members[0].settings, tuple(members)) for members in by_setting.values()]


def states_of(results: Iterable[SettingResult]) -> Counter[str]:
    """How many runs are in each state."""
    return Counter(member.state for result in results for member in result.members)


def states_text(results: Iterable[SettingResult]) -> str:
    """`2 running, 1 waiting`."""
    return ", ".join(f"{count} {state}" for state, count in states_of(results).items())


def how_to_go_on(sweep: Sweep) -> str:
    """What the user can do with a sweep without a queue."""
    if sweep.is_own:
        return f"to go on: mario-tui sweep resume {how_to_name(sweep)}"
    return NOT_OWN


def failed_lines(sweep: Sweep, results: Iterable[SettingResult]) -> list[str]:
    """A line for each run that has failed or was lost: why, and which log tells more."""
    lines = []
    for member in (member for result in results for member in result.members):
        if member.has_failed:
            why, log = "could not be started", sweep.log_path
            if member.record is not None:
                why, log = failure(member.record), member.run.log_path
            lines.append(printable(f"{member.run.name} {member.state}: {why}; log: {log}"))
    return lines


def row(result: SettingResult, first: SettingResult | None) -> dict[str, Any]:
    """A setting for JSON, compared with the first one."""
    values: dict[str, Any] = {
        "setting": setting_text(result.settings), "options": result.settings, "done": result.done,
        "runs": len(result.members), "pruned": result.is_pruned, "env_steps": result.env_steps,
        "wall_s": round(result.wall_s, 1),
    }  # fmt: skip
    for name, reached in (("best", result.best), ("last", result.last)):
        mean, middle = estimate((reached,)), estimate((reached,), "iqm")
        values[name] = mean and middle and {
            "mean": mean.value, "iqm": middle.value, "low": mean.low, "high": mean.high, "count": len(reached)
        }  # fmt: skip
    return {**values, "improves_on_first": result.improves(first)}


def member_row(member: MemberResult) -> dict[str, Any]:
    """A run as flat values."""
    record = member.record
    return {
        "run": member.run.name, **member.settings, "seed": member.seed, "state": member.state,
        "env_steps": 0 if record is None else record.env_steps, "best": member.best, "last": member.last,
        "wall_s": 0.0 if record is None else round(record.wall_s, 1),
    }  # fmt: skip


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    text, names = io.StringIO(), dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


EXPLAINED = (
    "Mean over seeds; 95 % interval by bootstrap over seeds; better: probability that the best evaluation of a run is "
    "above that of a run of the first setting."
)


def as_markdown(results: Sequence[SettingResult], first: SettingResult | None, commands: Sequence[str]) -> str:
    """The table for a paper or a pull request, with the commands that make it again."""
    lines = [
        "| setting | seeds done | env steps | best evaluation | last episodes | better |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        setting, runs = _in_table(setting_text(result.settings)), len(result.members)
        pruned = ", pruned" * result.is_pruned
        lines.append(
            f"| `{setting}` | {result.done} of {runs}{pruned} | {result.env_steps:,} | "
            f"{shown(result.best)} | {shown(result.last)} | {share(result.improves(first))} |"
        )
    listing = [f"`{commands[0]}`"] if len(commands) == 1 else ["", "```bash", *commands, "```"]
    return "\n".join([*lines, "", EXPLAINED, *listing, ""])


def _in_table(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("`", "'")


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def shown(reached: Sample) -> str:
    """A mean with its interval, such as `3.21 (2.90 to 3.44)`."""
    found = estimate((reached,))
    if found is None:
        return "–"
    text = f"{found.value:.4g}"
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
    """What makes sweeps with these runs: a command for all settings with the same seeds if they are all combinations of
    values, else one for each setting; of seeds with gaps, one for each stretch."""
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
