"""`mario-tui eval`: runs the engine's evaluation in a separate process and prints the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.progress import Progress

from engine.errors import UserError
from engine.protocol.framing import decode_evaluation
from engine.protocol.messages import Episode, Evaluated, Failed
from engine.runtime.text import json_line
from mario_tui.data.format import counted
from mario_tui.engine_command import EngineCommand
from mario_tui.terminal.safe_console import SafeConsole


def evaluate(policy: Path, episodes: int, options: Sequence[str], *, as_json: bool) -> int:
    """Evaluate a policy and print the result. `options` go to the engine. Returns the exit status."""
    console = SafeConsole(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    command = EngineCommand("evaluate", str(policy), f"--episodes={episodes}", *options, decode=decode_evaluation)
    with command, progress:
        task = progress.add_task(f"evaluating {policy.name}", total=episodes)
        for report in command.messages():
            match report:
                case Episode():
                    progress.update(task, completed=report.episode)
                case Failed(usage=True):
                    raise UserError(report.reason)
                case Failed():
                    print(f"mario-tui: the evaluation failed: {report.reason}\n{report.traceback}", file=sys.stderr)
                    return 1
                case Evaluated():
                    progress.stop()
                    print(_as_json(report) if as_json else as_text(report))
                    return 0
                case _:
                    pass
        print(f"mario-tui: {command.crash_reason()}", file=sys.stderr)
    return 1


def _as_json(result: Evaluated) -> str:
    return json_line(msgspec.structs.asdict(result))


def as_text(r: Evaluated) -> str:
    """The result, in a few lines."""
    if r.game != "mario":
        return (
            f"{r.game}: {counted(r.episodes, 'game')}, mean score {r.mean_score:,.2f} "
            f"(95 % interval {r.mean_score_low:,.2f} to {r.mean_score_high:,.2f})\n"
            f"mean return {r.mean_return:,.2f}, length {r.mean_length:,.0f} environment steps\n"
            f"epsilon {r.epsilon:g}, {r.seconds:.0f} s"
        )
    return (
        f"stage {r.stage} on {r.emulator}: {r.clears}/{r.episodes} clears "
        f"({r.clear_rate:.0%}, 95 % interval {r.clear_rate_low:.0%} to {r.clear_rate_high:.0%})\n"
        f"mean return {r.mean_return:,.1f}, x {r.mean_x_pos:,.0f}, time left {r.mean_time_left:.0f}, "
        f"score {r.mean_score:,.0f}, length {r.mean_length:,.0f} environment steps\n"
        f"epsilon {r.epsilon:g}, 0 to {r.noop_max} no-op frames, {r.seconds:.0f} s"
    )
