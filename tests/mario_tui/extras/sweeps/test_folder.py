"""The journal of a sweep: what it makes of its lines, of damaged ones, and of several writers."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.runs.sweep import JOURNAL_FILE, Entry, note
from mario_tui.extras.sweeps.folder import TRIES, Journal


def _write(folder: Path, run: str) -> None:
    for _ in range(50):
        note(folder, "begun", run)


@pytest.mark.process
def test_lines_of_several_writers_are_whole(tmp_path: Path) -> None:
    writers = [get_context("fork").Process(target=_write, args=(tmp_path, name)) for name in ("a", "b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    journal = Journal(tmp_path).read()
    assert [journal.of(name).tries for name in ("a", "b", "c")] == [50, 50, 50]


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"begun","at":1.0,"runs":["a"]', b'{"event":"burnt","at":1.0,"runs":["a"]}', b"\xff", b"[" * 2000,
        b'{"event":"begun","at":-1.0,"runs":["a"]}', b'{"event":"begun","at":1.0,"runs":"a"}', b"",
    ],
    ids=["cut off", "unknown event", "no text", "nested", "date", "type", "empty"],
)  # fmt: skip
def test_what_is_no_line_of_a_journal_is_skipped_and_spoils_none(line: bytes, tmp_path: Path) -> None:
    note(tmp_path, "begun", "a")
    with (tmp_path / JOURNAL_FILE).open("ab") as file:
        file.write(line)
    assert Journal(tmp_path).read().of("a").tries == 1
    note(tmp_path, "begun", "a")
    assert Journal(tmp_path).read().of("a").tries == 2


def test_a_journal_takes_what_is_new(tmp_path: Path) -> None:
    journal = Journal(tmp_path, [Entry("begun", 0.0, ("old",))]).read()
    assert journal.of("old").tries == 1 and journal.of("a").last is None and not journal.is_stopping
    note(tmp_path, "begun", "a")
    note(tmp_path, "stopping")
    journal.read()
    assert journal.read().of("a").tries == 1 and journal.is_stopping
    note(tmp_path, "started")
    assert not journal.read().is_stopping
    (tmp_path / JOURNAL_FILE).unlink()
    note(tmp_path, "failed", "b", reason="no")
    assert journal.read().of("b").ended[0].reason == "no" and journal.of("a").last is None


def test_a_journal_has_a_size_that_it_does_not_exceed(tmp_path: Path) -> None:
    note(tmp_path, "failed", "a", reason="x" * 10_000)
    assert len((tmp_path / JOURNAL_FILE).read_bytes()) < 1200
    with (tmp_path / JOURNAL_FILE).open("ab") as file:
        file.truncate(2**24)
    with pytest.raises(UserError, match="can't be written"):
        note(tmp_path, "begun", "a")
    with (tmp_path / JOURNAL_FILE).open("ab") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(UserError, match="can't be read"):
        Journal(tmp_path).read()


def test_a_journal_remembers_no_more_runs_than_sweeps_have(tmp_path: Path) -> None:
    for at in range(5):
        note(tmp_path, "begun", *(f"{at}-{number}" for number in range(1000)))
    journal = Journal(tmp_path).read()
    assert [journal.of(f"{at}-999").tries for at in range(5)] == [1, 1, 1, 1, 0]
    note(tmp_path, "begun", *(f"{number}" for number in range(2001)), "0-0")
    assert journal.read().of("0-0").tries == 1  # the line is none of ours


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    (tmp_path / JOURNAL_FILE).symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="is a link"):
        note(tmp_path, "begun", "a")
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.parametrize(
    ("events", "tries", "last"),
    [
        ("begun failed begun", 2, "begun"),
        ("failed failed", 2, "failed"),  # could not be started
        ("begun lost", 1, "lost"),
        ("begun lost-by-node", 0, "lost"),
        ("lost-by-node", 0, "lost"),
        ("refused", TRIES, "refused"),
        ("begun failed begun failed resumed", 0, "resumed"),
        ("begun resumed stopped", 0, "resumed"),  # its end was noted late
        ("begun resumed failed", 0, "failed"),
        ("resumed begun stopped", 1, "stopped"),
        ("begun finished pruned", 1, "finished"),
    ],
)
def test_tries_and_the_last_event(events: str, tries: int, last: str, tmp_path: Path) -> None:
    for event in events.split():
        note(tmp_path, event.partition("-")[0], "a", counts="-" not in event)  # type: ignore[arg-type]
    history = Journal(tmp_path).read().of("a")
    assert (history.tries, history.last) == (tries, last)
    assert history.is_open == events.endswith("begun") and history.is_pruned == ("pruned" in events)
