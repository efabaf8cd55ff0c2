"""What a run's record says of its state, as long as no host is connected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from engine.errors import UserError
from engine.protocol.framing import pack
from engine.protocol.messages import Evaluation, Hello, Point, State
from engine.runs.recording import read_recording
from engine.runs.run import Run
from mario_tui.data.feed import Allowance, Feed
from mario_tui.data.run_status import RunStatus, Snapshot
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
    assert {*map(RunStatus, get_args(State))} == {*RunStatus} - {"pausing", "stopped", "connecting", "unreachable"}


def recorded(feed: Feed) -> Snapshot:
    """What a feed tells once it has read the recording, or has not."""
    feed.connect()
    wait_until(lambda: feed.snapshot().hello or feed.snapshot().problem, "the recording")
    return feed.snapshot()


def test_each_of_many_runs_has_few_points_and_its_best_evaluation(tmp_path: Path) -> None:
    run = recorded_run(tmp_path)
    run.write_record(record_of(run.name, "finished", 3000, 3000))
    points = [
        Point(env_steps=at, wall_s=at, mean_return=at, loss=0.1, q_mean=1.0, env_steps_per_s=1.0, beta=0.4)
        for at in range(1, 2001)
    ]
    write_recording(run, points, evaluated=[9.0, *([1.0] * 900)])  # the first one is the best
    for runs, held, evaluated in ((1, 2000, 901), (2000, 100, 91)):
        feed = Feed(run, allowance=Allowance(runs))
        found = recorded(feed)
        assert (len(found.points), found.points[-1].env_steps) == (held, 2000)
        assert len(found.others) == evaluated
        assert isinstance(best := found.others[0], Evaluation) and best.mean_return == 9.0


def test_what_would_be_too_much_in_all_is_left_out_and_told(tmp_path: Path) -> None:
    """Hard links to one recording, of which 64 MiB are held in all."""
    first = recorded_run(tmp_path)
    first.write_record(record_of(first.name, "finished", 3000, 3000))
    hello = next(event for event in read_recording(first.history_path) if isinstance(event, Hello))
    first.history_path.write_bytes(pack(msgspec.structs.replace(hello, task="x" * 15 * 2**20)))
    runs, allowance = [first], Allowance(5)
    for number in range(4):
        (folder := tmp_path / f"linked-{number}").mkdir()
        runs.append(Run(folder))
        for name in ("run.json", "history.msgpack"):
            (folder / name).hardlink_to(first.path / name)
    feeds = [Feed(run, allowance=allowance) for run in runs]
    for feed in feeds:
        recorded(feed)
    assert [feed.snapshot().problem for feed in feeds] == [
        *[""] * 4, "linked-3: too large to be shown beside the others"
    ]  # fmt: skip
    assert allowance.told == "1 run too large to be shown"
    with first.history_path.open("ab") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(UserError, match="must have at most 16,777,216 bytes"):
        read_recording(first.history_path)
