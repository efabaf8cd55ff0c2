"""The state of a run of a sweep, from its journal and its record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from engine.config.reading import make_config
from engine.errors import UserError
from engine.protocol.results import BestEvaluation
from engine.runs.lookup import delete
from engine.runs.registry import create_run
from engine.runs.run import Run
from engine.runs.sweep import Member, Sweep, SweepPlan
from mario_tui.data.run_status import RunStatus
from mario_tui.extras.sweeps.folder import History, create_sweep, set_aside
from mario_tui.extras.sweeps.results import DELETED, PRUNED, WAITING, MemberState, member_states, state_of


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    plan = SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=(Member({}, 0), Member({}, 1)))
    return create_sweep(tmp_path, "rates", plan)


def first(sweep: Sweep) -> MemberState:
    return member_states(sweep, sweep.plan())[0]


def begin(sweep: Sweep, state: str, reason: str = "") -> Run:
    run = create_run(make_config({"game": "snake", "run_dir": str(sweep.path)}), sweep.run(0).name)
    run.write_record(msgspec.structs.replace(run.record(), state=state, reason=reason))
    return run


@pytest.mark.parametrize(
    ("history", "status", "state"),
    [
        (History(), None, WAITING),
        (History(), RunStatus.STOPPED, RunStatus.STOPPED),  # in a sweep of an earlier version
        (History(1, last="begun"), RunStatus.RUNNING, RunStatus.RUNNING),
        (History(1, last="stopped"), RunStatus.STOPPED, RunStatus.STOPPED),
        (History(0, last="resumed"), RunStatus.STOPPED, WAITING),
        (History(1, last="lost"), RunStatus.STOPPED, WAITING),  # its node, and nobody has stopped it
        (History(2, last="lost"), RunStatus.STOPPED, RunStatus.LOST),
        (History(1, last="failed"), RunStatus.FAILED, WAITING),
        (History(2, last="failed"), RunStatus.FAILED, RunStatus.FAILED),
        (History(2, last="refused"), None, RunStatus.FAILED),
        (History(2, last="failed"), RunStatus.RUNNING, RunStatus.RUNNING),  # its user has resumed it
        (History(2, last="failed"), RunStatus.FINISHED, RunStatus.FINISHED),
        (History(1, is_pruned=True, last="stopped"), RunStatus.STOPPED, PRUNED),
        (History(is_pruned=True), None, PRUNED),
        (History(1, is_pruned=True, last="begun"), RunStatus.STOPPING, RunStatus.STOPPING),
        (History(1, is_pruned=True, last="finished"), RunStatus.FINISHED, RunStatus.FINISHED),
        (History(1, last="deleted"), None, DELETED),
        (History(1, last="finished"), None, DELETED),  # with its folder, by other means
    ],
)
def test_states(history: History, status: RunStatus | None, state: str) -> None:
    assert state_of(history, status) == state


def test_a_deleted_run_stays_deleted(sweep: Sweep) -> None:
    sweep.note("begun", run := begin(sweep, "failed"))
    delete(run)
    assert first(sweep).state == DELETED and member_states(sweep, sweep.plan())[1].state == WAITING


def test_a_run_that_could_not_be_deleted_is_what_its_record_says(sweep: Sweep) -> None:
    run = begin(sweep, "running")
    with run.lock(), pytest.raises(UserError, match="is running; stop it first"):
        delete(run)
    assert first(sweep).history.last is None


def test_a_sweep_of_an_earlier_version_has_its_tries_and_what_was_pruned(sweep: Sweep) -> None:
    run = begin(sweep, "failed", "no memory")
    for tries, state in ((0, WAITING), (1, WAITING), (2, "failed")):
        (sweep.path / "tries.json").write_text(json.dumps({run.name: tries}))
        assert (first(sweep).state, first(sweep).reason) == (state, "no memory")
    sweep.write_plan(msgspec.structs.replace(sweep.plan(), pruned=(run.name,)))
    assert first(sweep).state == PRUNED
    (sweep.path / "tries.json").write_text('{"rates-001": -1}')
    assert first(sweep).history.tries == 0


def test_the_reason_of_a_failed_run_is_that_of_its_last_try(sweep: Sweep) -> None:
    run = begin(sweep, "failed", "the joint is broken")
    sweep.note("begun", run)
    assert (first(sweep).state, first(sweep).reason) == (WAITING, "the joint is broken")
    sweep.note("failed", run, reason="the joint is broken")
    sweep.note("refused", run, reason="the disk is full")
    assert (first(sweep).state, first(sweep).reason) == ("failed", "the disk is full")


def test_what_another_try_needs_the_place_of_is_moved_whole(sweep: Sweep) -> None:
    assert set_aside(sweep, sweep.run(0)) == ""
    begin(sweep, "lost")
    assert set_aside(sweep, sweep.run(0)) == "earlier/rates-001-1"
    for number in (2, 3):
        run = begin(sweep, "failed")
        (run.path / "run.log").write_text(f"try {number}")
        sweep.note("failed", run, reason=f"reason {number}")
        assert set_aside(sweep, run) == f"earlier/rates-001-{number}"
        assert (sweep.path / f"earlier/rates-001-{number}" / "run.log").read_text() == f"try {number}"
    assert [(each.event, each.reason, each.folder) for each in first(sweep).history.ended] == [
        ("lost", "its end was not noted", "earlier/rates-001-1"), ("failed", "reason 2", "earlier/rates-001-2"),
        ("failed", "reason 3", "earlier/rates-001-3"),
    ]  # fmt: skip


def test_a_run_that_trains_keeps_its_place(sweep: Sweep) -> None:
    run = begin(sweep, "running")
    with run.lock(), pytest.raises(UserError, match="is already running"):
        set_aside(sweep, run)
    assert run.path.is_dir()


@pytest.mark.parametrize(
    ("results", "reason"),
    [(256, ""), (257, "Expected `object` of length <= 256"), (9000, "must have at most 65,536 bytes, got")],
)
def test_a_record_with_too_much_in_it_is_a_failure_of_its_run(results: int, reason: str, sweep: Sweep) -> None:
    run, many = begin(sweep, "failed"), {f"{number}": 1.0 for number in range(results)}
    best = BestEvaluation(env_steps=1, episodes=1, clears=0, mean_return=9.0, results=many)
    run.write_record(msgspec.structs.replace(run.record(), state="finished", reason="2 steps are done", best=best))
    assert first(sweep).state == ("finished" if not reason else WAITING if results == 257 else "failed")
    assert reason in first(sweep).reason and bool(reason) == bool(first(sweep).reason)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_record_that_somebody_else_has_put_there_is_none(sweep: Sweep) -> None:
    run = begin(sweep, "finished", "1 episode is done")
    os.chown(run.path, 12345, 12345)
    assert (first(sweep).state, first(sweep).record) == ("failed", None)
    assert first(sweep).reason == f"{run.path}: belongs to user 12345, not to the owner of the sweep"
