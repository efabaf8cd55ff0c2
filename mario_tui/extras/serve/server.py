"""The terminal UI in a browser, through textual-serve: each visitor gets a separate client.

A visitor has the rights of the user who started the server. Every user of the machine can reach the port, and so can
every page in their browsers, so a request must carry the token printed at the start and name one of our hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import secrets
import shlex
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import WSCloseCode, web
from textual_serve.server import Server

from engine.errors import UserError
from engine.runtime.text import printable

TOKEN_VARIABLE = "MARIO_TUI_TOKEN"
_SHUTDOWN_S = 2.0
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(\d{1,5}))?")
"""Valid `Host` headers: a name or an address, and an optional port."""
_FONT_LINK = re.compile(r"<link[^>]*//fonts\.[^>]*>")
"""Removed, so the page uses the browser's own monospace font and loads nothing from elsewhere."""
_FOCUS = """<script>
new MutationObserver((changes, observer) => {
    const keyboard = document.querySelector("#terminal textarea");
    if (keyboard) { observer.disconnect(); keyboard.focus(); }
}).observe(document, {childList: true, subtree: true});
</script>"""
"""Gives the terminal the keyboard as soon as the page has built it; otherwise it needs a click."""
_OWN_FILES_ONLY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self' ws://{host} wss://{host}; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Nothing may be loaded from other sites, whatever a later version of textual-serve's page asks for, and pages of other
sites may not frame this one."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address contains the token
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_NO_MESSAGE = (ValueError, RecursionError, AssertionError, LookupError, TypeError, AttributeError)
"""Raised by textual-serve for what its page doesn't send."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(host: str, port: int, run_dir: str | None, *, read_only: bool) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit status. Raises `UserError` if the address is unavailable."""
    token = _token()
    logging.basicConfig(handlers=[BriefLog()])
    listening = _listen(host, port)
    words = [sys.executable, "-P", "-m", "mario_tui"]
    if run_dir is not None:
        words += ["--run-dir", str(Path(run_dir).resolve())]
    if read_only:
        words += ["--read-only"]
    _Server(f"exec {shlex.join(words)}", host, listening, token).serve()
    return 0


def _token() -> str:
    """The token from the environment, or a new one. Child processes don't need it, so the variable is removed."""
    given = os.environ.pop(TOKEN_VARIABLE, "")
    if given and not _TOKEN.fullmatch(given):
        raise UserError(f"{TOKEN_VARIABLE} must be at least 16 letters, digits, - or _")
    return given or secrets.token_urlsafe()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise UserError(f"--host must be an address of this machine, got {host!r} ({error.args[-1]})") from None
    try:
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(f"--port must be a free port, or 0 for any, got {host}:{port} ({reason})") from None


