"""Output to files that a user names waits for nobody."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine.runtime.files import open_output, write_output


def test_a_pipe_that_nobody_reads_is_no_output(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out")
    with pytest.raises(OSError, match="is a pipe that nobody reads"):
        open_output(tmp_path / "out")


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
