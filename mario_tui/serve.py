"""The terminal UI in a browser, through textual-serve: every visitor gets a client of their own.

A visitor acts as this user. The port is open to every user of the machine, and to every page in their browsers, so a
request must carry the token that is printed at the start, and name a host that is ours.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import WSCloseCode, web
from textual_serve.server import Server

from engine.errors import UserError

TOKEN_VARIABLE = "MARIO_TUI_TOKEN"
_SHUTDOWN_S = 2.0
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(\d{1,5}))?")
"""What a `Host` header may be: a name or an address, and a port."""
_FONT_LINK = re.compile(r"<link[^>]*//fonts\.[^>]*>")
"""Without it the page takes the browser's own monospace font."""
_OWN_FILES_ONLY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self' ws://{host} wss://{host}; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""What the browser may load, whatever the page of another textual-serve asks for: nothing from elsewhere. Nor may a
page of another site frame this one."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(host: str, port: int, run_dir: str | None, *, read_only: bool) -> int:
    """Serve until SIGINT or SIGTERM; the exit status. Raises `UserError` if the address can't be had."""
    token = _token()
    listening = _listen(host, port)
    words = [sys.executable, "-P", "-m", "mario_tui"]
    if run_dir is not None:
        words += ["--run-dir", str(Path(run_dir).resolve())]
    if read_only:
        words += ["--read-only"]
    _Server(f"exec {shlex.join(words)}", host, listening, token).serve()
    return 0


def _token() -> str:
    """The user's own, or a new one for every start. Apps and the hosts they start need not know it."""
    given = os.environ.pop(TOKEN_VARIABLE, "")
    if given and not _TOKEN.fullmatch(given):
        raise UserError(f"{TOKEN_VARIABLE}: is not accepted; accepted: 16 or more letters, digits, - and _")
    return given or secrets.token_urlsafe()


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

    def __init__(self, command: str, host: str, listening: socket.socket, token: str) -> None:
        super().__init__(command, host=host, port=listening.getsockname()[1], title="mario-tui")
        self._listening = listening
        self._token = token
        self._bound_to = ipaddress.ip_address(listening.getsockname()[0].partition("%")[0])
        self._names = _names(host, loopback=self._bound_to.is_loopback)
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

    async def _make_app(self) -> web.Application:
        """Whatever textual-serve answers, now and in later versions, is answered to no one without the token."""
        app = await super()._make_app()
        app.middlewares.append(self._guard)
        app.on_response_prepare.append(self._add_headers)
        return app

    async def on_startup(self, app: web.Application) -> None:
        name = socket.gethostname() if self._bound_to.is_unspecified else self.host
        name = f"[{name}]" if ":" in name else name
        address = f"http://{name}:{self.port}/?token={self._token}"
        print(f"mario-tui in a browser: {address}  (Ctrl-C ends it; runs go on)", flush=True)

    async def on_shutdown(self, app: web.Application) -> None:
        for visitor in list(self._visitors):
            await visitor.close(code=WSCloseCode.GOING_AWAY)

    async def handle_index(self, request: web.Request) -> Any:
        """The page, with addresses as the visitor writes them: a forwarded port has another number."""
        self.public_url = f"{request.scheme}://{request.host}"
        page: Any = await super().handle_index(request)
        page.text = _FONT_LINK.sub("", page.text)
        page.headers["Content-Security-Policy"] = _OWN_FILES_ONLY.format(host=request.host)
        page.set_cookie(_cookie(request), self._token, path="/", httponly=True, samesite="Strict")
        return page

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: Any) -> None:
        self._visitors.add(websocket)
        try:
            await super()._process_messages(websocket, app_service)
        finally:
            self._visitors.discard(websocket)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse who has no business here, before anything is done for them."""
        self._check_host(request.headers.get("Host", ""))
        if request.headers.get("Origin") not in (None, f"http://{request.host}", f"https://{request.host}"):
            raise web.HTTPForbidden(text="Pages of other sites have no access.")
        given = request.query.get("token", ""), request.cookies.get(_cookie(request), "")
        if not any(secrets.compare_digest(each.encode(errors="replace"), self._token.encode()) for each in given):
            raise web.HTTPForbidden(text="Open the whole address that mario-tui serve has printed, with its token.")
        static = request.match_info.get("filename")
        if static is not None and not (self.statics_path / static).is_file():
            raise web.HTTPNotFound  # no lists of folders
        return await handler(request)

    def _check_host(self, header: str) -> None:
        """A name that leads here only by the visitor's resolver (DNS rebinding) is not ours; a number always does."""
        asked = _HOST.fullmatch(header)
        name = asked[1].strip("[]").lower() if asked else ""
        address = _number(name)
        if not (name in self._names if address is None else address.is_loopback or not self._bound_to.is_loopback):
            number = "127.0.0.1" if self._bound_to.is_loopback else "a numeric address"
            raise web.HTTPForbidden(
                text=f"This machine is not known by that name; accepted: {', '.join((number, *self._names))}."
            )

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)


def _names(host: str, *, loopback: bool) -> list[str]:
    """What this machine is called, where it listens."""
    if loopback:
        return ["localhost"]
    own = socket.gethostname().lower()
    short = own.partition(".")[0]
    every = ("localhost", own, short, f"{short}.local", socket.getfqdn().lower(), host.lower())
    return sorted({name for name in every if _number(name) is None})


def _number(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _cookie(request: web.Request) -> str:
    """The cookie's name: a browser sends the cookies of a machine to all its ports."""
    asked = _HOST.fullmatch(request.host)
    return f"mario-tui-{asked[2] or 80}" if asked else "mario-tui"
