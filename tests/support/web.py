"""A server of the terminal UI, and a client for its websocket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil

from tests.support.program import PATIENCE_S, PROGRAM, children_of


class Visitor:
    """Acts as a browser: receives output, sends keys. It reads all the time, which also answers the server's pings."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.seen = b""
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type == aiohttp.WSMsgType.BINARY:
                self.seen += message.data
            self._news.set()
        self._news.set()

    async def wait_for(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while text.encode() not in self.seen:
                assert not self._reading.done(), "the server has closed the connection"
                self._news.clear()
                await self._news.wait()

    async def send(self, keys: str) -> None:
        self.seen = b""
        await self._socket.send_json(["stdin", keys])

    async def until_closed(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._reading


class Served:
    """A server under test."""

    def __init__(
        self, process: subprocess.Popen[str], session: aiohttp.ClientSession, address: str, token: str
    ) -> None:
        self.process, self.session, self.address, self.token = process, session, address, token

    @property
    def whole_address(self) -> str:
        """The address as the server prints it."""
        return f"{self.address}/?token={self.token}"

    async def visit(self) -> Visitor:
        """Connect as a browser that has loaded the page and has the cookie."""
        assert (await self.session.get(self.whole_address)).status == 200
        return Visitor(await self.session.ws_connect(f"{self.address}/ws?width=80&height=24"))

    def apps(self) -> list[psutil.Process]:
        return children_of(psutil.Process(self.process.pid))


@contextlib.asynccontextmanager
async def serving(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> AsyncIterator[Served]:
    """A server, and a browser that has not loaded its page yet."""
    command = [*PROGRAM, "serve", "--port", "0", "--run-dir", "runs", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        said = re.fullmatch(r"mario-tui in a browser: http://(\S+):(\d+)/\?token=(\S+)  \(Ctrl-C.*\)\n", line)
        assert said, line
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:  # addresses count, too
            yield Served(process, session, f"http://127.0.0.1:{said[2]}", said[3])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
