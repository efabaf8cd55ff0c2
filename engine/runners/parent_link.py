"""A process's link to the one that started it: the coordinator's to the host, a member's to its coordinator."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from engine.protocol.commands import Command, Pause, Resume, Set, Stop
from engine.protocol.failures import describe
from engine.protocol.messages import Beat, Log, Report
from engine.runners.message_queue import CommandQueue, ReportQueue
from engine.runners.watchdog import SILENCE_LIMIT_S
from engine.runtime.text import set_off


class ParentGoneError(Exception):
    """The process at the other end is gone. A process of a run exits with the one that started it."""


class ParentLink:
    """Commands in, reports out, the latter from any thread.

    Without `commands` none ever come: a member reads its coordinator's orders in the shared state.
    """

    def __init__(self, reports: ReportQueue, commands: CommandQueue | None = None) -> None:
        self._reports, self._commands = reports, commands
        self._waiting = Outstanding()
        self._beaten_at = float("-inf")
        self.on_beat: Callable[[float], object] = lambda within_s: None
        """Called with every heartbeat, and the seconds until the next one."""

    def commands(self, wait_s: float = 0.0) -> list[Command]:
        """Commands that have come, or come within `wait_s` seconds, each asked for once."""
        self._receive(wait_s)
        return self._waiting.take()

    @property
    def stop_waits(self) -> bool:
        """Whether the next `commands` has a stop: what takes long is better given up."""
        self._receive(0)
        return Stop in self._waiting

    def _receive(self, wait_s: float) -> None:
        if self._commands is None:
            return
        try:
            while self._commands.poll(0 if self._waiting else wait_s):
                self._waiting.put(self._commands.get())
        except (EOFError, OSError):
            raise ParentGoneError from None

    def send(self, report: Report) -> None:
        try:
            self._reports.put(report)
        except OSError:
            raise ParentGoneError from None

    def beat(self, within_s: float | None = None) -> None:
        """Send a heartbeat, at most once a second.

        With `within_s`, at once: the next sign of life may take that many seconds.
        """
        now, silence_s = time.monotonic(), SILENCE_LIMIT_S if within_s is None else within_s
        if within_s is not None or now - self._beaten_at >= 1:
            self._beaten_at = now
            self.send(Beat(within_s=silence_s))
        self.on_beat(silence_s)

    def log(self, text: str, level: Any = "info") -> None:
        self.send(Log(at=time.time(), level=level, text=text))

    def fail(self, error: BaseException) -> NoReturn:
        """From any thread: report why this process can't go on, and end it. Silently if the other end is gone."""
        if not isinstance(error, ParentGoneError):
            failed = describe(error)
            with contextlib.suppress(ParentGoneError):
                self.send(failed)
            with contextlib.suppress(OSError):  # the disk of run.log may be full
                print(set_off(failed.traceback or failed.reason), file=sys.stderr, flush=True)
        os._exit(1)  # an orderly exit waits for children, which may be waiting for this process


class Outstanding:
    """Commands waiting to be taken.

    A new one replaces an older one of its kind, so holding a key down queues at most one command.
    """

    def __init__(self) -> None:
        self._commands: dict[object, Command] = {}

    def put(self, command: Command) -> None:
        match command:
            case Pause() | Resume():
                kind: object = Pause
            case Set():
                kind = command.name
            case _:
                kind = type(command)
        self._commands.pop(kind, None)  # the order is that of the newest
        self._commands[kind] = command

    def take(self) -> list[Command]:
        taken, self._commands = list(self._commands.values()), {}
        return taken

    def __contains__(self, kind: type[Command]) -> bool:
        return kind in self._commands

    def __len__(self) -> int:
        return len(self._commands)
