"""`mario-tui eval`: runs the engine's evaluation in processes of their own and prints the results."""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.protocol.json_lines import as_fields, interval_keys
from engine.protocol.messages import Episode, Failed, Log, Mean
from engine.protocol.outcome import Outcome
from engine.protocol.results import Evaluated, EvaluationOrder, PolicyKind, TaskScore
from engine.runs.lookup import origin_of
from engine.runtime.formats import json_line
from engine.runtime.students_t import half_width
from engine.runtime.text import printable
from engine.runtime.threads import available_cores
from mario_tui.data.format import counted, is_cleared, judged, judged_label, number, percent
from mario_tui.engine_command import EngineCommand, failed, failure_text
from mario_tui.terminal.console import progress_bar


@dataclass(frozen=True)
class WantedEvaluation:
    """A policy, the episodes that it is to play, and the rest of the order for the engine."""

    policy: Path
    episodes: int
    options: Mapping[str, Any]

    def command(self, processes: int = 1) -> EngineCommand:
        """Start it, as one of `processes` that share the cores."""
        order = EvaluationOrder(policy=str(self.policy), episodes=self.episodes, processes=processes, **self.options)
        return EngineCommand("evaluate", order.argument())


def evaluate(wanted: WantedEvaluation, *, as_json: bool) -> int:
    """Evaluate a policy and print the result. Returns the exit status."""
    text = f"evaluating {printable(origin_of(wanted.policy).name)}"
    warnings: list[str] = []
    played: list[Episode] = []

    with wanted.command() as command, progress_bar(text, wanted.episodes) as show:
        result = result_of(command, played, warnings, lambda episode: show(episode.episode))
    _warn(warnings)
    if isinstance(result, Evaluated):
        print(_as_json(result, played) if as_json else as_text(result, played))
        return 0
    return failed("the evaluation", result)


def evaluate_several(wanted: Sequence[WantedEvaluation], *, as_json: bool) -> int:
    """Evaluate policies, as many at a time as there are cores, and print the results in one table. Returns the exit
    status: 1 if any evaluation has failed, which standard error tells."""
    with progress_bar(f"evaluating {len(wanted)} policies", sum(each.episodes for each in wanted)) as bar:
        numbers = itertools.count(1)
        warnings: list[str] = []
        found = _at_the_same_time(wanted, warnings, lambda _: bar(next(numbers)))
    _warn(warnings)
    for each, (result, _) in zip(wanted, found, strict=True):
        if isinstance(result, Failed):
            where, why = f"{each.policy}: ", failure_text(result)
            print(f"mario-tui: {printable(where)}{why.removeprefix(where)}", file=sys.stderr)
    results = [(result, played) for result, played in found if isinstance(result, Evaluated)]
    if as_json:
        print(f"[{', '.join(_as_json(*each) for each in results)}]")
    elif results:
        print(_table([result for result, _ in results]))
    return 0 if len(results) == len(wanted) else 1


def result_of(
    command: EngineCommand,
    played: list[Episode],
    warnings: list[str],
    on_episode: Callable[[Episode], object] = lambda episode: None,
) -> Evaluated | Failed:
    """The result of a `WantedEvaluation.command`. Meanwhile its episodes and warnings are added to these lists."""

    def take(report: Episode | Log) -> None:
        if isinstance(report, Log):
            warnings.append(report.text)
        else:
            played.append(report)
            on_episode(report)

    return command.result(Evaluated, take)


def _warn(warnings: Sequence[str]) -> None:
    for text in dict.fromkeys(warnings):
        print(printable(f"mario-tui: warning: {text}"), file=sys.stderr)


def _at_the_same_time(
    wanted: Sequence[WantedEvaluation], warnings: list[str], on_episode: Callable[[Episode], object]
) -> list[tuple[Evaluated | Failed, list[Episode]]]:
    """The results and their episodes, in their order. `on_episode` is called from threads, which also add warnings."""
    processes = min(len(wanted), available_cores())
    running: list[EngineCommand] = []
    starting, stopping = threading.Lock(), threading.Event()

    def one(each: WantedEvaluation) -> tuple[Evaluated | Failed, list[Episode]]:
        with starting:
            if stopping.is_set():
                raise CancelledError
            running.append(command := each.command(processes))
        played: list[Episode] = []
        with command:
            return result_of(command, played, warnings, on_episode), played

    pool = ThreadPoolExecutor(processes)
    try:
        return list(pool.map(one, wanted))
    finally:  # also after Ctrl-C
        with starting:
            stopping.set()
        for command in running:
            command.close()
        pool.shutdown(cancel_futures=True)


