"""The terminal UI in a browser, through textual-serve: every visitor gets a client of their own.

Whoever reaches the port does as this user, so it is on this machine only unless told otherwise, and pages of other
sites are kept from it: a browser lets any page open a websocket to localhost.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, web
from textual_serve.server import Server

from engine.errors import UserError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SHUTDOWN_S = 2.0
_FONT_LINK = re.compile(r"<link[^>]*//fonts\.[^>]*>")
"""Without it the page takes the browser's own monospace font."""
_OWN_FILES_ONLY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self' ws://{host} wss://{host}"
)
"""What the browser may load, whatever the page of another textual-serve asks for: nothing from elsewhere."""


def serve(host: str, port: int, run_dir: str | None, *, read_only: bool) -> int:
    """Serve until SIGINT or SIGTERM; the exit status. Raises `UserError` if the address can't be had."""
    listening = _listen(host, port)
    words = [sys.executable, "-P", "-m", "mario_tui"]
    if run_dir is not None:
        words += ["--run-dir", str(Path(run_dir).resolve())]
    if read_only:
        words += ["--read-only"]
    _Server(f"exec {shlex.join(words)}", host, listening).serve()
    return 0


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise UserError(f"--host: {host!r}: {error.args[-1]}; accepted: an address of this machine") from None
    try:
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise UserError(
            f"--port: {host}:{port}: {os.strerror(error.errno or 0)}; accepted: a free port, or 0 for any"
        ) from None


class _Server(Server):
    """textual-serve's, on a socket that is open already, and careful about who asks."""

    def __init__(self, command: str, host: str, listening: socket.socket) -> None:
        super().__init__(command, host=host, port=listening.getsockname()[1], title="mario-tui")
        self._listening = listening
        self._visitors: set[web.WebSocketResponse] = set()

    def serve(self, debug: bool = False) -> None:
        loop = asyncio.new_event_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.request_exit)
        # SIGHUP keeps its meaning: a server in a terminal ends with it.
        web.run_app(
            self._make_app(),
            sock=self._listening,
            handle_signals=False,
            loop=loop,
            print=lambda *_: None,
            shutdown_timeout=_SHUTDOWN_S,
            access_log=None,
        )

    async def on_startup(self, app: web.Application) -> None:
        name = f"[{self.host}]" if ":" in self.host else self.host
        print(f"mario-tui in a browser: http://{name}:{self.port}  (Ctrl-C ends it; runs go on)", flush=True)

    async def on_shutdown(self, app: web.Application) -> None:
        for visitor in list(self._visitors):
            await visitor.close(code=WSCloseCode.GOING_AWAY)

    async def handle_index(self, request: web.Request) -> Any:
        """The page, with addresses as the visitor writes them: a forwarded port has another number."""
        self._check(request)
        self.public_url = f"{request.scheme}://{request.host}"
        page: Any = await super().handle_index(request)
        page.text = _FONT_LINK.sub("", page.text)
        page.headers["Content-Security-Policy"] = _OWN_FILES_ONLY.format(host=request.host)
        return page

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        self._check(request)
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="pages of other sites have no access")
        return await super().handle_websocket(request)

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: Any) -> None:
        self._visitors.add(websocket)
        try:
            await super()._process_messages(websocket, app_service)
        finally:
            self._visitors.discard(websocket)

    def _check(self, request: web.Request) -> None:
        """A name that only leads here by the visitor's resolver (DNS rebinding) is not ours."""
        asked = urlsplit(f"//{request.host}").hostname
        if self.host in _LOOPBACK and asked not in _LOOPBACK:
            raise web.HTTPForbidden(text=f"accepted: http://{self.host}:{self.port}")
