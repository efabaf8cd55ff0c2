"""Signals whose meaning another process decides, and what the children of such a process do about them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from engine.runtime.processes import ENDING, held

pytestmark = pytest.mark.process

TELL = "import signal; print([signal.getsignal(number) for number in (2, 15, 1)], signal.pthread_sigmask(0, ()))"
USUAL = "[<built-in function default_int_handler>, <Handlers.SIG_DFL: 0>, <Handlers.SIG_DFL: 0>] set()\n"
"""What `TELL` prints in a process with the handlers that Python begins with."""
PROCESS = f"""
import os, signal, subprocess, sys
from engine.runtime.processes import ENDING, disregard
disregard(*ENDING)
for number in ENDING:
    os.kill(os.getpid(), number)
if sys.argv[1] == "program":
    subprocess.run([sys.executable, "-c", {TELL!r}])
elif child := os.fork():
    os.waitpid(child, 0)
else:
    {TELL}
"""


@pytest.mark.parametrize("kind", ["program", "fork"])
def test_children_react_to_signals_that_their_parent_disregards(kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROCESS, kind], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, USUAL, "")


def test_a_process_that_is_started_meanwhile_holds_signals_back_until_it_has_handlers() -> None:
    begins = "import sys; print(1, flush=True); sys.stdin.readline(); from engine.runtime.processes import *"
    command = [sys.executable, "-c", f"{begins}; disregard(*ENDING)"]
    with held(), subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in ENDING:
            process.send_signal(number)
        process.communicate("\n")
    assert process.returncode == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
