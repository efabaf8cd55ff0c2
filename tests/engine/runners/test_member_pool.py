"""Members of a run: how the pool watches them, what they say, and the state they share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.buffers import SharedMemory
from engine.envs.episode import EpisodeRecord
from engine.protocol.messages import Failed, Log
from engine.runners.links import ParentLink, ReportQueue
from engine.runners.processes import MemberPool, Patience, Role
from engine.runners.shared_state import SharedState
from tests.support.program import PATIENCE_S, child, wait_until

pytestmark = pytest.mark.process


def _speak_and_fail(link: ParentLink, index: int, restarts: int, shared_state: SharedMemory) -> None:
    """Only the first process fails: who fails in vain again and again ends the leading process."""
    if restarts == 0:
        for number in range(20):
            link.log(f"word {number}")
        raise RuntimeError("no room")
    ours = SharedState(1, shared_state)
    ours.beat(0, PATIENCE_S)
    wait_until(lambda: ours.stopped, "the order to stop")


def _crash_in_native_code(link: ParentLink, index: int, restarts: int, shared_state: SharedMemory) -> None:
    if restarts == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(0)
    ours = SharedState(1, shared_state)
    ours.beat(0, PATIENCE_S)
    wait_until(lambda: ours.stopped, "the order to stop")


def _hang(link: ParentLink, index: int, restarts: int) -> None:
    signal.pause()


def _lead_members_that_hang(reports: ReportQueue) -> None:
    reports.only_write()
    MemberPool(Role("rank"), _hang, (), SharedState(1, SharedMemory()), ParentLink(reports), Patience(start_s=0.1))
    signal.pause()


def test_a_member_that_never_starts_is_replaced_and_given_up_in_the_end() -> None:
    queue = ReportQueue()
    with child(_lead_members_that_hang, queue) as leader:
        queue.only_read()
        reports: list[Any] = []
        while not reports or not isinstance(reports[-1], Failed):
            assert queue.poll(PATIENCE_S)
            reports.append(queue.get())
        leader.join(PATIENCE_S)
    *replaced, failed = reports
    lost = "rank 0 was lost (it did not start within 0.1 s)"
    assert [log.text for log in replaced] == [f"{lost}; restarted"] * 2
    assert (failed.reason, failed.final) == (lost, True)


def test_the_last_words_of_a_member_are_heard() -> None:
    memory = SharedMemory()
    shared_state = SharedState(1, memory)
    reports = ReportQueue()
    pool = MemberPool(Role("worker"), _speak_and_fail, (memory,), shared_state, ParentLink(reports))
    heard: list[str] = []
    while not heard or "restarted" not in heard[-1]:
        report = reports.get()
        assert isinstance(report, Log)
        heard.append(report.text)
    shared_state.stop()
    pool.close()
    assert heard[:-1] == [f"worker 0: word {number}" for number in range(20)]
    place = rf"\({Path(__file__).name}:\d+\)"
    assert re.fullmatch(rf"worker 0 was lost \(RuntimeError: no room {place}\); restarted", heard[-1])


def test_where_native_code_crashed_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    memory = SharedMemory()
    shared_state = SharedState(1, memory)
    reports = ReportQueue()
    pool = MemberPool(Role("worker"), _crash_in_native_code, (memory,), shared_state, ParentLink(reports))
    assert reports.poll(PATIENCE_S)
    report = reports.get()
    shared_state.stop()
    pool.close()
    assert isinstance(report, Log) and report.text == "worker 0 was lost (killed by SIGSEGV); restarted"
    assert re.search(rf'"{re.escape(__file__)}", line \d+ in _crash_in_native_code', capfd.readouterr().err)


def _play(link: ParentLink, index: int, restarts: int, shared_state: SharedMemory) -> None:
    ours = SharedState(2, shared_state)
    ours.beat(index, PATIENCE_S)
    wait_until(lambda: ours.stopped, "the order to stop")


def _take_all_descriptors() -> list[int]:
    """Open files until no more can be opened."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


def _lead_without_descriptors_for_a_while(reports: ReportQueue) -> None:
    reports.only_write()
    memory = SharedMemory()
    state = SharedState(2, memory)
    pool = MemberPool(Role("actor"), _play, (memory,), state, ParentLink(reports), Patience(pauses_s=[0.01] * 100_000))
    wait_until(lambda: (state.due > 0).all(), "both members")
    (lost, other), (place, _) = [member for _, member in pool._members()], pool._slots
    taken = _take_all_descriptors()
    lost.process.kill()
    wait_until(lambda: place.refusals > 2, "starts that are refused")
    for descriptor in taken:
        os.close(descriptor)
    wait_until(lambda: state.due[0] > 0, "the new member")
    assert pool.restarts(0) == 1 and pool._slots[1].member is other and other.process.is_alive()
    state.stop()
    pool.close()


def _lead_without_descriptors(reports: ReportQueue) -> None:
    reports.only_write()
    memory = SharedMemory()
    state = SharedState(2, memory)
    _take_all_descriptors()
    MemberPool(Role("actor"), _play, (memory,), state, ParentLink(reports), Patience(pauses_s=[0.01, 0.02]))
    signal.pause()


def _lead_with_what_can_not_be_passed(reports: ReportQueue) -> None:
    reports.only_write()
    MemberPool(Role("actor"), _play, (lambda: None,), SharedState(1), ParentLink(reports))
    signal.pause()


def reports_of(lead: Callable[[ReportQueue], None]) -> tuple[list[Any], int | None]:
    """All reports of a leading process, and its exit status."""
    queue, reports = ReportQueue(), list[Any]()
    with child(lead, queue) as leader:
        queue.only_read()
        with contextlib.suppress(EOFError):
            while queue.poll(PATIENCE_S):
                reports.append(queue.get())
        leader.join(PATIENCE_S)
    return reports, leader.exitcode


def test_a_start_that_the_system_refuses_is_tried_again_and_the_others_play_on() -> None:
    reports, status = reports_of(_lead_without_descriptors_for_a_while)
    assert status == 0
    lost = "actor 0 was lost (killed by SIGKILL)"
    refused, *_, restarted = [report.text for report in reports]
    assert refused == f"{lost}; it could not be restarted ([Errno 24] Too many open files); trying again in 0.01 s"
    assert restarted == f"{lost}; restarted"


def test_starts_that_the_system_refuses_again_and_again_end_the_run_with_the_reason() -> None:
    reports, status = reports_of(_lead_without_descriptors)
    *logs, failed = reports
    refused = "actor 0 could not start ([Errno 24] Too many open files)"
    assert [log.text for log in logs if "actor 0" in log.text] == [
        f"{refused}; trying again in {pause} s" for pause in (0.01, 0.02)
    ]
    assert (failed.reason, failed.final, status) == (refused, True, 1)


def test_any_other_exception_in_the_pools_thread_ends_the_run_with_its_reason() -> None:
    (failed,), status = reports_of(_lead_with_what_can_not_be_passed)
    assert "local object" in failed.reason and "Traceback" in failed.traceback
    assert status == 1


def test_no_episode_is_missed_where_many_end_between_two_looks() -> None:
    shared_state = SharedState(2)
    for number in range(5_000):
        shared_state.record(1, 1, 4, [EpisodeRecord(0, 0.0, number, False, -1, 0, (0.0,))])
    assert [(member, episode.length) for member, episode in shared_state.new_episodes()] == [
        (1, each) for each in range(5_000)
    ]
    assert list(shared_state.new_episodes()) == []
