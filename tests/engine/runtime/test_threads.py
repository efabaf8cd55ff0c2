"""How many cores there are, and which ones restricted runs get."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections import Counter
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from engine.runtime.threads import available_cores, use_at_most
from tests.support.program import child


def _restricted(cores: set[int], told: Connection, over: Event) -> None:
    os.sched_setaffinity(0, cores)
    use_at_most(1)
    told.send(os.sched_getaffinity(0))
    over.wait()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
@pytest.mark.process
def test_restricted_runs_spread_evenly_over_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    spawn = multiprocessing.get_context("spawn")
    heard, told = spawn.Pipe(duplex=False)
    over = spawn.Event()
    cores = set(sorted(os.sched_getaffinity(0))[:2])
    with contextlib.ExitStack() as processes:
        for _ in range(3 * len(cores)):
            processes.enter_context(child(_restricted, cores, told, over))
        found = [heard.recv() for _ in range(3 * len(cores))]
        over.set()
    assert Counter(core for each in found for core in each) == dict.fromkeys(cores, 3)


def test_cores_are_counted_where_a_process_can_not_ask_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    assert available_cores(tmp_path) == os.cpu_count()
