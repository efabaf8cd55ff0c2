"""A list of runs that is read again and again: what has not changed is not read again, and what has is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.runs.registry import KnownRecords, list_records
from engine.runs.run import RunRecord
from tests.support.app import folder_of_runs, hold


def listed(folder: Path, known: KnownRecords) -> dict[str, RunRecord]:
    return {run.name: record for run, record in list_records(folder, known)}


@pytest.fixture
def known() -> KnownRecords:
    return KnownRecords()


def test_only_records_that_have_changed_are_read_again(tmp_path: Path, known: KnownRecords) -> None:
    _, two = folder_of_runs(tmp_path, one="finished", two="failed")
    before = listed(tmp_path, known)
    record = two.record()
    record.env_steps += 1
    two.write_record(record)
    after = listed(tmp_path, known)
    assert after["one"] is before["one"]
    assert after["two"].env_steps == before["two"].env_steps + 1
    assert listed(tmp_path, known)["two"] is after["two"]


def test_a_file_that_is_written_in_its_place_is_read_again(tmp_path: Path, known: KnownRecords) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    listed(tmp_path, known)
    run.record_path.write_bytes(run.record_path.read_bytes().replace(b'"finished"', b'"failed"'))
    assert listed(tmp_path, known)["one"].state == "failed"


def test_a_host_that_dies_is_seen_although_the_files_are_the_same(tmp_path: Path, known: KnownRecords) -> None:
    (run,) = folder_of_runs(tmp_path, one="running")
    with hold(run):
        assert listed(tmp_path, known)["one"].state == "running"
    assert listed(tmp_path, known)["one"].state == "lost"
    with hold(run):  # as when a host resumes it, which takes the lock first
        assert listed(tmp_path, known)["one"].state == "running"


def test_a_record_forgets_a_checkpoint_that_was_deleted(tmp_path: Path, known: KnownRecords) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    checkpoint = run.path / "step-1000"
    checkpoint.mkdir()
    record = run.record()
    record.checkpoint = str(checkpoint)
    run.write_record(record)
    assert listed(tmp_path, known)["one"].checkpoint == str(checkpoint)
    checkpoint.rmdir()
    assert listed(tmp_path, known)["one"].checkpoint is None


def test_a_run_that_was_removed_moved_or_linked_is_listed_where_it_is(tmp_path: Path, known: KnownRecords) -> None:
    folder = tmp_path / "runs"
    one, two, _ = folder_of_runs(folder, one="finished", two="finished", three="finished")
    assert set(listed(folder, known)) == {"one", "two", "three"}
    one.path.rename(folder / "renamed")
    elsewhere = two.path.rename(tmp_path / "elsewhere")
    (folder / "link").symlink_to(elsewhere)
    (folder / "three" / "run.json").unlink()
    now = list_records(folder, known)
    assert {run.path for run, _ in now} == {folder / "renamed", elsewhere}
    assert {record.name for _, record in now} == {"renamed", "elsewhere"}
