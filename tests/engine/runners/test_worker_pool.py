"""Members of a run: how the pool watches them, what they say, and the state they share."""

from __future__ import annotations

import signal
from typing import Any

from engine.buffers import SharedMemory
from engine.envs.episode import EpisodeRecord
from engine.protocol.messages import Failed, Log
from engine.runners.host_link import HostLink
from engine.runners.message_queue import ReportQueue
from engine.runners.shared_state import SharedState
from engine.runners.worker_pool import WorkerPool
from tests.support.program import PATIENCE_S, child, wait_until


def _speak_and_fail(link: HostLink, index: int, restarts: int, shared_state: SharedMemory) -> None:
    """Only the first process fails: who fails in vain again and again ends the leading process."""
    if restarts == 0:
        for number in range(20):
            link.log(f"word {number}")
        raise RuntimeError("no room")
    ours = SharedState(1, shared_state)
    ours.beat(0, PATIENCE_S)
    wait_until(lambda: ours.stopped, "the order to stop")


def _hang(link: HostLink, index: int, restarts: int) -> None:
    signal.pause()


def _lead_members_that_hang(reports: ReportQueue) -> None:
    reports.only_write()
    WorkerPool("rank", _hang, (), SharedState(1, SharedMemory()), HostLink(reports), start_s=0.1)
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
    pool = WorkerPool("worker", _speak_and_fail, (memory,), shared_state, HostLink(reports))
    heard: list[str] = []
    while not heard or "restarted" not in heard[-1]:
        report = reports.get()
        assert isinstance(report, Log)
        heard.append(report.text)
    shared_state.stop()
    pool.close()
    assert heard[:-1] == [f"worker 0: word {number}" for number in range(20)]
    assert heard[-1] == "worker 0 was lost (RuntimeError: no room); restarted"


def test_no_episode_is_missed_where_many_end_between_two_looks() -> None:
    shared_state = SharedState(2)
    for number in range(5_000):
        shared_state.record(1, 1, 4, [EpisodeRecord(0, 0.0, number, 0, False, 0, -1, 0)])
    assert [(member, episode.length) for member, episode in shared_state.new_episodes()] == [
        (1, each) for each in range(5_000)
    ]
    assert list(shared_state.new_episodes()) == []
