"""SIGKILL during the writing of a checkpoint: all checkpoints are complete, and no announced one is lost."""

from __future__ import annotations

import contextlib
import multiprocessing
from pathlib import Path

import pytest

from engine.runs import checkpoints
from engine.runs.registry import create_run
from engine.runs.run import Run
from tests.support import checkpoint_writer
from tests.support.checkpoint_writer import KEEP, config, make_learner, tensors, write_forever
from tests.support.program import PATIENCE_S

pytestmark = pytest.mark.process

FILES = 6
"""Files of a checkpoint."""


def wait_for_files(run: Run, files: int) -> None:
    """Wait until a checkpoint that is being written has so many files."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # it was committed meanwhile
            if any(len(list(folder.iterdir())) >= files for folder in run.path.glob(".step-*")):
                return


def kill_writers(run: Run, kills: int) -> int:
    """Kill `kills` writers, one after the other, and check what each left; returns how many left partial files."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([checkpoint_writer.__name__])
    interrupted = 0
    for number in range(kills):
        ours, theirs = context.Pipe(duplex=False)
        writer = context.Process(target=write_forever, args=(run.path, theirs), daemon=True)
        writer.start()
        theirs.close()
        assert ours.poll(PATIENCE_S), "no checkpoint was written"
        for _ in range(2 + number % 3):  # every third checkpoint replaces the one before
            announced = ours.recv()
        if part := number % (FILES + 1):  # else between two checkpoints
            wait_for_files(run, part - 1)
        writer.kill()
        writer.join()
        try:
            while True:
                announced = ours.recv()
        except EOFError:
            pass
        interrupted += any(run.path.glob(".step-*"))
        check(run, announced)
    return interrupted


def check(run: Run, announced: int) -> None:
    """Check that every committed checkpoint is complete and that the newest one can be resumed."""
    found = [checkpoints.verify(path).env_steps for path in run.path.glob("step-*")]
    assert found and len(found) <= KEEP + 2  # one that is not yet rotated away, one that is being replaced
    newest = checkpoints.newest(run)
    assert newest is not None
    env_steps = checkpoints.verify(newest).env_steps
    assert max(found) == env_steps >= announced
    learner = make_learner(run.config(), newest)
    assert learner.updates == env_steps
    assert all((tensor == env_steps).all() for tensor in tensors(learner))
    learner.close()


@pytest.mark.long
def test_the_newest_complete_checkpoint_always_loads(tmp_path: Path) -> None:
    assert kill_writers(create_run(config(tmp_path)), 10) >= 2


@pytest.mark.long
def test_the_newest_complete_checkpoint_always_loads_200_times(tmp_path: Path) -> None:
    assert kill_writers(create_run(config(tmp_path)), 200) >= 50
