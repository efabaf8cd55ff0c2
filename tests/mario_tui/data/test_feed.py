"""What a run's record says of its state, as long as no host is connected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from engine.errors import UserError
from engine.protocol.messages import State
from engine.runs.run import Run
from mario_tui.data.feed import Feed
from mario_tui.data.run_status import RunStatus
from tests.support.app import record_of, recorded_run, write_recording
from tests.support.program import wait_until


@pytest.mark.parametrize(
    ("state", "status", "unanswered"),
    [
        ("starting", RunStatus.STARTING, RunStatus.UNREACHABLE),
        ("running", RunStatus.CONNECTING, RunStatus.UNREACHABLE),
        ("paused", RunStatus.CONNECTING, RunStatus.UNREACHABLE),
        ("stopping", RunStatus.CONNECTING, RunStatus.UNREACHABLE),
        ("silent", RunStatus.SILENT, RunStatus.SILENT),
        ("finished", RunStatus.STOPPED, RunStatus.STOPPED),  # it has steps left
        ("failed", RunStatus.FAILED, RunStatus.FAILED),
        ("lost", RunStatus.LOST, RunStatus.LOST),
        ("damaged", RunStatus.DAMAGED, RunStatus.DAMAGED),
    ],
)
def test_a_record_claims_no_more_than_its_host_confirms(
    state: Any, status: RunStatus, unanswered: RunStatus, tmp_path: Path
) -> None:
    feed = Feed(Run(tmp_path))
    record = record_of("one", state, 100, 200)
    feed.update(record)
    assert feed.snapshot().status is status
    feed._problem = "nobody answers"
    feed.update(record)
    why = "its host crashed" if state == "lost" else "nobody answers"
    assert (feed.snapshot().status, feed.snapshot().reason) == (unanswered, why)


def test_the_recording_of_a_run_on_another_machine_is_followed(tmp_path: Path) -> None:
    run = recorded_run(tmp_path)
    record = record_of(run.name, "running", 100, 200)
    record.host, record.pid = "far", 1
    run.write_record(record)
    write_recording(run, [], [1.0])
    feed = Feed(run)
    feed.connect()
    feed.update(run.record())
    wait_until(lambda: len(feed.snapshot().others) == 1, "the evaluation")
    write_recording(run, [], [1.0, 2.0])
    feed.update(run.record())
    wait_until(lambda: len(feed.snapshot().others) == 2, "the next one")
    snapshot = feed.snapshot()
    assert (snapshot.status, snapshot.live) == (RunStatus.UNREACHABLE, False) and "on far" in snapshot.reason


def test_a_run_that_is_gone_is_lost(tmp_path: Path) -> None:
    feed = Feed(Run(tmp_path))
    feed.update(UserError("not a run"))
    assert (feed.snapshot().status, feed.snapshot().reason) == (RunStatus.LOST, "not a run")


def test_every_state_of_a_record_has_a_standing() -> None:
    assert {*map(RunStatus, get_args(State))} == {*RunStatus} - {"stopped", "connecting", "unreachable"}
