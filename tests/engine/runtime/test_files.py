"""Output to files that a user names waits for nobody, and what is locked is open to nobody else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.buffers.memory import MappedMemory
from engine.runs.run import Run
from engine.runs.sweep import Sweep, note
from engine.runtime.files import open_output, write_output


def test_a_pipe_that_nobody_reads_is_no_output(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out")
    with pytest.raises(OSError, match="is a pipe that nobody reads"):
        open_output(tmp_path / "out")


@pytest.mark.process
def test_the_reader_of_a_pipe_gets_everything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out")
    text = "0123456789" * 100_000  # more than fits into a pipe
    with (tmp_path / "read").open("wb") as file, subprocess.Popen(["cat", tmp_path / "out"], stdout=file):
        held = os.open(tmp_path / "out", os.O_WRONLY)  # waits for the reader, who then stays
        write_output(tmp_path / "out", text)
        os.close(held)
    assert (tmp_path / "read").read_text() == text


def test_output_replaces_what_a_file_holds_and_follows_links(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a longer text of before")
    (tmp_path / "link").symlink_to("report")
    with open_output(tmp_path / "link"):
        assert (tmp_path / "report").read_text() == "a longer text of before"
    write_output(tmp_path / "link", "new")
    assert (tmp_path / "report").read_text() == "new" and (tmp_path / "link").is_symlink()
    write_output(Path("/dev/null"), "new")


LOCKS: dict[str, Callable[[Path], object]] = {
    "run.lock": lambda folder: Run(folder).lock().__enter__(),
    "sweep.lock": lambda folder: Sweep(folder).lock().__enter__(),
    "journal.jsonl": lambda folder: note(folder, "stopping"),
    "lock": lambda folder: MappedMemory(folder).arrays({"x": ((1,), np.dtype(np.uint8))}),
}


@pytest.mark.parametrize("name", LOCKS)
def test_no_other_user_can_ever_open_what_is_locked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", lambda *_: None)  # a mode that is set later would be too late
        LOCKS[name](tmp_path)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_lock_of_an_earlier_version_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "run.lock").touch(0o644)
    with Run(tmp_path).lock():
        assert (tmp_path / "run.lock").stat().st_mode & 0o777 == 0o600
