"""The runner's end of the pipe to its host, and the memory in which it shows the rank-0 game.

One pipe a process, small typed messages only. The picture lies in memory shared once at the start; a counter that is
odd while it is being written lets the host notice a torn read.
"""

from __future__ import annotations

import ctypes
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.envs.emulator import SCREEN_SHAPE
from engine.messages import Beat, Command, Log, Report, decode_command, encode

BEAT_S = 20.0
"""Seconds of silence after which a leading process is taken to hang, unless it said otherwise."""


class HostGoneError(Exception):
    """The host died; a runner without its host has nobody to report to and ends."""


class Channel:
    """Commands in, reports out, the latter from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._beaten_at = float("-inf")

    def commands(self, wait_s: float = 0.0) -> list[Command]:
        """Commands that have come, or come within `wait_s` seconds."""
        received: list[Command] = []
        try:
            while self._connection.poll(0 if received else wait_s):
                received.append(decode_command(self._connection.recv_bytes()))
        except (EOFError, OSError):
            raise HostGoneError from None
        return received

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


class SharedScreen:
    """One picture, uint8 [240, 256, 3], and a counter, in memory that parent and child share.

    multiprocessing's own arena: a file in /dev/shm, or in the temporary folder if that is too small, which is unlinked
    as soon as it is made, so that nothing is left whoever is killed.
    """

    def __init__(self, context: BaseContext) -> None:
        self._memory: Any = context.RawArray(ctypes.c_uint8, 8 + int(np.prod(SCREEN_SHAPE)))

    def _views(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        raw = np.frombuffer(self._memory, np.uint8)
        return raw[:8].view(np.int64), raw[8:].reshape(SCREEN_SHAPE)

    def write(self, picture: NDArray[np.uint8]) -> None:
        counter, pixels = self._views()
        counter += 1 + counter % 2  # odd, also where a former writer died in the middle
        pixels[:] = picture
        counter += 1

    def read(self, seen: int) -> tuple[int, bytes] | None:
        """The picture and its counter, or None if it is still the one with counter `seen` or is being written."""
        counter, pixels = self._views()
        before = int(counter[0])
        if before == seen or before % 2:
            return None
        data = pixels.tobytes()
        return (before, data) if int(counter[0]) == before else None
