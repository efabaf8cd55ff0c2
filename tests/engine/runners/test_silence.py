"""A process that other programs keep from running is not taken for one that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.runners.links import Silence

LIMIT_S = 0.5
SPIN = "while True: pass"
SLEEP = "while True: time.sleep(0.01)"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not Path("/proc/self/task").exists(), reason="this system does not tell what a thread waits for"
    ),
]


@contextmanager
def process(program: str, core: int, *, idle: bool = False) -> Iterator[int]:
    """A process that runs only on one core; with `idle` only when nothing else wants it. Yields its number."""
    policy = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n" if idle else ""
    lines = f"import os, time\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\n{policy}{program}"
    with subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started.pid
        finally:
            started.kill()


def overdue_after(silence: Silence, due: float, *, at_most_s: float) -> float:
    """Look until the process is overdue; returns how long after `due` that is, infinity if later than asked."""
    while time.monotonic() < due + at_most_s:
        if silence.is_too_long(due, time.monotonic()):
            return time.monotonic() - due
        time.sleep(0.02)
    return float("inf")


def test_a_silent_process_that_waits_for_a_core_is_spared_until_it_gets_one() -> None:
    core = min(os.sched_getaffinity(0))
    with process(SPIN, core, idle=True) as starved:
        with process(SPIN, core), process(SPIN, core):
            silence, due = Silence(starved, LIMIT_S), time.monotonic() + LIMIT_S
            assert overdue_after(silence, due, at_most_s=5 * LIMIT_S) == float("inf")
        assert overdue_after(silence, due, at_most_s=300) < float("inf")


def test_a_silent_process_that_waits_for_something_else_is_overdue_in_time() -> None:
    core = min(os.sched_getaffinity(0))
    with process(SPIN, core), process(SLEEP, core) as asleep:
        due = time.monotonic() + LIMIT_S
        silence = Silence(asleep, LIMIT_S)
        assert not silence.is_too_long(due, due - 0.01)
        assert overdue_after(silence, due, at_most_s=60) < float("inf")


def test_a_sign_of_life_gives_the_process_a_new_limit() -> None:
    core = min(os.sched_getaffinity(0))
    with process(SLEEP, core) as asleep:
        silence = Silence(asleep, LIMIT_S)
        assert silence.is_too_long(10.0, 10.1)
        assert not silence.is_too_long(10.6, 10.1)
        assert silence.is_too_long(10.6, 10.7)


def test_a_process_that_is_gone_counts_as_silent() -> None:
    with process(SLEEP, min(os.sched_getaffinity(0))) as pid:
        silence = Silence(pid, LIMIT_S)
    assert silence.is_too_long(10.0, 10.1)
