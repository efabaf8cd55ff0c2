"""The runner's end of the pipe to its host, and the memory in which it shows the rank-0 game.

One pipe a process, small typed messages only. The picture lies in memory shared once at the start; a counter that is
odd while it is being written lets the host notice a torn read.
"""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from engine.protocol.framing import decode_command, encode
from engine.protocol.messages import Beat, Command, Log, Pause, Report, Resume, Set, Stop
from engine.runners.watchdog import BEAT_S


class HostGoneError(Exception):
    """The host died; a runner without its host has nobody to report to and ends."""


class HostLink:
    """Commands in, reports out, the latter from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._waiting = Outstanding()
        self._beaten_at = float("-inf")

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
        try:
            while self._connection.poll(0 if self._waiting else wait_s):
                self._waiting.put(decode_command(self._connection.recv_bytes()))
        except (EOFError, OSError):
            raise HostGoneError from None

    def send(self, report: Report) -> None:
        try:
            with self._sending:
                self._connection.send_bytes(encode(report))
        except OSError:
            raise HostGoneError from None

    def beat(self, within_s: float | None = None) -> None:
        """Tell the host that this process goes on; once a second is enough and done.

        With `within_s`, at once: it may be silent for that long.
        """
        now = time.monotonic()
        if within_s is not None or now - self._beaten_at >= 1:
            self._beaten_at = now
            self.send(Beat(within_s=BEAT_S if within_s is None else within_s))

    def log(self, text: str, level: Any = "info") -> None:
        self.send(Log(at=time.time(), level=level, text=text))


class Outstanding:
    """Commands that nobody has taken yet. One replaces an older one that asks for the same, so that there are never
    more than there are kinds, however long a key is held."""

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
