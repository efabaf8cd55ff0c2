"""Ending a process when the process that started it ends."""

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
    """Exit as soon as the parent process ends; does nothing in a process that multiprocessing did not start.

    A thread waits for the parent's end. On Linux the kernel kills the process as well, even if it is stopped (SIGSTOP).
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    killed_with_parent()

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def killed_with_parent() -> None:
    """On Linux, have the kernel kill this process when its parent ends, even if it is stopped; elsewhere do nothing."""
    _signal_at_parents_end(signal.SIGKILL)


def continued_with_parent() -> None:
    """On Linux, have the kernel continue this process, if it is stopped, when its parent ends: `end_with_stdin` can
    then clean up. Elsewhere do nothing."""
    _signal_at_parents_end(signal.SIGCONT)


def _until_closed() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass


def end_with_stdin(
    read: Callable[[], object] = _until_closed, on_close: Callable[[], object] = lambda: None, *, timeout_s: float = 0.0
) -> None:
    """Exit when standard input closes: it is a pipe from the process that asked for the work.

    A thread calls `read`, which returns at the end of standard input. Then it calls `on_close`, waits `timeout_s`
    seconds and ends the process with status 1.
    """

    def wait() -> None:
        read()
        on_close()
        time.sleep(timeout_s)
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def _signal_at_parents_end(number: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