def _as_json(result: Evaluated, played: Sequence[Episode]) -> str:
    """The result, and each of its episodes."""
    outcome = result.outcome
    each = [
        {name: value for name, value in as_fields(episode, outcome).items() if name not in _OF_RUNS}
        for episode in played
    ]
    found = as_fields(result, outcome) | {"played": each}
    if (passed := _passed(outcome, played)) is not None:
        found |= interval_keys({"mean_cleared": passed})
    if (place := _place(outcome)) is not None:
        found["ends"] = [
            {**({outcome.task: task} if outcome.tasks else {}), outcome.results[place].name: at, "episodes": count}
            for (task, at), count in _ends(outcome, place, played).items()
        ]
    return json_line(found)


_OF_RUNS = ("actor", "lane", "env_steps", "epsilon")
"""Fields of an episode that say nothing in an evaluation."""


def _passed(outcome: Outcome, played: Sequence[Episode]) -> Mean | None:
    """In how many tasks an episode reached the goal; None in games without tasks."""
    if not outcome.tasks:
        return None
    counts = [float(len(episode.cleared)) for episode in played]
    mean, half = statistics.fmean(counts), half_width(counts)
    return Mean(mean, mean - half, mean + half)


def _place(outcome: Outcome) -> int | None:
    """The result that tells how far an episode came; None if there is none."""
    return next((index for index, result in enumerate(outcome.results) if result.place), None)


def _ends(outcome: Outcome, place: int, played: Sequence[Episode]) -> dict[tuple[str, int], int]:
    """How many episodes ended without the goal, by task and place, in the game's order."""
    step = outcome.results[place].place
    ends = Counter(
        (episode.task, int(episode.results[place] // step * step)) for episode in played if not episode.success
    )
    order = {task: index for index, task in enumerate(outcome.tasks)}
    return dict(sorted(ends.items(), key=lambda end: (order.get(end[0][0], -1), end[0][1])))


def as_text(r: Evaluated, played: Sequence[Episode]) -> str:
    """The result of these episodes, in a few lines."""
    return "\n".join([_judged(r), _result(r), *task_lines(r.tasks, r.outcome), *_end_lines(r.outcome, played)])


def _end_lines(outcome: Outcome, played: Sequence[Episode]) -> list[str]:
    """How many tasks an episode cleared on average, if it can be several; and where those ended that missed the goal, a
    line for each task."""
    lines = []
    passed = _passed(outcome, played)
    if passed is not None and any(episode.cleared for episode in played if not episode.success):
        within = f" (95 % interval {_value(passed.low)} to {_value(passed.high)})" if len(played) > 1 else ""
        lines.append(f"{outcome.task}s cleared per episode: mean {_value(passed.mean)}{within}")
    if (place := _place(outcome)) is not None:
        result = outcome.results[place]
        for task, ends in itertools.groupby(_ends(outcome, place, played).items(), lambda end: end[0][0]):
            places = ", ".join(f"{at:,} ({count})" for (_, at), count in ends)
            lines.append(f"ends {f'in {task} ' if task else ''}by {result.label}, in steps of {result.place}: {places}")
    return lines


def task_lines(tasks: Sequence[TaskScore], outcome: Outcome) -> list[str]:
    """A line for each task, such as a stage or a board."""
    return [printable(f"  {task.task:5} {judged(outcome, task)}") for task in tasks]


def _judged(r: Evaluated) -> str:
    """Return which policy it was, and where it comes from."""
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
    starts += "any phase, " if r.random_phase else ""
    starts += f"halfway starts {r.halfway_starts:g}, " if r.halfway_starts else ""
    sticky = f"sticky actions {r.sticky_actions:g}, " if r.emulator or r.sticky_actions else ""
    fresh = "fresh episodes, " if r.fresh else ""
    lines.append(f"{fresh}{starts}epsilon {r.epsilon:g}, {sticky}seed {r.seed}, {r.seconds:.0f} s")
    return "\n".join(lines)


def _rate(r: Evaluated) -> str:
    return f"({percent(r.clear_rate)}, 95 % interval {_interval(r)})"


def _interval(r: Evaluated) -> str:
    return f"{percent(r.clear_rate_low)} to {percent(r.clear_rate_high)}"


def _judged_mean(r: Evaluated) -> Mean:
    """Return what the policy is judged by, unless that is its clear rate."""
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
