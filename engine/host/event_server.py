"""The host's socket: sends events to any number of clients, each at the pace at which it reads.

A client gets all lasting events in order, and the newest of each current kind. The host never waits for a client: the
backlog is bounded, and a client that falls too far behind gets the whole history again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.protocol.commands import Command, Render
from engine.protocol.framing import HEADER_BYTES, MAX_COMMAND_BYTES, body_length, decode_command, pack
from engine.protocol.messages import Current, Event, Frame, Hello, Lasting, Log

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
        self._address, self._server = address, server

    @property
    def is_reachable(self) -> bool:
        """Whether the socket file still exists."""
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
        except (asyncio.IncompleteReadError, OSError):
            pass  # it has disconnected
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
