"""The client side of a run's host."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.host.client import HostClient, HostGone
from engine.protocol.commands import Set
from engine.protocol.messages import Log
from tests.support.app import folder_of_runs
from tests.support.host import INVALID_EVENTS, host_of, host_that_sends


async def test_a_command_sent_just_before_its_client_closes_is_obeyed(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="running")
    obeyed = list[float]()
    wanted = [round(number / 100, 2) for number in range(100)]

    def command_and_leave() -> None:
        for value in wanted:
            client = HostClient(run)
            client.send(Set(name="beta", value=value))
            client.close()

    def obey(command: object) -> None:
        assert isinstance(command, Set)
        obeyed.append(command.value)

    async with host_of(run, 101, "running", [], obey) as server:
        client = asyncio.create_task(asyncio.to_thread(command_and_leave))
        while not client.done():  # events meet clients that have just left
            for _ in range(50):
                server.put(Log(at=0.0, level="info", text="." * 10_000))
            await asyncio.sleep(0)
        await client
    assert obeyed == wanted


@pytest.mark.parametrize("name", INVALID_EVENTS)
def test_what_is_no_event_ends_the_connection_and_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="running")
    with host_that_sends(run, INVALID_EVENTS[name]), HostClient(run) as client:
        with pytest.raises(HostGone, match=r"^one: its host sent what is no message of mario-tui \(.*\)$"):
            client.receive()
        assert client.closed
    refused = r"^one: its host (sent what is no message of mario-tui|does not greet)"
    with host_that_sends(run, INVALID_EVENTS[name], greet=False), pytest.raises(UserError, match=refused):
        HostClient(run)


def test_a_message_that_is_cut_off_is_the_end_of_the_connection(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="running")
    for cut in (b"\0", b"\0\0\0\x09\x81"):
        with host_that_sends(run, cut), HostClient(run) as client, pytest.raises(HostGone, match=r"^cut off$"):
            client.receive()
