"""`mario-tui eval`: runs the engine's evaluation in processes of their own and prints the results."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from engine.protocol.framing import decode_evaluation
from engine.protocol.json_lines import as_fields
from engine.protocol.messages import Episode, Failed
from engine.protocol.outcome import Outcome
from engine.protocol.results import Evaluated, EvaluationReport, Mean, PolicyKind, TaskScore
from engine.runs.origin import origin_of
from engine.runtime.json_text import json_line
from engine.runtime.text import printable
from engine.runtime.threads import available_cores
from mario_tui.data.format import counted, number, percent
from mario_tui.data.outcome_text import is_cleared, judged, judged_label
from mario_tui.engine_command import EngineCommand, failed, failure_text
from mario_tui.terminal.progress_bar import progress_bar


@dataclass(frozen=True)
class WantedEvaluation:
    """A policy, the episodes that it is to play, and options for the engine."""

    policy: Path
    episodes: int
    options: Sequence[str]

    def command(self, processes: int = 1) -> EngineCommand[EvaluationReport]:
        """Start it, as one of `processes` that share the cores."""
        arguments = [str(self.policy), f"--episodes={self.episodes}", f"--processes={processes}", *self.options]
        return EngineCommand("evaluate", *arguments, decode=decode_evaluation)


def evaluate(wanted: WantedEvaluation, *, as_json: bool) -> int:
    """Evaluate a policy and print the result. Returns the exit status."""
    text = f"evaluating {printable(origin_of(wanted.policy).name)}"
    with wanted.command() as command, progress_bar(text, wanted.episodes) as played:
        result = command.result(Evaluated, lambda report: played(report.episode))
    if isinstance(result, Evaluated):
        print(_as_json(result) if as_json else as_text(result))
        return 0
    return failed("the evaluation", result)


def evaluate_several(wanted: Sequence[WantedEvaluation], *, as_json: bool) -> int:
    """Evaluate policies, as many at a time as there are cores, and print the results in one table. Returns the exit
    status: 1 if any evaluation has failed, which standard error tells."""
    with progress_bar(f"evaluating {len(wanted)} policies", sum(each.episodes for each in wanted)) as bar:
        played = itertools.count(1)
        found = _at_the_same_time(wanted, lambda _: bar(next(played)))
    for each, result in zip(wanted, found, strict=True):
        if isinstance(result, Failed):
            where, why = f"{each.policy}: ", failure_text(result)
            print(f"mario-tui: {printable(where)}{why.removeprefix(where)}", file=sys.stderr)
    results = [result for result in found if isinstance(result, Evaluated)]
    if as_json:
        print(f"[{', '.join(map(_as_json, results))}]")
    elif results:
        print(_table(results))
    return 0 if len(results) == len(wanted) else 1


def _at_the_same_time(
    wanted: Sequence[WantedEvaluation], on_episode: Callable[[Episode], object]
) -> list[Evaluated | Failed]:
    """The results, in their order. `on_episode` is called from threads."""
    processes = min(len(wanted), available_cores())
    running: list[EngineCommand[EvaluationReport]] = []
    starting, stopping = threading.Lock(), threading.Event()

    def one(each: WantedEvaluation) -> Evaluated | Failed:
        with starting:
            if stopping.is_set():
                raise CancelledError
            running.append(command := each.command(processes))
        with command:
            return command.result(Evaluated, on_episode)

    pool = ThreadPoolExecutor(processes)
    try:
        return list(pool.map(one, wanted))
    finally:  # also after Ctrl-C
        with starting:
            stopping.set()
        for command in running:
            command.close()
        pool.shutdown(cancel_futures=True)


def _as_json(result: Evaluated) -> str:
    return json_line(as_fields(result, result.outcome))


def as_text(r: Evaluated) -> str:
    """The result, in a few lines."""
    return "\n".join([_judged(r), _result(r), *task_lines(r.tasks, r.outcome)])


def task_lines(tasks: Sequence[TaskScore], outcome: Outcome) -> list[str]:
    """A line for each task, such as a stage or a board."""
    return [printable(f"  {task.task:5} {judged(outcome, task)}") for task in tasks]


def _judged(r: Evaluated) -> str:
    """Which policy it was, and where it comes from."""
    known = [f"run {r.run}"] if r.run is not None else []
    if r.trained_on:
        known.append(f"trained on {r.trained_on}")
    if r.trained_env_steps is not None:
        known.append(f"at {counted(r.trained_env_steps, 'environment step')}")
    if r.trained_updates is not None:
        known.append(counted(r.trained_updates, "update"))
    return printable(f"{r.name}: {', '.join(known)}" if known else r.name) + "\n" + printable(r.policy)


def _result(r: Evaluated) -> str:
    outcome = r.outcome
    if is_cleared(outcome):
        lines = [f"{r.clears}/{r.episodes} clears {_rate(r)}"]
    else:
        mean = _judged_mean(r)
        within = f" (95 % interval {_value(mean.low)} to {_value(mean.high)})" if r.episodes > 1 else ""
        lines = [f"{counted(r.episodes, 'game')}, mean {judged_label(outcome)} {_value(mean.mean)}{within}"]
        if outcome.goal is not None:
            lines.append(f"{counted(r.clears, outcome.goal.label)} {_rate(r)}")
    lines[0] = f"{f'stage {r.stage} on {r.emulator}' if r.emulator else r.game}: {lines[0]}"
    others = [each for each in outcome.results if each.name != outcome.judged_by]
    means = [f"{each.label} {number(r.results[each.name].mean)}" for each in others]
    lines.append(
        ", ".join((f"mean return {_value(r.mean_return)}", *means, f"length {r.mean_length:,.0f} environment steps"))
    )
    starts = f"{r.noop_min} to {r.noop_max} no-ops, " if r.emulator or r.noop_max else ""
    sticky = f"sticky actions {r.sticky_actions:g}, " if r.emulator or r.sticky_actions else ""
    lines.append(f"{starts}epsilon {r.epsilon:g}, {sticky}seed {r.seed}, {r.seconds:.0f} s")
    return "\n".join(lines)


def _rate(r: Evaluated) -> str:
    return f"({percent(r.clear_rate)}, 95 % interval {_interval(r)})"


def _interval(r: Evaluated) -> str:
    return f"{percent(r.clear_rate_low)} to {percent(r.clear_rate_high)}"


def _judged_mean(r: Evaluated) -> Mean:
    """What the policy is judged by, unless that is its clear rate."""
    return r.results.get(r.outcome.judged_by) or Mean(r.mean_return, r.mean_return_low, r.mean_return_high)


def _value(value: float) -> str:
    return f"{value:,.2f}" if abs(value) >= 1 else number(value)


_KINDS: dict[PolicyKind, str] = {
    "best": "best of the run",
    "checkpoint": "checkpoint",
    "saved": "saved",
    "included": "included",
    "file": "file",
}


def _table(results: Sequence[Evaluated]) -> str:
    """A row for each result: which policy it was, what it is judged by with an interval, and its mean return."""
    rows = [("POLICY", "", "EPISODES", "RESULT", "95 % INTERVAL", "RETURN")]
    for r in results:
        if is_cleared(r.outcome):
            result, interval = percent(r.clear_rate), f"{_interval(r)} (Wilson)"
        else:
            mean = _judged_mean(r)
            result, interval = _value(mean.mean), "–"
            if r.episodes > 1:
                interval = f"{_value(mean.low)} to {_value(mean.high)} (Student's t)"
        name = r.name.removesuffix(" best") if r.kind == "best" else r.name
        shown = f"{judged_label(r.outcome)} {result}"
        rows.append((printable(name), _KINDS[r.kind], f"{r.episodes:,}", shown, interval, _value(r.mean_return)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = (False, False, True, False, False, True)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at_right else cell.ljust(width)
            for cell, width, at_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    )
