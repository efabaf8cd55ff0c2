"""`mario-tui play` in a real pseudo-terminal: every key does what the help says."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest
from PIL import Image

from engine.runtime.text import printable
from mario_tui.data.settings import settings_path
from tests.support.program import Terminal, children_of, nobody_is_left, wait_until

pytestmark = pytest.mark.process


def step(terminal: Terminal) -> int:
    """The number of the environment step on the screen."""
    found = re.search(r"step ([\d,]+)", terminal.text())
    assert found is not None
    return int(found[1].replace(",", ""))


def played_on(text: str) -> bool:
    """Whether an episode has ended and another one has begun. At 8x, more may have passed between two looks."""
    episode = re.search(r"▶ 8x  stage 2-3  episode (\d+)", text)
    return episode is not None and int(episode[1]) >= 3 and re.search(r"0 of \d+ cleared", text) is not None


@pytest.mark.long
def test_keys_of_a_policys_game(tmp_path: Path) -> None:
    terminal = Terminal("play", "mario-1-1", cwd=tmp_path, columns=120, rows=30)
    terminal.wait_for("▀▀▀", "▶ 1x  stage 1-1  episode 1  seed 0  step", "Pause", "Speed", "Stage", "Restart", "Quit")
    terminal.send(" ")
    terminal.wait_for("‖ paused  1x")
    paused = step(terminal)
    terminal.send("?")
    terminal.wait_for("Halve the speed, down to 1/8", "Play the stage after this one")
    terminal.send("\x1b")
    terminal.wait_for(f"‖ paused  1x  stage 1-1  episode 1  seed 0  step {paused} ")
    terminal.send(".")
    terminal.wait_for(f"step {paused + 1} ")
    terminal.send("-" * 5)
    terminal.wait_for("‖ paused  1/8x")
    terminal.send("0")
    terminal.wait_for("‖ paused  1x")
    terminal.send("=+++++")
    terminal.wait_for("‖ paused  8x", f"step {paused + 1} ")  # nothing was played meanwhile
    terminal.send("[")
    terminal.wait_for("stage 8-4  episode 1  seed 0  step 0 ", "world 8-4")
    terminal.send("]]]")
    terminal.wait_for("stage 1-3  episode 1  seed 0  step 0 ", "world 1-3")
    terminal.send("}}{")
    terminal.wait_for("stage 2-3  episode 1  seed 0  step 0 ", "world 2-3")
    terminal.send(".")
    terminal.wait_for("step 1 ")
    terminal.send("r")
    terminal.wait_for("‖ paused  8x  stage 2-3  episode 1  seed 0  step 0 ")
    terminal.send("n")
    terminal.wait_for("‖ paused  8x  stage 2-3  episode 2  seed 1  step 0 ")
    terminal.send("p")
    wait_until(lambda: played_on(terminal.text()), "the end of the episode")
    terminal.send(".")
    terminal.wait_for("‖ paused")
    terminal.send("q")
    assert terminal.wait() == 0
    assert re.search(r"mario-1-1: \d+ of \d+ cleared, mean return", terminal.text())
    nobody_is_left(tmp_path)


@pytest.mark.long
def test_a_persons_buttons_come_before_keys(tmp_path: Path) -> None:
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text('[keys]\n"play.restart" = "d,f5"\n')
    terminal = Terminal("play", "--human", cwd=tmp_path, columns=120, rows=30)
    terminal.wait_for("▶ 1x", "x 40", "space Pause", "f5 Restart")
    terminal.send(" ")
    terminal.wait_for("‖ paused")
    terminal.send("pd")  # buttons, not pause and restart
    terminal.wait_for("next step: right+A", "‖ paused")
    paused = step(terminal)
    assert paused > 0
    terminal.send(".")
    terminal.wait_for(f"‖ paused  1x  stage 1-1  episode 1  seed 0  step {paused + 1} ")
    terminal.send("?")
    terminal.wait_for("space             Pause", "f5                Restart")
    terminal.send("\x1b")
    terminal.wait_for("f5 Restart")
    terminal.send("\x1b[15~")
    terminal.wait_for("‖ paused  1x  stage 1-1  episode 1  seed 0  step 0 ")
    terminal.send("q")
    assert terminal.wait() == 0


def test_a_persons_tetris_has_the_usual_keys_and_a_pause(tmp_path: Path) -> None:
    terminal = Terminal("play", "--human", "--game", "tetris", cwd=tmp_path, columns=120, rows=30)
    shown = terminal.wait_for(
        "▶ 1x  episode 1  seed 0  step 0", "z: turn back   space: drop   c: hold", "p Pause", "Next"
    )
    assert "Stage" not in shown
    terminal.send(" ]")  # the space bar drops the piece, and boards have no stages
    terminal.wait_for("▶ 1x  episode 1  seed 0  step 1", "level 1  lines 0")
    terminal.send("?")
    terminal.wait_for("Your game", "up or x", "turn back", "p                 Pause")
    terminal.send("\x1b")
    terminal.wait_for("‖ paused", "z: turn back   space: drop")  # the help is closed
    terminal.send("r")
    terminal.wait_for("‖ paused  1x  episode 1  seed 0  step 0")
    terminal.send("p")
    terminal.wait_for("▶ 1x  episode 1  seed 0")
    terminal.send("q")
    assert terminal.wait() == 0


def test_a_recording_is_shown_and_its_file_named(tmp_path: Path) -> None:
    film = tmp_path / "film.gif"
    terminal = Terminal("play", "snake-12x12", "--record", str(film), cwd=tmp_path, columns=200)
    terminal.wait_for("● REC 0:00:01  ▶ 1x")
    terminal.send("p")
    terminal.wait_for("‖ paused")
    paused = terminal.text()
    terminal.send("-")
    terminal.wait_for("1/2x")
    filmed = re.search(r"REC (\S+)", paused)
    assert filmed is not None and filmed[0] in terminal.text()
    terminal.send("q")
    assert terminal.wait() == 0
    done = re.search(rf"wrote {re.escape(printable(str(film)))}: (\d+\.\d) s, (\d+) pictures, \d+ KiB", terminal.text())
    assert done is not None
    assert float(done[1]) == pytest.approx(int(done[2]) / 30, abs=0.06) and int(done[2]) >= 30
    with Image.open(film) as pictures:
        assert pictures.size == (256, 240)


@pytest.mark.long
def test_play_ends_with_its_terminal(tmp_path: Path) -> None:
    terminal = Terminal("play", cwd=tmp_path)
    terminal.wait_for("lives 3")
    terminal.hang_up()
    assert terminal.wait() == 0
    nobody_is_left(tmp_path)


@pytest.mark.long
def test_play_under_make_ends_with_its_terminal(tmp_path: Path) -> None:
    """A hang-up is signalled to another process."""
    terminal = Terminal("play", cwd=tmp_path, under=("sh", "-c", 'trap "" HUP; "$0" "$@"; exit $?'))
    terminal.wait_for("lives 3")
    terminal.hang_up()
    assert terminal.wait() == 0
    nobody_is_left(tmp_path)


@pytest.mark.long
def test_a_crash_of_the_engine_is_told_on_a_restored_terminal(tmp_path: Path) -> None:
    terminal = Terminal("play", cwd=tmp_path, columns=120)
    terminal.wait_for("lives 3")
    wait_until(lambda: children_of(psutil.Process(terminal.pid)), "the engine")[0].kill()
    assert terminal.wait() == 1
    last = bytes(terminal.raw).split(b"\x1b[?1049l")[-1].decode()
    assert "mario-tui: the game failed: the process of play crashed (killed by SIGKILL)" in last
