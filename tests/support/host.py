"""What a host does for its clients, without a runner."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.host.event_server import EventServer, socket_path
from engine.protocol.commands import Command
from engine.protocol.framing import pack
from engine.protocol.messages import PROTOCOL, Hello, Point, Progress, State
from engine.runs.recording import read_recording
from engine.runs.run import Run
from tests.support.app import RECORDING, hold


def framed(body: bytes) -> bytes:
    """A message as on a stream."""
    return struct.pack(">I", len(body)) + body


def nested(kind: str) -> bytes:
    """A message with an unknown field that is nested 60,000 deep."""
    return framed(b"\x82\xa4type" + msgspec.msgpack.encode(kind) + b"\xa4more" + b"\x91" * 60_000 + b"\xc0")


def _frame(**changes: Any) -> bytes:
    """A picture that contradicts itself."""
    fields = {"type": "Frame", "index": 1, "height": 2, "width": 2, "rgb": bytes(12)}
    return framed(msgspec.msgpack.encode(fields | changes))


def _thought(**changes: Any) -> bytes:
    fields = {"q_values": [1.0], "action": 0, "random": False, "shape": (1, 1, 2, 2), "seen": bytes(4)}
    return _frame(thought=fields | changes)


INVALID_EVENTS = {
    "size": b"\xff\xff\xff\xff",
    "nested": nested("Log"),
    "unused byte": framed(b"\xc1"),
    "unknown": framed(msgspec.msgpack.encode({"type": "Nothing"})),
    "few pixels": _frame(rgb=bytes(11)),
    "no pixels": _frame(height=0, rgb=b""),
    "broad": _frame(height=1, width=2**20, rgb=bytes(3 * 2**20)),
    "huge": _frame(height=2**62, width=2**62),
    "negative": _frame(height=-2, width=-2),
    "few seen": _thought(seen=b""),
    "shape below zero": _thought(shape=(-1, -1, 2, 2)),
    "many frames": _thought(shape=(2**18, 1, 1, 1), seen=bytes(2**18)),
    "action": _thought(action=1),
    "action below zero": _thought(action=-1),
}
"""Bytes that a host could send instead of an event."""


def _greeting(run: Run, pid: int) -> Hello:
    hello, *_ = read_recording(RECORDING)
    assert isinstance(hello, Hello)
    return msgspec.structs.replace(hello, protocol=PROTOCOL, run=run.name, pid=pid, points=[], events=[])


@contextlib.contextmanager
def host_that_sends(run: Run, data: bytes, *, greet: bool = True) -> Iterator[None]:
    """A host of the run that sends these bytes to whoever connects, after a greeting."""
    record = run.record()
    record.socket, record.state = str(socket_path(run)), "running"
    run.write_record(record)

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.sendall((pack(_greeting(run, 1)) if greet else b"") + data)

    with hold(run), socket.socket(socket.AF_UNIX) as server:
        server.bind(record.socket)
        server.listen()
        serving = threading.Thread(target=serve, args=(server,))
        serving.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            serving.join()
            Path(record.socket).unlink()


@contextlib.asynccontextmanager
async def host_of(
    run: Run, pid: int, state: State, points: list[Point], obey: Callable[[Command], None] = lambda command: None
) -> AsyncIterator[EventServer]:
    """Serves a run as its host does, until the end of the block; then the run is stopped."""
    progress = next(event for event in read_recording(RECORDING) if isinstance(event, Progress))
    progress = msgspec.structs.replace(progress, state=state)
    hello = msgspec.structs.replace(_greeting(run, pid), points=points)
    server = EventServer(
        hello=lambda: hello,
        current=lambda: [progress],
        obey=obey,
        rendering=lambda render: None,
        complain=print,
    )
    record = run.record()
    with hold(run):
        await server.listen(socket_path(run))
        record.pid, record.socket, record.state = pid, str(socket_path(run)), state
        run.write_record(record)
        try:
            yield server
        finally:
            await server.close()
            record.state = "finished"
            run.write_record(record)
