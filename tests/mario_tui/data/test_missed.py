"""What a client tells its reader after the host has greeted it again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.config.run_config import RunConfig
from engine.host import host_events
from engine.host.run_state import MAX_EPISODES, MAX_LOGS, RunState
from engine.protocol.messages import Episode, Hello, KeptEvent, Log, Saved
from engine.runs.registry import create_run
from engine.runs.run import HeldRun
from mario_tui.data.feed import Received
from tests.mario_tui.screens.test_run_control import episode


class Host:
    """Publishes events as the host does."""

    def __init__(self, folder: Path) -> None:
        self.run, self.state = HeldRun(create_run(RunConfig(run_dir=str(folder))).path), RunState()

    def publish(self, event: KeptEvent) -> KeptEvent:
        self.state.apply(event)
        self.state.published[type(event).__name__] += 1
        return event

    def hello(self) -> Hello:
        return host_events.hello(self.run, RunConfig(), self.state)


def saved(number: int) -> Saved:
    return Saved(kind="checkpoint", path=f"step-{number}", env_steps=number)


def warning(number: int) -> Log:
    return Log(at=float(number), level="warning", text=f"warning {number}")


def test_a_greeting_repeats_what_was_missed_and_counts_the_rest(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for number in range(3):
        host.publish(saved(number))
        host.publish(episode(number))
    received = Received(host.hello())
    for number in range(3, 6):
        received.add(host.publish(saved(number)))
        received.add(host.publish(episode(number)))
    lost = [host.publish(event) for event in (saved(6), warning(1), saved(6))]  # a policy at the same step
    for number in range(6, 6 + 2 * MAX_EPISODES):
        host.publish(episode(number))
    assert received.catch_up(host.hello()) == ({Episode.__name__: 2 * MAX_EPISODES}, lost)
    received.add(host.publish(episode(9999)))
    assert received.catch_up(host.hello()) == ({}, [])


def test_events_that_no_greeting_knows_any_more_are_counted(tmp_path: Path) -> None:
    host = Host(tmp_path)
    received = Received(host.hello())
    for number in range(MAX_LOGS + 44):
        host.publish(warning(number))
    missing, known = received.catch_up(host.hello())
    assert (missing, len(known)) == ({Log.__name__: 44}, MAX_LOGS)


def test_a_restart_that_goes_back_repeats_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    received = Received(host.hello())
    for number in (100, 200, 300):
        received.add(host.publish(saved(number)))
    host.state.rewind(200)
    unseen = host.publish(saved(250))
    assert received.catch_up(host.hello()) == ({}, [unseen])


def test_a_host_of_an_earlier_version_counts_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    received = Received(msgspec.structs.replace(host.hello(), published={}))
    unseen = host.publish(saved(1))
    assert received.catch_up(msgspec.structs.replace(host.hello(), published={})) == ({}, [unseen])
