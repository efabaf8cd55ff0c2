"""Processes that `eval`, `play` and `profile` start end with them, even if they are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.program import (
    PATIENCE_S,
    PROGRAM,
    Terminal,
    children_of,
    nobody_is_left,
    processes_of,
    wait_until,
)

pytestmark = pytest.mark.process


@contextlib.contextmanager
def started(*arguments: str, cwd: Path, under: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*under, *PROGRAM, *arguments], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(cwd)},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def at_work(front_end: int) -> psutil.Process:
    """The engine process of a front end, as soon as it has finished its imports and redirected standard output."""
    (child,) = wait_until(lambda: children_of(psutil.Process(front_end)), "the engine's process")
    assert isinstance(child, psutil.Process)
    files = Path(f"/proc/{child.pid}/fd")
    wait_until(lambda: (files / "1").readlink() == (files / "2").readlink(), "the engine at work")
    return child


@pytest.mark.parametrize("stopped", [pytest.param(False, marks=pytest.mark.long), True])
def test_an_evaluation_ends_with_its_front_end(stopped: bool, tmp_path: Path) -> None:
    with started("eval", "mario-1-1", "--episodes", "100000", cwd=tmp_path) as front_end:
        child = at_work(front_end.pid)
        if stopped:
            child.suspend()
        front_end.kill()
        front_end.wait()
        nobody_is_left(tmp_path)


@pytest.mark.long
def test_a_game_ends_with_its_front_end(tmp_path: Path) -> None:
    terminal = Terminal("play", cwd=tmp_path)
    terminal.wait_for("coins")
    at_work(terminal.pid).suspend()
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait() == -signal.SIGKILL
    nobody_is_left(tmp_path)


@pytest.mark.long
def test_q_quits_a_game_that_hangs(tmp_path: Path) -> None:
    terminal = Terminal("play", cwd=tmp_path)
    terminal.wait_for("coins")
    at_work(terminal.pid).suspend()
    terminal.send("q")
    assert terminal.wait() == 0
    nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("stopped", [False, True])
def test_a_video_is_finished_even_if_its_front_end_is_killed(stopped: bool, tmp_path: Path) -> None:
    with started("play", "--record", "film.gif", cwd=tmp_path) as front_end:
        child = at_work(front_end.pid)
        wait_until(
            lambda: any(each.stat().st_size for each in tmp_path.glob(".film.*")), "pictures in the file", by=front_end
        )
        if stopped:
            child.suspend()
        front_end.kill()
        front_end.wait()
        nobody_is_left(tmp_path)
    assert (tmp_path / "film.gif").read_bytes()[-1:] == b";"  # how a GIF ends


@pytest.mark.parametrize("how", ["killed", pytest.param("full disk", marks=pytest.mark.long)])
def test_nothing_is_left_of_a_video_that_can_not_be_finished(how: str, tmp_path: Path) -> None:
    under = ("prlimit", "--fsize=200000") if how == "full disk" else ()
    with started("play", "mario-1-1", "--record", "film.gif", cwd=tmp_path, under=under) as front_end:
        if how == "killed":
            child = at_work(front_end.pid)
            wait_until(lambda: (tmp_path / ".film.partial.gif").exists(), "the video", by=front_end)
            child.kill()
        assert front_end.wait(PATIENCE_S) == 1
    assert not [*tmp_path.glob("*film*")]


@pytest.mark.parametrize("stopped", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_profile_and_its_run_end_with_their_front_end(stopped: bool, tmp_path: Path) -> None:
    with started("profile", "--game", "snake", "--board", "5x5", "--duration", "3600", cwd=tmp_path) as front_end:
        (folder,) = wait_until(
            lambda: list(tmp_path.glob("mario-tui-profile-*/runs")), "the run's folder", by=front_end
        )
        wait_until(
            lambda: list(folder.glob("*/run.lock")) and len(processes_of(folder)) > 1,
            "the run's processes",
            by=front_end,
        )
        if stopped:
            children_of(psutil.Process(front_end.pid))[0].suspend()
        front_end.kill()
        front_end.wait()
        nobody_is_left(tmp_path)
    assert not folder.exists()
