"""Giving the terminal away: to the shell (Ctrl-Z), together with what has started this program, such as `make train`;
or to another program until that ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import psutil
from textual.app import App

from engine.runtime.signals import handling

_POLL_S = 0.1


def has_shell() -> bool:
    """Whether a shell could resume this process: the group of this process has a parent in the same session. Otherwise
    it is orphaned, as in a terminal window that was opened for this program alone."""
    group, session = os.getpgrp(), os.getsid(0)
    process: psutil.Process | None = psutil.Process()
    try:
        while process is not None and os.getpgid(process.pid) == group:
            process = process.parent()
        return process is not None and os.getsid(process.pid) == session
    except (OSError, psutil.Error):
        return False


def suspend(app: App[Any]) -> None:
    """Stop the whole group in the foreground until the shell resumes it. Called in the main thread.

    Textual stops only its own process, so a `make` that waits for it would keep the terminal. And it restores the
    terminal in a signal handler, which may run after the shell has printed its prompt.
    """
    with app.suspend():
        handler_of_textual = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.killpg(os.getpgrp(), signal.SIGTSTP)  # returns when the shell has resumed the group
        finally:
            signal.signal(signal.SIGTSTP, handler_of_textual)


def run_in_front(app: App[Any], command: Sequence[str]) -> None:
    """Let another program have the terminal until it ends; if it fails, until Enter was pressed, so that its message
    can be read.

    Called in the main thread. SIGTERM and SIGHUP are passed on, and the event loop handles them once the other program
    has ended. Raises `SuspendNotSupported` if this program has no terminal, as in a browser.
    """
    received = list[int]()
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)  # the event loop, which is blocked, is told through its wakeup file
        if process is not None:
            process.send_signal(number)

    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}  # Ctrl-C is for it
    with handling(handlers), app.suspend():
        process = subprocess.Popen(command)
        for number in received:
            process.send_signal(number)
        if process.wait() and not received:
            print("press Enter to go back", file=sys.stderr, flush=True)
            while not received and not select.select([sys.stdin], [], [], _POLL_S)[0]:
                pass
            if not received:
                sys.stdin.readline()
