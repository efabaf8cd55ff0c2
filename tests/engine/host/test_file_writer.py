"""Files of a run are written in a thread, so that a slow disk stops nobody."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from engine.host.run_files import FileWriter
from tests.support.program import PATIENCE_S


def test_a_disk_that_does_not_answer_stops_nobody_and_loses_no_newest_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    synced: list[int] = []
    sync = os.fsync

    def sync_when_the_disk_answers(descriptor: int) -> None:
        answers.wait()
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_when_the_disk_answers)
    writer = FileWriter()
    for number in range(100):
        for name in ("run.json", "history.msgpack"):
            writer.write(tmp_path / name, f"{name} {number}".encode())
    assert not writer.flush(0.01)
    answers.set()
    assert writer.flush(PATIENCE_S)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "run.json": "run.json 99",
        "history.msgpack": "history.msgpack 99",
    }
    assert len(synced) <= 3  # at most one old content was being written


def test_a_file_that_can_not_be_written_does_not_stop_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FileWriter()
    writer.write(tmp_path / "missing" / "run.json", b"1")
    writer.write(tmp_path / "run.json", b"2")
    assert writer.flush(PATIENCE_S)
    assert (tmp_path / "run.json").read_bytes() == b"2"
    assert "run.json could not be written" in caplog.text


def test_a_file_that_can_not_be_written_is_reported_once_until_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FileWriter()
    folder = tmp_path / "folder"
    for exists in (False, False, True, False, False):
        if exists:
            folder.mkdir()
        elif folder.exists():
            shutil.rmtree(folder)
        writer.write(folder / "run.json", b"1")
        assert writer.flush(PATIENCE_S)
        assert writer.works is exists
    assert caplog.text.count("run.json could not be written") == 2
