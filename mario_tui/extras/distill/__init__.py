"""`mario-tui distill`: one network that plays what several policies play. The engine distils in a separate process."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from types import FrameType

from engine.config.capabilities import CommandOption
from engine.config.fields import flag
from engine.config.game import game_of, games
from engine.errors import UserError
from engine.extras.distillation.contract import Distillation, distillable, distillation_of
from engine.protocol.json_lines import as_fields
from engine.protocol.messages import Failed
from engine.protocol.outcome import Outcome
from engine.protocol.results import DistillationOrder, DistillationProgress, Distilled, StudentEvaluation, TaskScore
from engine.runtime.files import expanded
from engine.runtime.formats import json_line
from engine.runtime.text import printable
from mario_tui.commands.options import (
    Parser,
    add_game_options,
    add_run_dir,
    existing,
    given_options,
    of_all,
    whole,
    within,
)
from mario_tui.data.format import counted, duration, is_cleared, judged_label, judged_value, outcome_of, percent
from mario_tui.engine_command import EngineCommand, failed
from mario_tui.evaluate import task_lines
from mario_tui.terminal.console import progress_bar

_SUFFIX = ".safetensors"
_EXIT_TIMEOUT_S = 2.0


def distill_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui distill",
        description="Teach one network what several policies play. They are the teachers: each labels what the student "
        "sees in its stages (Mario) or on its board (Snake). A stage of Mario can be given instead of a policy: then "
        "a search in the emulator finds a way to its flag, and what to do where the student fails.",
        epilog="Ctrl-C ends it; the best student so far is kept.",
    )
    teachers = parser.add_argument(
        "checkpoint",
        nargs="+",
        metavar="POLICY|STAGE",
        help="a policy file, a checkpoint folder, a run's name or path, latest, an included policy (mario-1-1), or a "
        "stage (1-3), which is taught by a search",
    )
    searched = [task for game in distillable() for task in distillation_of(game).searched]
    vars(teachers)["also_completed"] = searched  # by `mario-tui completion`
    parser.add_argument(
        "--into", type=expanded, default=Path(f"distilled{_SUFFIX}"), metavar="FILE",
        help=f"policy file to write (default: distilled{_SUFFIX})",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    add_game_options(parser, _options_of_all())
    parser.add_argument(
        "--initial-policy", metavar="POLICY", help="begin with the weights of this policy (default: random weights)"
    )
    parser.add_argument(
        "--steps", type=whole("--steps", 1, 10**12), default=500_000, metavar="N",
        help="environment steps, of all stages together (default: 500,000)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=within("--minutes", 0.01, 100_000), metavar="M",
        help="also stop after this time, of which a search for ways to the flag gets half; the last evaluation "
        "follows (default: no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-every", type=whole("--eval-every", 1, 10**12), default=50_000, metavar="N",
        help="environment steps between evaluations; the best student is kept (default: 50,000)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-episodes", type=whole("--eval-episodes", 1, 1000), default=10, metavar="N",
        help="episodes per evaluation and stage or board (default: 10)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-epsilon", type=within("--eval-epsilon", 0, 1), default=0.0, metavar="X",
        help="fraction of random actions in evaluations; 0: greedy (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole("--seed", 0, 2**32 - 1), default=0, metavar="N", help="random seed (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines: each evaluation, then a summary")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = distill_parser().parse_args(arguments)
    from engine.runs.checkpoints import policy_metadata
    from engine.runs.lookup import find_policy, origin_of

    searched = {task: game for game in games() for task in _distillation(game).searched}
    teachers = [
        name if name in searched else str(find_policy(name, existing(options.run_dir))) for name in options.checkpoint
    ]
    first = teachers[0]
    game = searched.get(first) or str(policy_metadata(Path(first))["game"])
    of_game = _distillation(game)
    for name in _options_of_all():
        if name not in of_game.options and hasattr(options, name):
            raise UserError(f"{flag(name)} can't be combined with policies for {game}")
    if game not in distillable():
        can = " or ".join(distillable())
        raise UserError(f"{origin_of(Path(first)).name}: game must be {can}, got {game}")
    searches = [searched[name] for name in teachers if name in searched]
    for name in of_game.search_options:
        if hasattr(options, name) and not searches:
            raise UserError(f"{flag(name)} needs a {game_of(game).tasks}; policies keep their own")
    into = _target(options.into, force=options.force)
    initial = options.initial_policy
    order = DistillationOrder(
        teachers=teachers,
        into=str(into),
        game=game,
        searched_by=searches[0] if searches else None,
        initial_policy=None if initial is None else str(find_policy(initial, existing(options.run_dir))),
        steps=options.steps,
        minutes=options.minutes,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
        eval_epsilon=options.eval_epsilon,
        seed=options.seed,
        own=given_options(vars(options), of_game.options, game),
    )
    return distill(order, as_json=options.json)


def _target(path: Path, *, force: bool) -> Path:
    """Return where the policy is written. Raises `UserError` if it can't be, before anything is learned."""
    if path.suffix != _SUFFIX:
        raise UserError(f"--into must end in {_SUFFIX}, got {str(path)!r}")
    folder = path.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"--into must be in a folder that can be written to, got {str(path)!r}")
    if path.is_dir() or (path.exists() and not force):
        raise UserError(f"--into: {path} exists already; --force overwrites it")
    return path.absolute()


def _distillation(game: str) -> Distillation:
    """Return how policies of a game are distilled; without options and searches if they can't be."""
    return distillation_of(game) if game in distillable() else Distillation(network="", lanes=0)


def _options_of_all() -> dict[str, CommandOption]:
    return of_all(lambda game: _distillation(game.name).options)


def distill(order: DistillationOrder, *, as_json: bool) -> int:
    """Distil policies of a game and print the result. Returns the exit status.

    Ctrl-C or SIGTERM ends it in order; a second Ctrl-C at once.
    """
    outcome, steps, minutes = outcome_of(order.game), order.steps, order.minutes
    command = EngineCommand("engine.extras.distillation.distill", order.argument(), leave_s=_EXIT_TIMEOUT_S)

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
