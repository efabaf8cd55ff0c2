"""Processes compile before their first heartbeat, so that no machine is too slow or too busy for it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config.reading import make_config
from engine.config.runners import Choices
from engine.console.compiler.kernels import _Compiled
from engine.runners.actor_learner import ActorLearner
from engine.runners.apex_actor import ApexActor
from engine.runners.links import FrameMailbox
from engine.runners.shared_state import SharedState
from engine.runners.start import Start
from tests.support.program import PATIENCE_S, child

pytestmark = pytest.mark.process

OPTIONS: dict[str, Any] = {"parallel_envs": 2, "batch_size": 8, "burnin": 20, "buffer_size": 1000, "device": "cpu"}
TASKS: dict[str, dict[str, Any]] = {
    "mario": {"game": "mario"},
    "snake": {"game": "snake", "board": "5x5"},
    "late snake": {"game": "snake", "board": "5x5", "late_starts": 0.5, "paths": False, "prioritized_replay": False},
    "tetris": {"game": "tetris"},
    "tetris in columns": {"game": "tetris", "afterstates": False},
}


def compiled() -> set[str]:
    """The names of the kernels that are compiled in this process."""
    return {
        each._function.__qualname__ for each in gc.get_objects() if type(each) is _Compiled and each._engine is not None
    }


def _act_and_learn(run: Path, task: dict[str, Any]) -> None:
    config = make_config({**OPTIONS, **task})
    context: Any = torch.multiprocessing.get_context("spawn")
    shared_state = SharedState(1)
    shared_state.open()
    shared_state.show_screen(1000.0)
    each = ActorLearner(Start(run, config), shared_state, FrameMailbox(context), lambda text: None)
    rehearsed = compiled()
    while each.learner.updates < 3:
        each.iterate()
    each.close()
    assert compiled() - rehearsed == set()


def _act(task: dict[str, Any]) -> None:
    config = make_config({**OPTIONS, **task, "runner": "apex", "num_actors": 1})
    choices = Choices(device="cpu", precision="bfloat16", threads=1, batch_size=8)
    actor = ApexActor(config, choices, 0, 0, 0, 0.0, 1)
    rehearsed = compiled()
    for _ in range(50):
        actor.finish(actor.choose(0, None, None, 0.0))
    actor.actor.show(0)
    actor.close()
    assert compiled() - rehearsed == set()


def _act_then_learn(run: Path, task: dict[str, Any]) -> None:
    _act(task)
    _act_and_learn(run, task)


@pytest.mark.parametrize(
    "task",
    [
        "mario",
        "snake",
        *(pytest.param(task, marks=pytest.mark.long) for task in sorted(TASKS.keys() - {"mario", "snake"})),
    ],
)
def test_after_its_rehearsal_a_process_compiles_nothing(task: str, tmp_path: Path) -> None:
    with child(_act_then_learn, tmp_path, TASKS[task]) as process:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
