"""The runner's end of the pipe to its host, and the memory in which it shows the rank-0 game.

One pipe a process, small typed messages only. The picture lies in memory shared once at the start; a counter that is
odd while it is being written lets the host notice a torn read.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.envs.emulator import SCREEN_SHAPE
from engine.messages import Beat, Command, Log, Pause, Report, Resume, Set, Stop, Thought, decode_command, encode

BEAT_S = 20.0
"""Seconds of silence after which a leading process is taken to hang, unless it said otherwise."""
START_S = 600.0
"""Seconds of silence after which a process that starts is taken to hang: it may compile, and on nes-py each lane
replays the log of its start."""

_THOUGHT_BYTES = 2**16
"""Room for an encoded thought: four pictures of 84x84 and a few hundred Q-values fit twice."""
_encode_thought = msgspec.msgpack.Encoder().encode
_decode_thought = msgspec.msgpack.Decoder(Thought).decode


class HostGoneError(Exception):
    """The host died; a runner without its host has nobody to report to and ends."""


class Channel:
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


class Patience:
    """Of who watches others with others: what held up the watcher, a machine that stood still say, held them up, too.

    Args:
        beat_s: the time within which they are heard of.
    """

    def __init__(self, beat_s: float) -> None:
        self._beat_s, self._until = beat_s, -math.inf

    def spares(self, held_up_s: float) -> bool:
        """Whether they still have time, now that the watcher comes so late."""
        now = time.monotonic()
        if held_up_s > self._beat_s / 4:
            self._until = now + self._beat_s
        return now <= self._until


class SharedScreen:
    """One picture, uint8 [240, 256, 3], what the agent thinks of it, and a counter, in memory that parent and child
    share.

    multiprocessing's own arena: a file in /dev/shm, or in the temporary folder if that is too small, which is unlinked
    as soon as it is made, so that nothing is left whoever is killed.
    """

    def __init__(self, context: BaseContext) -> None:
        self._memory: Any = context.RawArray(ctypes.c_uint8, 16 + int(np.prod(SCREEN_SHAPE)) + _THOUGHT_BYTES)

    def _views(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]:
        """Counter, bytes of the thought, picture, thought."""
        raw = np.frombuffer(self._memory, np.uint8)
        head, pixels, thought = np.split(raw, [16, raw.size - _THOUGHT_BYTES])
        counter, length = head.view(np.int64)[:, None]
        return counter, length, pixels.reshape(SCREEN_SHAPE), thought

    def write(self, picture: NDArray[np.uint8], thought: Thought | None = None) -> None:
        counter, length, pixels, room = self._views()
        encoded = b"" if thought is None else _encode_thought(thought)
        if len(encoded) > _THOUGHT_BYTES and thought is not None:  # of a huge board: without what was seen
            encoded = _encode_thought(msgspec.structs.replace(thought, shape=(0, 0, 0, 0), seen=b""))
        counter += 1 + counter % 2  # odd, also where a former writer died in the middle
        pixels[:] = picture
        room[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        length[:] = len(encoded)
        counter += 1

    def read(self, seen: int) -> tuple[int, bytes, Thought | None] | None:
        """Counter, picture and thought, or None if it is still that with counter `seen` or is being written."""
        counter, length, pixels, room = self._views()
        before = int(counter[0])
        if before == seen or before % 2:
            return None
        data, encoded = pixels.tobytes(), room[: int(length[0])].tobytes()
        if int(counter[0]) != before:
            return None
        return before, data, _thought(encoded)


def _thought(encoded: bytes) -> Thought | None:
    """The thought, or None: there is none, or two processes wrote at once while one replaced the other."""
    try:
        return _decode_thought(encoded) if encoded else None
    except msgspec.DecodeError:
        return None
