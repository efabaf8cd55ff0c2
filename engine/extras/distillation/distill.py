"""The process behind `mario-tui distill`: teaches one student network what several policies play.

`python -m engine.extras.distillation.distill ORDER` writes packed messages to its standard output:
progress, evaluations, and at its end `Distilled` or `Failed`. A teacher is a policy file, or a task that is taught by a
search. Each student that is the best so far replaces the file. When standard input closes it stops; if nothing was
evaluated by then, it writes the student as it is.
"""

from __future__ import annotations

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
from engine.commands.answers import answered, order_of, take_stdout
from engine.config.capabilities import HasEvaluationConditions
from engine.config.game import game_of, own_options
from engine.extras.distillation.contract import distillation_of
from engine.extras.distillation.distiller import Budget, Distiller
from engine.extras.distillation.tasks import CONDITIONS
from engine.extras.distillation.teachers import check_initial, describe_student, load_teachers
from engine.protocol.results import DistillationOrder, DistillationReport, Distilled, StudentEvaluation
from engine.runs.checkpoints import POLICY_FORMAT
from engine.runtime.files import replacing
from engine.runtime.processes import disregard, end_with_stdin, killed_with_parent
from engine.runtime.threads import thread_budget

_DECISIVE = ("steps", "eval_every", "eval_episodes")
"""Options on which the student depends, for the policy's metadata, besides those of the game. Teachers, network and
seed have fields of their own."""
_LEAVE_S = 60.0
"""Time to write the student after standard input has closed."""


def main() -> int:
    """See the module's docstring."""
    order = order_of(DistillationOrder)
    disregard(signal.SIGINT, signal.SIGTERM)  # they are for the front end, which closes standard input
    killed_with_parent()
    stopped = threading.Event()
    end_with_stdin(on_close=stopped.set, timeout_s=_LEAVE_S)
    send = take_stdout()
    return answered(lambda: _distill(order, stopped, send), send)


def _distill(options: DistillationOrder, stopped: threading.Event, send: Callable[[DistillationReport], None]) -> None:
    game, into, own = game_of(options.game), Path(options.into), dict(options.own)
    initial = None if options.initial_policy is None else Path(options.initial_policy)
    distillation = distillation_of(game.name)
    for_search = {name: own.pop(name) for name in distillation.search_options if name in own}
    teachers = load_teachers(options.teachers, options.searched_by, for_search)
    threads = thread_budget(1)
    torch.set_num_threads(threads.torch_threads)
    student = describe_student(teachers, own.pop("network", None))
    if initial is not None:
        check_initial(initial, student)
    distiller = Distiller(
        teachers,
        student,
        seed=options.seed,
        threads=threads.lane_threads,
        options=own,
        eval_epsilon=options.eval_epsilon,
    )
    if initial is not None:
        distiller.student.load(initial)
    kept: StudentEvaluation | None = None
    replaces = into.exists()
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
            if isinstance(game, HasEvaluationConditions):
                said["evaluation"] = msgspec.structs.asdict(conditions)
        _save(distiller.student.average, said, into)

    budget = Budget(
        steps=options.steps,
        seconds=math.inf if options.minutes is None else 60 * options.minutes,
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
            policy=options.into if kept is not None or not replaces else None,
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
