"""`mario-tui eval`: runs the engine's evaluation in a separate process and prints the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.errors import UserError
from engine.protocol.framing import decode_evaluation
from engine.protocol.messages import Episode, Failed
from engine.protocol.results import Evaluated, TaskScore
from engine.runs.origin import origin_of
from engine.runtime.text import json_line, printable
from mario_tui.data.format import counted
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
    return json_line(msgspec.structs.asdict(result))


def as_text(r: Evaluated) -> str:
    """The result, in a few lines."""
    return "\n".join([_judged(r), _result(r), *task_lines(r.tasks, r.game)])


def task_lines(tasks: Sequence[TaskScore], game: str) -> list[str]:
    """A line for each stage or board."""
    return [printable(f"  {task.task:5} {_score(task, game)}") for task in tasks]


def _score(task: TaskScore, game: str) -> str:
    if game == "mario":
        return f"{task.clears}/{task.episodes} clears, mean return {task.mean_return:,.1f}"
    filled = f", {counted(task.clears, 'board')} filled" if task.clears else ""
    return f"{counted(task.episodes, 'game')}, mean score {task.mean_score:,.2f}{filled}"


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
    if r.game != "mario":
        share = f"{r.clear_rate:.0%}, 95 % interval {r.clear_rate_low:.0%} to {r.clear_rate_high:.0%}"
        filled = f"{counted(r.clears, 'board')} filled ({share})\n" if r.game == "snake" else ""
        within = f" (95 % interval {r.mean_score_low:,.2f} to {r.mean_score_high:,.2f})" if r.episodes > 1 else ""
        return (
            f"{r.game}: {counted(r.episodes, 'game')}, mean score {r.mean_score:,.2f}{within}\n"
            f"{filled}"
            f"mean return {r.mean_return:,.2f}, length {r.mean_length:,.0f} environment steps\n"
            f"epsilon {r.epsilon:g}, seed {r.seed}, {r.seconds:.0f} s"
        )
    return (
        f"stage {r.stage} on {r.emulator}: {r.clears}/{r.episodes} clears "
        f"({r.clear_rate:.0%}, 95 % interval {r.clear_rate_low:.0%} to {r.clear_rate_high:.0%})\n"
        f"mean return {r.mean_return:,.1f}, x {r.mean_x_pos:,.0f}, time left {r.mean_time_left:.0f}, "
        f"score {r.mean_score:,.0f}, length {r.mean_length:,.0f} environment steps\n"
        f"{r.noop_min} to {r.noop_max} no-op frames, epsilon {r.epsilon:g}, sticky actions {r.sticky_actions:g}, "
        f"seed {r.seed}, {r.seconds:.0f} s"
    )
