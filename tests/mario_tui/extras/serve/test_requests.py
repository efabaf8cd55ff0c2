"""Who reaches the port of `mario-tui serve` and is not its user gets a sentence, and nothing is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiohttp.test_utils import BaseTestServer, TestServer

from mario_tui.extras.serve.server import TOKEN_VARIABLE, _Server
from tests.support.program import PATIENCE_S, PROGRAM, run_program, wait_until
from tests.support.web import Served, serving

TOKEN = "the-token-of-this-test"
COOKIE = {"Cookie": f"mario-tui-80={TOKEN}"}  # a Host without a port is port 80


@contextlib.asynccontextmanager
async def answering(
    folder: Path, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[aiohttp.ClientSession, BaseTestServer]]:
    """The server's application as it would be on `host`, asked over the loopback interface. Whatever it starts leaves
    a file in the folder."""
    with socket.create_server((host, 0)) as bound:
        server = _Server(f"touch {folder}/started", host, bound, TOKEN)
        application = await server._make_app()
    async with TestServer(application) as real, aiohttp.ClientSession() as session:
        yield session, real


async def status(folder: Path, path: str, headers: Mapping[str, str], host: str = "127.0.0.1") -> tuple[int, str]:
    async with answering(folder, host) as (session, server):
        answer = await session.get(server.make_url(path), headers={"Host": "localhost", **headers})
        return answer.status, await answer.text()


UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip


@pytest.mark.parametrize(
    "path", ["/", "/ws", "/ws?width=80", "/download/1", "/static/js/textual.js", "/static", "/none"]
)
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"Cookie": "mario-tui-80=another"},
        {"Cookie": "mario-tui-80="},
        {"Cookie": f"mario-tui-81={TOKEN}"},
        {"Cookie": f"mario-tui-80={TOKEN[:-1]}"},
        {"Cookie": "mario-tui-80=\xfc\xfe"},
    ],
)
async def test_nothing_is_answered_without_the_token(path: str, wrong: dict[str, str], tmp_path: Path) -> None:
    code, said = await status(tmp_path, path, {**UPGRADE, **wrong} if path.startswith("/ws") else wrong)
    assert (code, said) == (403, "Open the whole address printed by mario-tui serve, including its token.")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("token", ["", "another", TOKEN[:-1], TOKEN + "x", "%00", "%ff", "&token=" + TOKEN])
async def test_a_wrong_token_in_the_address_is_refused(token: str, tmp_path: Path) -> None:
    assert (await status(tmp_path, f"/?token={token}", {}))[0] == 403


@pytest.mark.process
async def test_the_printed_address_gives_a_cookie_for_what_follows(tmp_path: Path) -> None:
    async with answering(tmp_path) as (session, server):
        first = await session.get(server.make_url(f"/?token={TOKEN}"))
        cookie = first.cookies[f"mario-tui-{server.port}"]
        assert (cookie.value, cookie["path"], cookie["samesite"]) == (TOKEN, "/", "Strict")
        assert cookie["httponly"]
        assert TOKEN not in await first.text()
        known = {"Cookie": f"{cookie.key}={cookie.value}"}
        assert (await session.get(server.make_url("/"), headers=known)).status == 200
        async with session.ws_connect(server.make_url("/ws"), headers=known), asyncio.timeout(PATIENCE_S):
            while not (tmp_path / "started").exists():
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", ["/static", "/static/", "/static/css", "/static/js/"])
async def test_folders_are_not_listed(path: str, tmp_path: Path) -> None:
    code, said = await status(tmp_path, path, COOKIE)
    assert code == 404
    assert "textual" not in said


@pytest.mark.parametrize("path", ["/static//etc/passwd", "/static/..%2fserver.py", "/static/%2e%2e%2fserver.py"])
async def test_no_file_of_elsewhere_is_given(path: str, tmp_path: Path) -> None:
    assert (await status(tmp_path, path, COOKIE))[0] in (403, 404)


async def test_files_of_the_page_are_given(tmp_path: Path) -> None:
    assert (await status(tmp_path, "/static/css/xterm.css", COOKIE))[0] == 200


@pytest.mark.parametrize(
    ("bound", "asked", "accepted"),
    [
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST:9000", True),
        ("127.0.0.1", "127.0.0.1:80", True),
        ("127.0.0.1", "[::1]:80", True),
        ("127.0.0.1", "192.0.2.1", False),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "localhost@evil.example", False),
        ("127.0.0.1", "evil.example#localhost", False),
        ("127.0.0.1", "[::1", False),
        ("127.0.0.1", "localhost:99999999", False),
        ("127.0.0.1", "", False),
        ("0.0.0.0", "localhost:8000", True),
        ("0.0.0.0", "192.0.2.1:8000", True),
        ("0.0.0.0", "[2001:db8::1]:8000", True),
        ("0.0.0.0", socket.gethostname(), True),
        ("0.0.0.0", "evil.example", False),
        ("0.0.0.0", "192.0.2.1.evil.example", False),
    ],
)
async def test_names_that_lead_here_by_another_ones_resolver_are_refused(
    bound: str, asked: str, accepted: bool, tmp_path: Path
) -> None:
    code, said = await status(tmp_path, f"/?token={TOKEN}", {"Host": asked}, bound)
    assert code == (200 if accepted else 403), said
    if not accepted:
        assert re.fullmatch(r"The host name must be one of .*localhost.*\.", said)
        assert (await status(tmp_path, f"/ws?token={TOKEN}", {**UPGRADE, "Host": asked}, bound))[0] == 403
        assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:81", "http://localhost.evil.example", "http://[", ""]
)
@pytest.mark.parametrize("path", ["/", "/ws"])
async def test_pages_of_other_sites_have_no_access(bound: str, origin: str, path: str, tmp_path: Path) -> None:
    code, said = await status(tmp_path, path, {**UPGRADE, **COOKIE, "Origin": origin}, bound)
    assert (code, said) == (403, "Pages of other sites have no access.")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("path", [f"/?token={TOKEN}", "/", "/none", "/static/css/xterm.css"])
async def test_every_answer_says_what_a_browser_must_not_do(path: str, tmp_path: Path) -> None:
    async with answering(tmp_path) as (session, server):
        headers = (await session.get(server.make_url(path), headers={"Host": "localhost"})).headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert re.search(r"default-src '(self|none)'.*frame-ancestors 'none'", headers["Content-Security-Policy"])


@pytest.mark.process
async def test_a_token_of_the_users_own(tmp_path: Path) -> None:
    async with serving(tmp_path, environment={TOKEN_VARIABLE: TOKEN}) as served:
        assert served.token == TOKEN
        await served.visit()

        def started() -> list[psutil.Process]:
            """The visitor's program; before that, the child is still a copy of the server."""
            return [app for app in served.apps() if "mario_tui" in " ".join(app.cmdline())]

        (app,) = await asyncio.to_thread(wait_until, started, "the visitor's program")
        assert TOKEN_VARIABLE not in app.environ()