class _Server(Server):
    """textual-serve's server on an open socket; it rejects requests without the token or from other sites."""

    def __init__(self, command: str, host: str, listening: socket.socket, token: str) -> None:
        super().__init__(command, host=host, port=listening.getsockname()[1], title="mario-tui")
        self._listening = listening
        self._token = token
        self._bound_to = ipaddress.ip_address(listening.getsockname()[0].partition("%")[0])
        self._names = _names(host, loopback=self._bound_to.is_loopback)
        self._visitors: set[web.WebSocketResponse] = set()
        self._programs: set[asyncio.subprocess.Process] = set()

    def serve(self, debug: bool = False) -> None:
        loop = asyncio.new_event_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.request_exit)
        # SIGHUP keeps its default action: a server started in a terminal ends with it.
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
        """The application with a guard on every route, including those of later textual-serve versions."""
        app = await super()._make_app()
        app.middlewares.append(self._guard)
        app.on_response_prepare.append(self._add_headers)
        app.on_cleanup.append(self._await_programs)
        return app

    async def on_startup(self, app: web.Application) -> None:
        name = socket.gethostname() if self._bound_to.is_unspecified else self.host
        name = f"[{name}]" if ":" in name else name
        address = f"http://{name}:{self.port}/?token={self._token}"
        print(f"mario-tui in a browser: {address}  (Ctrl-C stops the server; runs keep running)", flush=True)

    async def on_shutdown(self, app: web.Application) -> None:
        for visitor in list(self._visitors):
            await visitor.close(code=WSCloseCode.GOING_AWAY)

    async def _await_programs(self, app: web.Application) -> None:
        """Python 3.12 complains of programs whose end the closed loop has not seen."""
        ends = [asyncio.create_task(program.wait()) for program in self._programs]
        if ends:
            await asyncio.wait(ends, timeout=_SHUTDOWN_S)

    async def handle_index(self, request: web.Request) -> Any:
        """The page, with the addresses that the visitor used: a forwarded port has a different number."""
        self.public_url = f"{request.scheme}://{request.host}"
        page: Any = await super().handle_index(request)
        page.text = _FONT_LINK.sub("", page.text).replace("</head>", f"{_FOCUS}</head>")
        page.headers["Content-Security-Policy"] = _OWN_FILES_ONLY.format(host=request.host)
        page.set_cookie(_cookie(request), self._token, path="/", httponly=True, samesite="Strict")
        return page

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: Any) -> None:
        self._visitors.add(websocket)
        try:
            await super()._process_messages(websocket, app_service)
        except _NO_MESSAGE:
            await websocket.close(code=WSCloseCode.INVALID_TEXT)
        finally:
            self._visitors.discard(websocket)
            self._programs = {each for each in self._programs if each.returncode is None}
            if (program := app_service._process) is not None and program.returncode is None:
                self._programs.add(program)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Reject requests without the token, from other sites, or for files that don't exist."""
        self._check_host(request.headers.get("Host", ""))
        if request.headers.get("Origin") not in (None, f"http://{request.host}", f"https://{request.host}"):
            raise web.HTTPForbidden(text="Pages of other sites have no access.")
        given = request.query.get("token", ""), request.cookies.get(_cookie(request), "")
        if not any(secrets.compare_digest(each.encode(errors="replace"), self._token.encode()) for each in given):
            raise web.HTTPForbidden(text="Open the whole address printed by mario-tui serve, including its token.")
        static = request.match_info.get("filename")
        if static is not None and not _is_file(self.statics_path / static):
            raise web.HTTPNotFound  # no directory listings
        if request.match_info.route.name == "websocket" and not web.WebSocketResponse().can_prepare(request):
            raise web.HTTPBadRequest(text="This address is for websockets.")
        return await handler(request)

    def _check_host(self, header: str) -> None:
        """Reject names that only the visitor's resolver maps to this machine (DNS rebinding); numbers are safe."""
        asked = _HOST.fullmatch(header)
        name = asked[1].strip("[]").lower() if asked else ""
        address = _number(name)
        if not (name in self._names if address is None else address.is_loopback or not self._bound_to.is_loopback):
            number = "127.0.0.1" if self._bound_to.is_loopback else "a numeric address"
            raise web.HTTPForbidden(text=f"The host name must be one of {', '.join((number, *self._names))}.")

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError):  # its name is too long
        return path.is_file()
    return False


def _names(host: str, *, loopback: bool) -> list[str]:
    """Names of this machine at the address it listens on."""
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
    """The cookie's name. It contains the port, because browsers send a machine's cookies to all its ports."""
    asked = _HOST.fullmatch(request.host)
    return f"mario-tui-{asked[2] or 80}" if asked else "mario-tui"


_EVERY_S = 60.0
_LONGEST = 200


class BriefLog(logging.Handler):
    """Writes records to stderr, each as one line without a traceback, the first at once and then one a minute;
    that one has the number of those left out."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._next, self._left_out = float("-inf"), 0

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        more = f" ({self._left_out:,} more since the last line)" if self._left_out else ""
        self._next, self._left_out = now + _EVERY_S, 0
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or its disk is full
            print(f"mario-tui: {printable(' '.join(text.split())[:_LONGEST])}{more}", file=sys.stderr, flush=True)
