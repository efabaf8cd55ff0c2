"""Queues between processes: nothing is left or hangs when the process at the other end is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
from multiprocessing.connection import wait
from multiprocessing.synchronize import SemLock
from typing import Any

import pytest

from engine.errors import UserError
from engine.protocol.commands import Set
from engine.protocol.messages import Beat, Failed, Log
from engine.runners.links import CommandQueue, ParentLink, ReportQueue, member_main
from tests.support.program import PATIENCE_S, child, wait_until

pytestmark = pytest.mark.process


def _report_and_stop_in_the_middle(reports: ReportQueue) -> None:
    reports.only_write()
    reports.put(Beat(within_s=1.0))
    reports._writer._send(struct.pack("!i", 1000) + b"half a message")  # type: ignore[attr-defined]
    signal.pause()  # until it is killed


def _read_one(commands: CommandQueue, reports: ReportQueue) -> None:
    commands.only_read()
    reports.only_write()
    command: Any = commands.get()
    reports.put(Log(at=0.0, level="info", text=command.name))
    signal.pause()  # until it is killed


def test_a_writer_killed_in_the_middle_of_a_message_ends_the_read() -> None:
    reports = ReportQueue()
    with child(_report_and_stop_in_the_middle, reports) as writer:
        reports.only_read()
        assert reports.get() == Beat(within_s=1.0)
        assert reports.poll(PATIENCE_S)
        writer.kill()
        with pytest.raises(OSError):
            reports.get()


def test_a_reader_that_is_killed_ends_a_put_that_waits_for_room() -> None:
    commands, reports = CommandQueue(), ReportQueue()
    with child(_read_one, commands, reports) as reader:
        commands.only_write()
        reports.only_read()
        commands.put(Set(name="beta", value=0.5))
        assert reports.get() == Log(at=0.0, level="info", text="beta")
        reader.kill()
        with pytest.raises(OSError):
            for _ in range(100_000):  # the pipe holds some thousand
                commands.put(Set(name="beta", value=0.5))


def test_a_reader_waits_for_messages_and_deaths_together() -> None:
    commands, reports = CommandQueue(), ReportQueue()
    with child(_read_one, commands, reports) as process:
        commands.only_write()
        reports.only_read()
        commands.put(Set(name="beta", value=0.5))
        queue: Any = reports
        assert wait([queue, process.sentinel], PATIENCE_S) == [queue]
        reports.get()
        process.kill()
        wait_until(lambda: process.sentinel in wait([queue, process.sentinel], PATIENCE_S), "the end of the process")


def test_a_queue_has_no_semaphore_that_a_killed_run_could_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def record(self: SemLock, *arguments: Any, **options: Any) -> None:
        made.append(type(self).__name__)
        make(self, *arguments, **options)

    make = SemLock.__init__
    monkeypatch.setattr(SemLock, "__init__", record)
    ReportQueue().close()
    assert made == []
    multiprocessing.get_context("spawn").SimpleQueue().close()
    assert made == ["Lock", "Lock"]  # what it has instead of


def _fail_on_a_full_disk(reports: ReportQueue) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)  # as if the disk of run.log were full
    member_main(_refuse, reports)


def _refuse(link: ParentLink) -> None:
    raise UserError("refused")


def test_the_reason_of_a_failure_arrives_though_the_log_can_not_be_written() -> None:
    reports = ReportQueue()
    with child(_fail_on_a_full_disk, reports) as member:
        reports.only_read()
        failed = reports.get()
        assert isinstance(failed, Failed) and failed.usage and failed.reason == "refused"
        member.join(PATIENCE_S)
        assert member.exitcode == 1
