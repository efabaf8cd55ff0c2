"""What somebody meets who starts the program for the first time, in a real terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.program import Terminal, wait_until

pytestmark = pytest.mark.process


def test_home_offers_a_trained_mario_and_a_game_of_ones_own(tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("Three things to begin with", "watch a trained Mario", "No runs yet")
    for key, shown in (("w", "stage 1-1"), ("p", "jump (A)")):
        terminal.send(key)
        terminal.wait_for(shown)
        terminal.send("q")
        terminal.wait_for("Three things to begin with")
    terminal.send("q")
    assert terminal.wait() == 0


@pytest.mark.long
def test_the_first_dashboard_explains_its_panels_once(tmp_path: Path) -> None:
    Path(os.environ["XDG_STATE_HOME"], "mario-tui", "dashboard.json").unlink()
    run = ("--game", "snake:5x5", "--steps", "100000000")
    terminal = Terminal(*run, cwd=tmp_path)
    terminal.wait_for("What you see", "the best policy is kept", "any key closes this")
    terminal.send(" ")
    wait_until(lambda: "● running" in (text := terminal.text()) and "What you see" not in text, "the panels")
    terminal.send("?")
    terminal.wait_for("Help", "Panels", "games that play at once", "Pause or resume training")
    terminal.send("\x1b")
    wait_until(lambda: "Actors" in terminal.text() and "╭─" not in terminal.text(), "the dashboard alone")
    terminal.send("q")
    assert terminal.wait() == 0
    again = Terminal("attach", cwd=tmp_path)
    again.wait_for("Actors", "running")
    assert "What you see" not in again.text()
    again.send("q")
    assert again.wait() == 0
