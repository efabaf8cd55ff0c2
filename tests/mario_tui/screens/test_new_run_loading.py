"""The form of a new run while a process makes the environment that was chosen: keys go on, and no run is started."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil
import pytest
from textual.widgets import Input

from mario_tui.app import MarioApp
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from tests.support.app import shown_as, until
from tests.support.form import focused, shown

SLOW = """
import pathlib, time, gymnasium
folder = pathlib.Path(__file__).parent
with (folder / "asked").open("a") as file:
    file.write("once ")
while not (folder / "may-go-on").exists():
    time.sleep(0.02)
gymnasium.register("Slow-v0", entry_point="gymnasium.envs.classic_control:AcrobotEnv", max_episode_steps=77)
"""


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """An environment that is made once there is a file `may-go-on` beside it."""
    (tmp_path / "slow.py").write_text(SLOW)
    return f"{tmp_path / 'slow.py'}:Slow-v0"


async def form_with(pilot: Any, env: str) -> NewRunScreen:
    """A form in which the environment was typed, and has the focus."""
    pilot.app.push_screen(NewRunScreen(pilot.app.run_dir, options={"game": "gym"}))
    screen = await shown_as(pilot, NewRunScreen)
    await focused(pilot, "game")
    screen._go_to("env")
    await focused(pilot, "env")
    screen.query_one("#edit-env", Input).value = env
    await until(pilot, lambda: screen.form.typed("env") == env, "the environment")
    return screen


def asked(folder: Path) -> int:
    file = folder / "asked"
    return len(file.read_text().split()) if file.exists() else 0


def asking() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has ended
            if "engine.games.gym.describe" in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.mark.parametrize("height", [12, 40])
@pytest.mark.process
async def test_keys_go_on_while_an_environment_is_made_and_no_run_starts(
    tmp_path: Path, slow: str, height: int
) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(120, height)) as pilot:
        screen = await form_with(pilot, slow)
        await until(pilot, lambda: asked(tmp_path), "the question")
        assert shown(screen, "#memory") == f"loading {slow} …"
        await until(pilot, lambda: screen.query_one("#memory").region.height == 1, "its line")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: shown(screen, "#about") == f"Not started: loading {slow} …", "the reason")
        assert screen.job is None and not (tmp_path / "runs").exists()
        screen._go_to("seed")
        await focused(pilot, "seed")
        await pilot.press("7")
        await until(pilot, lambda: screen.form.typed("seed") == "7", "what is typed meanwhile")
        (tmp_path / "may-go-on").touch()
        await until(pilot, lambda: "GiB free" in shown(screen, "#memory"), "the answer")
        assert not screen._errors and asked(tmp_path) == 1
        assert screen.form.config().spec.frame_shape[-1] == 6


@pytest.mark.process
async def test_the_newest_environment_is_asked_for_and_the_one_before_ends(tmp_path: Path, slow: str) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await form_with(pilot, slow)
        await until(pilot, lambda: asked(tmp_path), "the question")
        (before,) = asking()
        screen.query_one("#edit-env", Input).value = "MountainCar-v0"
        await until(pilot, lambda: "GiB free" in shown(screen, "#memory"), "the newer answer")
        await until(pilot, lambda: not before.is_running(), "the end of the older process")
        assert screen.form.config().value("env") == "MountainCar-v0"


@pytest.mark.process
async def test_closing_the_form_ends_the_process_that_it_waits_for(tmp_path: Path, slow: str) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(120, 40)) as pilot:
        await form_with(pilot, slow)
        await until(pilot, lambda: asked(tmp_path), "the question")
        await pilot.press("escape")
        await shown_as(pilot, HomeScreen)
        await until(pilot, lambda: not asking(), "its end")


@pytest.mark.process
async def test_an_environment_that_fails_is_asked_once(tmp_path: Path, slow: str) -> None:
    (tmp_path / "may-go-on").touch()
    wrong = slow.replace("Slow", "Other")
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await form_with(pilot, wrong)
        await until(pilot, lambda: "env" in screen._errors, "the reason")
        reason = screen._errors["env"]
        screen.query_one("#edit-env", Input).value = "CartPole-v1"
        await until(pilot, lambda: not screen._errors, "one that is known")
        screen.query_one("#edit-env", Input).value = wrong
        await until(pilot, lambda: screen._errors.get("env") == reason, "the same reason")
        assert screen.form.question is None and asked(tmp_path) == 1
