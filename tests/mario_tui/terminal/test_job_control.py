"""Ctrl-Z under a real shell, and what the terminal is told when a run ends."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from mario_tui.data.settings import settings_path
from tests.support.program import PROGRAM, Terminal, nobody_is_left, the_run, wait_until

pytestmark = pytest.mark.process

_SHELL = ("sh", "-c", "PS1='ready> ' exec bash --norc -i")


@pytest.mark.parametrize("parent", ["", 'sh -c \'"$0" "$@"; exit $?\' '], ids=["shell", "make"])
def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(parent: str, tmp_path: Path) -> None:
    """Also where something like `make train` stands between the shell and the program."""
    terminal = Terminal(cwd=tmp_path, under=_SHELL)
    terminal.wait_for("ready> ")
    terminal.send(f"{parent}{shlex.join(PROGRAM)}\n")
    terminal.wait_for("No runs yet")
    terminal.send("\x1a")
    terminal.wait_for("Stopped", "ready> ")
    assert b"\x1b[?1049l" in terminal.raw  # the alternate screen was left
    terminal.send("echo $((6 * 7))\n")
    terminal.wait_for("42")
    terminal.send("fg\n")
    wait_until(lambda: "No runs yet" in (text := terminal.text()) and "ready> " not in text, "that it draws again")
    terminal.send("q")
    terminal.wait_for("ready> ")  # what is typed before the prompt may be dropped with the terminal's late replies
    assert terminal.raw.count(b"\x1b[?1049l") == 2
    terminal.send("exit\n")
    assert terminal.wait() == 0


def test_ctrl_z_without_a_shell_says_so_and_goes_on(tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    terminal.send("\x1a")
    terminal.wait_for("No shell here could resume")
    terminal.send("q")
    assert terminal.wait() == 0


@pytest.mark.parametrize("wanted", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_end_of_a_run_rings_unless_the_settings_say_not_to(wanted: bool, tmp_path: Path) -> None:
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text(f"notifications = {str(wanted).lower()}\n")
    terminal = Terminal("--game", "snake", "--board", "5x5", "--eval-every", "0", "--steps", "100000000", cwd=tmp_path)
    terminal.wait_for("● running")
    run = the_run(tmp_path)
    terminal.send("x")
    terminal.wait_for("Stop snake")
    terminal.send("y")
    terminal.wait_for("■ stopped")
    terminal.send("q")
    assert terminal.wait() == 0
    notification = b"\x1b]9;" + f"{run.name} stopped at ".encode()
    assert (b"\x07" + notification in terminal.raw) == wanted  # the bell comes first


@pytest.mark.long
@pytest.mark.parametrize("how", ["terminate", "hang up"])
def test_what_ends_the_program_ends_the_game_that_it_shows_too(how: str, tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    terminal.send("p")
    terminal.wait_for("lives 3")
    if how == "terminate":
        os.kill(terminal.pid, signal.SIGTERM)
    else:
        terminal.hang_up()
    assert terminal.wait() == 0
    nobody_is_left(tmp_path)
    if how == "terminate":
        assert bytes(terminal.raw).count(b"\x1b[?1049h") == bytes(terminal.raw).count(b"\x1b[?1049l") >= 2
