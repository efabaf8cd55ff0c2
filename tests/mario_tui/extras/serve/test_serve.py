"""The terminal UI in a browser: the real server, and a visitor that speaks its websocket."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from engine.runs.run import Run
from tests.support.app import folder_of_runs
from tests.support.program import PATIENCE_S, run_program, wait_until
from tests.support.web import Served

pytestmark = pytest.mark.process


async def test_two_visitors_have_a_client_each_and_ctrl_c_ends_it(served: Served, tmp_path: Path) -> None:
    folder_of_runs(tmp_path / "runs", first="finished")
    answer = await served.session.get(served.whole_address)
    page = await answer.text()
    assert served.address.replace("http", "ws") + "/ws" in page
    loaded = re.findall(r"""(?:src|href)="([^"]+)"|url\(["']?([^"')]+)""", page)
    assert loaded
    assert all(address.startswith(served.address) for found in loaded for address in found if address)
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    one, other = await served.visit(), await served.visit()
    await one.wait_for("first")
    await other.wait_for("first")
    assert len(served.apps()) == 2
    await one.send("n")
    await one.wait_for("apex-classic")
    await other.send("q")
    await other.until_closed()
    wait_until(lambda: len(served.apps()) == 1, "the end of one visit")
    served.process.send_signal(signal.SIGINT)
    await one.until_closed()
    assert served.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("served", [("--read-only",)], indirect=True)
async def test_visitors_of_a_read_only_server_change_nothing(served: Served, tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path / "runs", first="finished")
    visitor = await served.visit()
    await visitor.wait_for("read-only")
    await visitor.send("d")
    await visitor.wait_for("Read-only: this key is disabled.")
    assert Run(run.path).record().state == "finished"


async def test_a_forwarded_port_has_another_number(served: Served) -> None:
    forwarded = await served.session.get(served.whole_address, headers={"Host": "localhost:9000"})  # ssh -L 9000:...
    assert "ws://localhost:9000/ws" in await forwarded.text()
    assert "mario-tui-9000" in forwarded.cookies  # two that are forwarded don't take each other's


async def test_apps_of_a_killed_server_end(served: Served) -> None:
    visitor = await served.visit()
    await visitor.wait_for("No runs yet")
    (app,) = served.apps()
    served.process.kill()
    served.process.wait()
    assert app.wait(PATIENCE_S) is None


async def test_a_taken_port_and_wrong_addresses_are_one_line(served: Served, tmp_path: Path) -> None:
    port = served.address.rpartition(":")[2]
    for arguments, complaint in (
        (["--port", port], f"--port must be a free port, or 0 for any, got 127.0.0.1:{port} (Address already in use)"),
        (["--port", "99999"], "--port must be a whole number between 0 and 65,535, got '99999'"),
        (["--host", "nowhere.invalid"], "--host must be an address of this machine, got 'nowhere.invalid' (Name"),
    ):
        done = await asyncio.to_thread(run_program, "serve", *arguments, cwd=tmp_path, check=2)
        assert done.stderr.startswith(f"mario-tui: error: {complaint}")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
