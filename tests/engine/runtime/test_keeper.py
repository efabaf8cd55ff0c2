"""What a keeper ends after its process, with plain processes, and what it leaves alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.program import nobody_is_left, processes_of, wait_until

pytestmark = pytest.mark.process

LEADER = """
import os, subprocess, sys, time
from engine.runtime.processes import start_keeper, take_children
from engine.runtime.processes import ENDING, disregard
disregard(*ENDING)
if "takes" in sys.argv:
    take_children()
start_keeper()
try:
    os.wait()  # as code does which waits for all of its children
except ChildProcessError:
    pass
subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
subprocess.run(["sh", "-c", "setsid sleep 10000 >/dev/null 2>&1 &"])
if os.fork() == 0:  # it must not keep the keeper waiting
    time.sleep(10_000)
sys.stdin.read()
os._exit(0)
"""
TIDY = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("tidied").touch(), sys.exit()))
pathlib.Path("begun").touch()
while True: signal.pause()
"""


def leader(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A process with children, as soon as they have begun. It is the first of its session."""
    command = [sys.executable, "-c", LEADER, TIDY, *arguments]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, start_new_session=True)
    wait_until(lambda: (folder / "begun").exists() and len(processes_of(folder)) == 4, "the children")
    return process


def keeper_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(each.pid) == process.pid and "engine.runtime.processes" in each.cmdline():
                found.append(each)
    (keeper,) = found
    return keeper


@pytest.mark.parametrize("how", ["killed", "at its end"])
def test_children_get_sigterm_when_their_process_has_ended(how: str, tmp_path: Path) -> None:
    with leader(tmp_path, "takes") as process:
        keeper = keeper_of(process)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # a shutdown sends it to everybody at once
            keeper.send_signal(number)
        if how == "killed":
            process.kill()
        else:
            process.communicate()
    nobody_is_left(tmp_path)
    assert (tmp_path / "tidied").exists()


def test_the_children_of_a_users_own_process_are_left_to_it(tmp_path: Path) -> None:
    with leader(tmp_path) as process:
        children = {*processes_of(tmp_path)} - {psutil.Process(process.pid)}
        process.kill()
    try:
        assert len(children) == 3
    finally:
        for child in children:
            child.kill()


FORKING_THREADS = """
import os, sys, threading, time
from engine.runtime.processes import start_keeper, take_children
take_children()
together = threading.Barrier(16)
def work():
    together.wait()
    start_keeper()
    if os.fork() == 0:
        time.sleep(10_000)
threads = [threading.Thread(target=work) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
os._exit(0)
"""


def test_threads_that_fork_at_once_have_one_keeper_which_ends_what_they_have_forked(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING_THREADS], cwd=tmp_path, check=True, start_new_session=True)
    nobody_is_left(tmp_path)


GENERATIONS = """
import os, sys
from engine.runtime.processes import start_keeper, take_children
take_children()
start_keeper()
def in_child(then):
    if child := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    then()
def in_grandchild():
    assert [os.pread(file, 1, 0) for file in files] == [b"i"] * 9  # that of its parent
    os._exit(7)
def open_files():
    global files
    files = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(9)]
    in_child(in_grandchild)
in_child(open_files)
"""


def test_a_forked_child_closes_the_keepers_pipe_and_its_own_children_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("it")
    done = subprocess.run([sys.executable, "-c", GENERATIONS, str(tmp_path / "file")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")
