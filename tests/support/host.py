"""What a host does for its clients, without a runner."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from engine.host.address import socket_path
from engine.host.event_server import EventServer
from engine.protocol.commands import Command
from engine.protocol.messages import PROTOCOL, Hello, Point, Progress, State
from engine.runs.recording import read_recording
from engine.runs.run import Run
from tests.support.app import RECORDING, hold


@contextlib.asynccontextmanager
async def host_of(
    run: Run, pid: int, state: State, points: list[Point], obey: Callable[[Command], object] = lambda command: None
) -> AsyncIterator[EventServer]:
    """Serves a run as its host does, until the end of the block; then the run is stopped."""
    hello, *_ = read_recording(RECORDING)
    progress = next(event for event in read_recording(RECORDING) if isinstance(event, Progress))
    progress = msgspec.structs.replace(progress, state=state)
    assert isinstance(hello, Hello)
    hello = msgspec.structs.replace(hello, protocol=PROTOCOL, run=run.name, pid=pid, points=points, events=[])
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