@pytest.mark.parametrize("weak", ["short", "with a space in it", "http://a.b/?token=abcdefghijklmno"])
@pytest.mark.process
def test_a_token_that_is_short_or_no_word_is_refused(
    weak: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, weak)
    done = run_program("serve", "--port", "0", cwd=tmp_path, check=2)
    complaint = "must be at least 16 letters, digits, - or _"
    assert done.stderr == f"mario-tui: error: {TOKEN_VARIABLE} {complaint}\n"


@pytest.mark.process
def test_every_start_has_a_token_of_its_own(tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        with subprocess.Popen(
            [*PROGRAM, "serve", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=os.environ
        ) as process:
            assert process.stdout is not None
            said.append(process.stdout.readline().split("token=")[1].split()[0])
            process.kill()
    assert said[0] != said[1]
    assert all(len(token) >= 32 for token in said)


def _requests(served: Served) -> list[bytes]:
    """What nobody who means well sends; the last five know the token."""
    ours = f"Host: localhost\r\nCookie: mario-tui-80={served.token}\r\n\r\n".encode()
    return [
        b"\xff\xfe\x00\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",  # TLS
        b"G ET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /static/" + b"a" * 300 + b" HTTP/1.1\r\n" + ours,
        b"GET /static/" + b"a/" * 2500 + b" HTTP/1.1\r\n" + ours,
        b"GET /static/a%00b HTTP/1.1\r\n" + ours,
        b"GET /download/" + b"a" * 300 + b" HTTP/1.1\r\n" + ours,
        b"GET /ws HTTP/1.1\r\n" + ours,
    ]


@pytest.mark.long
@pytest.mark.process
async def test_bad_requests_are_refused_and_logged_in_a_line_a_minute(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answers = set()
        requests = _requests(served)
        for number in range(1000):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(served.address.rpartition(":")[2]))
            writer.write(requests[number % len(requests)])
            answers.add((await reader.readline())[9:12])
            writer.close()
        assert answers == {b"400", b"404"}
        await _send_nonsense(served)
        served.process.terminate()
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert "Error handling request" in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 5  # it may have taken minutes
    assert max(map(len, errors.splitlines())) < 300


async def _send_nonsense(served: Served) -> None:
    """On websockets of a browser with the token."""
    for text in ("{", "[" * 100_000, "{}", "[]", '["stdin"]', '["stdin", 1]', '["stdin", "\\ud800"]', '["resize", {}]'):
        visitor = await served.visit()
        await visitor._socket.send_str(text)
        await visitor.until_closed()
