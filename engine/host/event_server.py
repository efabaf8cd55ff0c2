"""The host's socket: where it is, and sending events to any number of clients, each at the pace at which it reads.

A client gets all lasting events in order, and the newest of each current kind. The host never waits for a client: the
backlog is bounded, and a client that falls too far behind gets the whole history again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import stat
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from engine.protocol.commands import Command, Render
from engine.protocol.framing import HEADER_BYTES, MAX_COMMAND_BYTES, body_length, decode_command, pack
from engine.protocol.messages import Current, Event, Frame, Hello, Lasting, Log
from engine.runs.marks import path_digest
from engine.runs.run import Run
from engine.runtime.files import is_own, way_in

_LONGEST_ADDRESS = 100
"""Bytes in a socket's path: Linux accepts 107, macOS 103."""
_UNUSED_S = 60.0
"""A host dates its socket every second. One that was suspended for longer still listens."""


def socket_path(run: Run) -> Path:
    """A short path for the run's socket, in a folder that only this user can enter or replace."""
    name = f"{path_digest(run.path)}.sock"
    for folder in _socket_folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
            is_private = stat.S_ISDIR(status.st_mode) and is_own(folder) and not status.st_mode & 0o077
            if is_private and not way_in(folder) and len(os.fsencode(folder / name)) <= _LONGEST_ADDRESS:
                _remove_abandoned(folder)
                return folder / name
    # Another user owns all of them, so make one with a random name. Later hosts find it.
    safe = next((each for each in (tempfile.gettempdir(), "/tmp") if not way_in(Path(each))), None)
    return Path(tempfile.mkdtemp(prefix=f"mario-tui-{os.getuid()}.", dir=safe)) / name


def _socket_folders() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        yield Path(runtime) / "mario-tui"
    for temporary in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"))):  # $TMPDIR may also be too long
        yield temporary / f"mario-tui-{os.getuid()}"
        yield from temporary.glob(f"mario-tui-{os.getuid()}.*")


