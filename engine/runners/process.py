"""The main functions of a run's processes: the leading one, which the host starts, and the members, which that starts.

Light on purpose: the module of the runner, and torch with it, is imported in the new process only.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.config import RunConfig
from engine.errors import UserError
from engine.messages import Failed
from engine.runners.channel import Channel, HostGoneError, SharedScreen
from engine.text import printable, printable_stream, set_off

_PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


class HopelessError(Exception):
    """Training can't go on, and beginning again from the last checkpoint would only end the same way."""


def main(run: Path, config: RunConfig, connection: Connection, screen: SharedScreen, resume_from: Path | None) -> None:
    """Train; report a failure with its traceback. Ends quietly if the host is gone."""

    def train(channel: Channel) -> None:
        module = importlib.import_module(f"engine.runners.{config.runner}")
        runner = module.Runner(run, config, channel, screen, resume_from)
        try:
            runner.train()
        finally:
            runner.close()

    _work(connection, train)


def member_main(work: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """What a process does that the leading one has started: `work(channel, *arguments)`."""
    _work(connection, lambda channel: work(channel, *arguments))


def describe(error: BaseException) -> Failed:
    """A failure as a message."""
    usage = isinstance(error, UserError)
    reason = str(error) if usage else printable(f"{type(error).__name__}: {error}".split("\n")[0])
    return Failed(
        reason=reason,
        traceback=traceback.format_exc(),
        log_path="",
        checkpoint=None,
        usage=usage,
        final=usage or isinstance(error, HopelessError),
    )


def _work(connection: Connection, work: Callable[[Channel], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # stopping is the host's decision and comes as a command
    _end_with_parent()
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)  # both are the run's log
    channel = Channel(connection)
    try:
        work(channel)
    except HostGoneError:
        os._exit(1)
    except BaseException as error:
        print(set_off(traceback.format_exc()), file=sys.stderr)
        with contextlib.suppress(HostGoneError):
            channel.send(describe(error))
        sys.stderr.flush()
        os._exit(1)  # at once: an orderly exit waits for children, who may wait for this process


def _end_with_parent() -> None:
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
