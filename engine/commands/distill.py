"""The process behind `mario-tui distill`: teaches one student network what several policies play.

`python -m engine.commands.distill TEACHER ... --into FILE` writes packed messages to its standard output: progress,
evaluations, and at its end `Distilled` or `Failed`. A teacher is a policy file, or a task that is taught by a search.
Each student that is the best so far replaces FILE. When standard input closes it
stops; if nothing was evaluated by then, it writes the student as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import torch as safetensors

from engine import __version__
from engine.commands.answers import answered, take_stdout
from engine.config.command_line import own_values
from engine.config.games import game_of, own_options
from engine.distillation.distiller import Budget, Distiller
from engine.distillation.tasks import CONDITIONS
from engine.distillation.teachers import check_initial, describe_student, distillation_of, load_teachers
from engine.protocol.results import DistillationReport, Distilled, StudentEvaluation
from engine.runs.checkpoints import POLICY_FORMAT
from engine.runtime.files import replacing
from engine.runtime.parent import end_with_stdin, killed_with_parent
from engine.runtime.threads import thread_budget

_DECISIVE = ("steps", "eval_every", "eval_episodes")
"""Options on which the student depends, for the policy's metadata, besides those of the game. Teachers, network and
seed have fields of their own."""
_LEAVE_S = 60.0
"""Time to write the student after standard input has closed."""


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="engine.commands.distill", allow_abbrev=False)
    parser.add_argument("teachers", nargs="+")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--game", required=True)
    parser.add_argument("--searched-by")
    parser.add_argument("--initial-policy", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--eval-every", type=int, required=True)
    parser.add_argument("--eval-episodes", type=int, required=True)
    parser.add_argument("--eval-epsilon", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options, others = parser.parse_known_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the front end, which closes standard input
        signal.signal(number, signal.SIG_IGN)
    killed_with_parent()
    stopped = threading.Event()
    end_with_stdin(on_close=stopped.set, timeout_s=_LEAVE_S)
    send = take_stdout()
    return answered(lambda: _distill(options, others, stopped, send), send)


def _distill(
    options: argparse.Namespace,
    others: list[str],
    stopped: threading.Event,
    send: Callable[[DistillationReport], None],
) -> None:
    game = game_of(options.game)
    distillation = distillation_of(game.name)
    own = own_values(others, game.name, distillation.options)
    for_search = {name: own.pop(name) for name in distillation.search_options if name in own}
    teachers = load_teachers(options.teachers, options.searched_by, for_search)
    threads = thread_budget(1)
    torch.set_num_threads(threads.torch_threads)
    student = describe_student(teachers, own.pop("network", None))
    if options.initial_policy is not None:
        check_initial(options.initial_policy, student)
    distiller = Distiller(
        teachers,
        student,
        seed=options.seed,
        threads=threads.lane_threads,
        options=own,
        eval_epsilon=options.eval_epsilon,
    )
    if options.initial_policy is not None:
        distiller.student.load(options.initial_policy)
    kept: StudentEvaluation | None = None
    replaces = options.into.exists()
    conditions = msgspec.structs.replace(CONDITIONS, epsilon=options.eval_epsilon)

    def keep_if_best(evaluation: StudentEvaluation) -> None:
        nonlocal kept
        if evaluation.best:
            kept = evaluation
            save()
        send(evaluation)

    def save() -> None:
        counts = {"env_steps": distiller.env_steps, "updates": distiller.student.updates, "seed": options.seed}
        said = {"version": __version__, **student, **counts, "minutes": distiller.seconds / 60}
        told = {name: own.get(name, own_options(game.name)[name].default) for name in distillation.told}
        said["options"] = told | {name: getattr(options, name) for name in _DECISIVE}
        if options.eval_epsilon:
            said["options"]["eval_epsilon"] = options.eval_epsilon
        if kept is not None:
            said["score"] = [kept.clear_rate, kept.mean_return]
            if len(game.conditions) > 1:
                said["evaluation"] = msgspec.structs.asdict(conditions)
        _save(distiller.student.average, said, options.into)

    budget = Budget(
        steps=options.steps,
        seconds=60 * options.minutes,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
    )
    try:
        distiller.learn(budget, stopped.is_set, send, keep_if_best)
    finally:
        distiller.close()
    if kept is None and not replaces:
        save()
    send(
        Distilled(
            policy=str(options.into) if kept is not None or not replaces else None,
            game=student["game"],
            network=student["network"],
            env_steps=distiller.env_steps,
            updates=distiller.student.updates,
            seconds=distiller.seconds,
            evaluation=kept,
        )
    )


def _save(network: torch.nn.Module, policy: dict[str, Any], into: Path) -> None:
    """Replace a policy file in one step."""
    with replacing(into, 0o666) as file:
        file.write(safetensors.save(network.state_dict(), {"format": POLICY_FORMAT, "policy": json.dumps(policy)}))


if __name__ == "__main__":
    sys.exit(main())
