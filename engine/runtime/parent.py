"""How a process ends with the one that started it."""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


def end_with_parent() -> None:
    """Nobody's child ends at once: by a thread that waits for the parent's end, and on Linux by the kernel, which
    reaches a process that is stopped, too."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    killed_with_parent()

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def killed_with_parent() -> None:
    """On Linux by the kernel, whatever this process is at, and stopped or not."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_stdin(
    hear: Callable[[bytes], object] = lambda data: None,
    leave: Callable[[], object] = lambda: None,
    *,
    in_s: float = 0.0,
) -> None:
    """Standard input is a pipe from the process that has asked for the work, and its end is that process's end, however
    it came: then `leave` is called, and what is not over `in_s` seconds later ends at once. `hear`: what is sent.
    """

    def read() -> None:
        while data := os.read(sys.stdin.fileno(), 4096):
            hear(data)
        leave()
        time.sleep(in_s)
        os._exit(1)

    threading.Thread(target=read, daemon=True, name="parent").start()
