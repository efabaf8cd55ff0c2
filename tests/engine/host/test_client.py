"""The client side of a run's host."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.host.client import HostClient
from engine.protocol.commands import Set
from engine.protocol.messages import Log
from tests.support.app import folder_of_runs
from tests.support.host import host_of


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
