"""`mario-tui distill`: runs the engine's distillation in a separate process and prints its evaluations and result."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType

from engine.protocol.framing import decode_distillation
from engine.protocol.json_lines import as_fields
from engine.protocol.messages import Failed
from engine.protocol.outcome import Outcome
from engine.protocol.results import DistillationProgress, Distilled, StudentEvaluation, TaskScore
from engine.runtime.json_text import json_line
from engine.runtime.text import printable
from mario_tui.data.format import counted, duration, percent
from mario_tui.data.outcome_text import is_cleared, judged_label, judged_value, outcome_of
from mario_tui.engine_command import EngineCommand, failed
from mario_tui.evaluate import task_lines
from mario_tui.terminal.progress_bar import progress_bar

_EXIT_TIMEOUT_S = 2.0


def distill(arguments: Sequence[str], game: str, steps: int, minutes: float | None, *, as_json: bool) -> int:
    """Distil policies of a game and print the result. `arguments` go to the engine. Returns the exit status.

    Ctrl-C or SIGTERM ends it in order; a second Ctrl-C at once. `steps` and `minutes` are its limits.
    """
    outcome = outcome_of(game)
    command = EngineCommand("distill", *arguments, decode=decode_distillation, leave_s=_EXIT_TIMEOUT_S)

    def end(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        command.end()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end)  # before the progress bar is imported: Python loses some interrupts of an import
    with command, progress_bar("distilling", 1.0) as show:

        def tell(report: DistillationProgress | StudentEvaluation) -> None:
            if isinstance(report, StudentEvaluation):
                _print(_as_json("evaluation", report, outcome) if as_json else _evaluation(report, outcome))
                return
            done = max(report.env_steps / steps, report.seconds / (60 * minutes) if minutes else 0.0)
            show(done, report.searching or f"distilling, agreement {report.agreement:.0%}")

        result = command.result(Distilled, tell)
    if isinstance(result, Failed):
        return failed("the distillation", result)
    _print(_as_json("summary", result, outcome) if as_json else _result(result, outcome))
    return 0


def _print(text: str) -> None:
    print(text, flush=True)


def _as_json(kind: str, content: StudentEvaluation | Distilled, outcome: Outcome) -> str:
    fields = as_fields(content, outcome)
    if isinstance(content, Distilled) and content.evaluation is not None:
        fields["evaluation"] = as_fields(content.evaluation, outcome)
    return json_line({"event": kind, **fields})


def _evaluation(e: StudentEvaluation, outcome: Outcome) -> str:
    """An evaluation, in one line."""
    tasks = ", ".join(f"{task.task} {_short(task, outcome)}" for task in e.tasks)
    return printable(f"{_judged(e, outcome)} ({tasks}){', best so far' if e.best else ''}")


def _judged(e: StudentEvaluation, outcome: Outcome) -> str:
    value, label = judged_value(outcome, e.clear_rate, e.mean_return, e.results), judged_label(outcome)
    how = f"{percent(value)} {label}" if is_cleared(outcome) else f"mean {label} {value:.1f}"
    return f"{counted(e.env_steps, 'step')}: {how}"


def _short(task: TaskScore, outcome: Outcome) -> str:
    value = judged_value(outcome, task.clears / task.episodes, task.mean_return, task.results)
    return f"{100 * value:.0f}" if is_cleared(outcome) else f"{value:.1f}"


def _result(r: Distilled, outcome: Outcome) -> str:
    """The student that was kept, in a few lines."""
    if r.policy is None:
        return "stopped before the first evaluation: the earlier file was not replaced"
    lines = [f"wrote {r.policy}: {r.game}, network {r.network}"]
    if r.evaluation is None:
        lines.append("stopped before the first evaluation: the student as it was")
    else:
        lines.append(f"best at {_judged(r.evaluation, outcome)}")
        lines += task_lines(r.evaluation.tasks, outcome)
    lines.append(f"{counted(r.env_steps, 'environment step')}, {counted(r.updates, 'update')}, {duration(r.seconds)}")
    return "\n".join(map(printable, lines))
