"""`mario-tui eval`: runs the engine's evaluation in a separate process and prints the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import UserError
from engine.protocol.framing import decode_evaluation
from engine.protocol.json_lines import as_fields
from engine.protocol.messages import Episode, Failed
from engine.protocol.outcome import Outcome
from engine.protocol.results import Evaluated, TaskScore
from engine.runs.origin import origin_of
from engine.runtime.json_text import json_line
from engine.runtime.text import printable
from mario_tui.data.format import counted
from mario_tui.data.outcome_text import is_cleared, judged, judged_label
from mario_tui.engine_command import EngineCommand
from mario_tui.terminal.progress_bar import progress_bar


def evaluate(policy: Path, episodes: int, options: Sequence[str], *, as_json: bool) -> int:
    """Evaluate a policy and print the result. `options` go to the engine. Returns the exit status."""
    command = EngineCommand("evaluate", str(policy), f"--episodes={episodes}", *options, decode=decode_evaluation)
    with command, progress_bar(f"evaluating {printable(origin_of(policy).name)}", episodes) as played:
        for report in command.messages():
            match report:
                case Episode():
                    played(report.episode)
                case Failed(usage=True):
                    raise UserError(report.reason)
                case Failed():
                    print(f"mario-tui: the evaluation failed: {report.reason}\n{report.traceback}", file=sys.stderr)
                    return 1
                case Evaluated():
                    result = report
                    break
        else:
            print(f"mario-tui: {command.crash_reason()}", file=sys.stderr)
            return 1
    print(_as_json(result) if as_json else as_text(result))
    return 0


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
    rate = f"({r.clear_rate:.0%}, 95 % interval {r.clear_rate_low:.0%} to {r.clear_rate_high:.0%})"
    if is_cleared(outcome):
        lines = [f"{r.clears}/{r.episodes} clears {rate}"]
    else:
        mean = r.results.get(outcome.judged_by)
        value = r.mean_return if mean is None else mean.mean
        within = f" (95 % interval {mean.low:,.2f} to {mean.high:,.2f})" if mean is not None and r.episodes > 1 else ""
        lines = [f"{counted(r.episodes, 'game')}, mean {judged_label(outcome)} {value:,.2f}{within}"]
        if outcome.goal is not None:
            lines.append(f"{counted(r.clears, outcome.goal.label)} {rate}")
    lines[0] = f"{f'stage {r.stage} on {r.emulator}' if r.emulator else r.game}: {lines[0]}"
    others = [each for each in outcome.results if each.name != outcome.judged_by]
    means = [f"{each.label} {r.results[each.name].mean:,.0f}" for each in others]
    lines.append(
        ", ".join((f"mean return {r.mean_return:,.1f}", *means, f"length {r.mean_length:,.0f} environment steps"))
    )
    starts = f"{r.noop_min} to {r.noop_max} no-op frames, " if r.emulator else ""
    sticky = f"sticky actions {r.sticky_actions:g}, " if r.emulator else ""
    lines.append(f"{starts}epsilon {r.epsilon:g}, {sticky}seed {r.seed}, {r.seconds:.0f} s")
    return "\n".join(lines)