def _remove_abandoned(folder: Path) -> None:
    """Remove the sockets of hosts that were killed: nobody has dated them lately, and nobody listens."""
    for address in folder.glob("*.sock"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            status = address.lstat()
            if stat.S_ISSOCK(status.st_mode) and status.st_mtime < time.time() - _UNUSED_S:
                probe.setblocking(False)
                if probe.connect_ex(os.fsencode(address)) == errno.ECONNREFUSED:
                    address.unlink()


_MAX_LASTING = 4096  # unsent lasting events of one client
_MIN_FPS, _MAX_FPS = 1.0, 30.0
_FLUSH_TIMEOUT_S = 2.0
_MAX_CLIENTS = 64


class EventServer:
    """Serves events on a Unix socket of mode 0600.

    Args:
        hello: makes the first event of a connection, with the history so far.
        current: returns the newest event of each current kind, for new clients.
        obey: called with every command except `Render`, which is kept per client.
        rendering: called when the combined `Render` wish of all clients has changed.
        complain: called with one line when a client was dropped.
    """

    def __init__(
        self,
        *,
        hello: Callable[[], Hello],
        current: Callable[[], Iterable[Event]],
        obey: Callable[[Command], None],
        rendering: Callable[[Render], None],
        complain: Callable[[str], None],
    ) -> None:
        self._hello, self._current, self._obey = hello, current, obey
        self._rendering, self._complain = rendering, complain
        self._clients: set[_Client] = set()
        self._server: asyncio.Server | None = None
        self._address: Path
        # Leave file descriptors for the run itself, which needs them to write checkpoints.
        self._most_clients = min(_MAX_CLIENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self.render = Render(on=False)
        """The highest frame rate that any client wants; off if none wants frames."""

    async def listen(self, address: Path) -> None:
        """Accept clients at `address` instead of any earlier address. Connected clients stay."""
        address.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._welcome, address)
        address.chmod(0o600)
        if self._server is not None:
            self._server.close()
            if self._address != address:
                self._address.unlink(missing_ok=True)
        self._address, self._server = address, server

    @property
    def is_reachable(self) -> bool:
        """Return whether the socket file still exists."""
        return self._address.exists()

    def touch(self) -> None:
        """Date the socket file: whoever lists runs sees when this process was alive last."""
        os.utime(self._address)

    def put(self, event: Lasting | Current) -> None:
        """Send an event to every client; frames only to clients that want them."""
        for client in self._clients:
            if client.render.on or not isinstance(event, Frame):
                client.put(event)

    def resend_history(self) -> None:
        """Send every client the whole history again, after it was rewritten."""
        for client in self._clients:
            client.resend_history()

    async def close(self) -> None:
        """Flush and close all connections, without waiting for clients that do not read."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(client.finish() for client in tuple(self._clients)))
        self._address.unlink(missing_ok=True)

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= self._most_clients:
            text = f"{self._most_clients} clients are connected; no more are accepted"
            writer.write(pack(Log(at=time.time(), level="warning", text=text)))
            writer.close()
            return
        client = _Client(writer, self._hello)
        self._clients.add(client)
        for event in self._current():
            client.put(event)
        sending = asyncio.create_task(client.send_forever())
        try:
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                command = decode_command(await reader.readexactly(body_length(header, MAX_COMMAND_BYTES)))
                if isinstance(command, Render):
                    client.render = command
                    self._sum_up_rendering()
                else:
                    self._obey(command)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass  # it has disconnected, or has come while the host ends; asyncio would log that it was cancelled
        except ValueError as error:
            self._complain(f"a client was dropped: it sent an invalid command ({error})")
        finally:
            sending.cancel()
            self._clients.discard(client)
            self._sum_up_rendering()
            writer.close()
            client.left()

    def _sum_up_rendering(self) -> None:
        rates = [max(client.render.fps, _MIN_FPS) for client in self._clients if client.render.on]
        wanted = Render(on=bool(rates), fps=min(max(rates, default=_MIN_FPS), _MAX_FPS))
        if wanted != self.render:
            self.render = wanted
            self._rendering(wanted)


class _Client:
    """One client, and the events not yet sent to it."""

    def __init__(self, writer: asyncio.StreamWriter, hello: Callable[[], Hello]) -> None:
        self._writer = writer
        self._hello = hello
        self._lasting: deque[Event] = deque([hello()])
        self._newest: dict[type, Event] = {}
        self._wake = asyncio.Event()
        self._wake.set()
        self._idle = asyncio.Event()
        self._gone = asyncio.Event()
        self.render = Render(on=False)

    def put(self, event: Event) -> None:
        if isinstance(event, Current):
            self._newest[type(event)] = event
        elif len(self._lasting) >= _MAX_LASTING:
            self.resend_history()  # the history includes this event
        else:
            self._lasting.append(event)
        self._idle.clear()
        self._wake.set()

    def resend_history(self) -> None:
        self._lasting = deque([self._hello()])
        self._idle.clear()
        self._wake.set()

    async def send_forever(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                await self._wake.wait()
                self._wake.clear()
                events = [*self._lasting, *self._newest.values()]
                self._lasting.clear()
                self._newest.clear()
                for event in events:
                    self._writer.write(pack(event))
                    await self._writer.drain()
                if not self._wake.is_set():
                    self._idle.set()

    async def finish(self) -> None:
        try:
            await asyncio.wait_for(self._idle.wait(), _FLUSH_TIMEOUT_S)
            self._writer.close()
            await asyncio.wait_for(self._gone.wait(), _FLUSH_TIMEOUT_S)
        except TimeoutError:
            self._writer.transport.abort()  # it does not read, and a normal close would wait
            await self._gone.wait()

    def left(self) -> None:
        """The connection has ended; drop what is unsent."""
        self._idle.set()
        self._gone.set()
