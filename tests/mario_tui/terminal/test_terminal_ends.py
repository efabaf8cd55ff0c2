"""Whatever becomes of the terminal, at whatever moment: nobody is left, and a signal ends the program."""

from __future__ import annotations

import os
import select
import shlex
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.mario_tui.terminal.test_key_input import UNASKED
from tests.support.program import PROGRAM, Terminal, nobody_is_left, processes_of, wait_until

pytestmark = pytest.mark.process

_SHELL = ("sh", "-c", "PS1='ready> ' exec bash --norc -i")


def begun(folder: Path) -> Terminal:
    return Terminal(cwd=folder)


def playing(folder: Path) -> Terminal:
    terminal = begun(folder)
    terminal.wait_for("No runs yet")
    terminal.send("p")
    return terminal


def leaving_a_game(folder: Path, shown: str = "starting") -> Terminal:
    terminal = playing(folder)
    terminal.wait_for(shown)
    terminal.send("q")
    return terminal


def leaving_a_game_that_runs(folder: Path) -> Terminal:
    return leaving_a_game(folder, "lives 3")


def suspended(folder: Path) -> Terminal:
    terminal = Terminal(cwd=folder, under=_SHELL)
    terminal.wait_for("ready> ")
    terminal.send(f"{shlex.join(PROGRAM)}\n")
    terminal.wait_for("No runs yet")
    terminal.send("\x1a")
    return terminal


def ended(terminal: Terminal) -> int:
    """The status with which a program ends that nobody reads: the number of a closed terminal's file may be another's
    by now."""
    _, status = wait_until(lambda: next(filter(any, [os.waitpid(terminal.pid, os.WNOHANG)]), None), "the end")
    return os.waitstatus_to_exitcode(status)


def close(state: Callable[[Path], Terminal], folder: Path, after_s: float) -> None:
    """Close a terminal some time after its program was asked to come to a state, and wait for its end."""
    terminal = state(folder)
    select.select([], [], [], after_s)
    terminal.hang_up()
    ended(terminal)


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("state", [begun, playing, leaving_a_game, suspended])
def test_a_terminal_may_close(state: Callable[[Path], Terminal], tmp_path: Path) -> None:
    close(state, tmp_path, 0.0)
    nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("state", [begun, playing, leaving_a_game, leaving_a_game_that_runs, suspended])
def test_a_terminal_may_close_at_any_moment(state: Callable[[Path], Terminal], tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        moments = (tenths / 10 for tenths in range(0, 40, 2))
        for closed in [threads.submit(close, state, tmp_path, moment) for moment in moments]:
            closed.result()
    nobody_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_program_whose_terminal_nobody_reads(number: signal.Signals, tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path, columns=200, rows=60)
    terminal.wait_for("No runs yet")
    program = psutil.Process(terminal.pid)
    writes = 0
    while writes != (writes := program.io_counters().write_bytes + program.io_counters().write_chars):
        for rows in (61, 60):
            terminal.resize(200, rows)
            select.select([], [], [], 0.2)
    os.kill(terminal.pid, number)
    assert ended(terminal) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_program_in_the_background(number: signal.Signals, tmp_path: Path) -> None:
    terminal = suspended(tmp_path)
    terminal.wait_for("Stopped", "ready> ")
    terminal.send("bg\n")  # it stops again, at its first touch of the terminal
    terminal.wait_for("mario-tui &")
    (program,) = (process for process in processes_of(tmp_path) if "mario-tui" in " ".join(process.cmdline()))
    wait_until(lambda: program.status() == psutil.STATUS_STOPPED, "that it has stopped again")
    os.kill(program.pid, number)
    os.kill(program.pid, signal.SIGCONT)
    wait_until(lambda: not program.is_running(), "the end")
    terminal.send("echo $((6 * 7)); exit\n")
    terminal.wait_for("42")
    assert terminal.wait() == 0


def test_a_program_that_somebody_stopped_goes_on_and_ends(tmp_path: Path) -> None:
    """With one thread that reads keys: two would share them, and one would stay for ever."""
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    program = psutil.Process(terminal.pid)
    threads = program.num_threads()
    for _ in range(3):
        os.kill(terminal.pid, signal.SIGSTOP)
        wait_until(lambda: program.status() == psutil.STATUS_STOPPED, "the stop")
        taken = bytes(terminal.raw).count(b"\x1b[?1049h")
        os.kill(terminal.pid, signal.SIGCONT)
        wait_until(lambda: terminal.text() and bytes(terminal.raw).count(b"\x1b[?1049h") > taken, "its screen")  # noqa: B023
    terminal.send("?")
    terminal.wait_for("Start a new run")
    assert program.num_threads() <= threads
    terminal.send("\x1b")
    terminal.wait_for("No runs yet")
    terminal.send("q")
    assert terminal.wait() == 0


def test_what_a_terminal_sends_by_itself_does_nothing(tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    os.write(terminal._master, b"".join(data + b"\x1b[A" for data in UNASKED.values()) + b"\xe4\xf6\xe2\x82?")
    terminal.wait_for("Start a new run")  # the help of home, so nothing else was opened
    terminal.send("\x1b")
    terminal.wait_for("No runs yet")
    terminal.send("q")
    assert terminal.wait() == 0


def test_a_screen_that_fails_ends_with_status_1(tmp_path: Path) -> None:
    code = (
        "import sys; from mario_tui.app import MarioApp; from mario_tui.terminal.driver import TerminalDriver; "
        "TerminalDriver.run_input_thread = lambda driver: 1 / 0; sys.exit(MarioApp().run_in_terminal())"
    )
    terminal = Terminal(cwd=tmp_path, program=(sys.executable, "-c", code))
    assert terminal.wait() == 1
    assert "ZeroDivisionError" in terminal.text()
