"""The application under Textual's pilot, on real hosts with the real emulator, and snapshots of recorded runs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from engine.protocol.messages import Finished
from engine.runs import checkpoints
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.screens import panel_grid
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import ConfirmScreen, HelpScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from mario_tui.widgets.panels.game import GameView
from tests.support.app import recorded_run, shown_as, start, table_of, type_at_once, until
from tests.support.program import PATIENCE_S, FinishedRun, runner_of

SIZES = [(80, 24), (120, 40)]


def state_of(screen: Any) -> str:
    progress = screen.feed.snapshot().progress
    return progress.state if progress else ""


@pytest.mark.process
async def test_every_key_of_the_dashboard_does_what_it_says(tmp_path: Path) -> None:
    host = start(tmp_path, steps=100_000_000, burnin=200)
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = app.screen
        assert isinstance(dashboard, DashboardScreen)
        feed = dashboard.feed
        await until(pilot, lambda: state_of(dashboard) == "running", "training")
        await until(pilot, lambda: feed.snapshot().points, "a point for the charts")

        await pilot.press("p")
        await until(pilot, lambda: state_of(dashboard) == "paused", "the pause")
        held = feed.snapshot().progress.env_steps  # type: ignore[union-attr]
        await pilot.press("s")
        policy = await until(pilot, lambda: list(host.run.path.glob("policies/*.safetensors")), "the policy")
        assert checkpoints.policy_metadata(policy[0])["env_steps"] == held
        await pilot.press("C")
        saved = await until(pilot, lambda: checkpoints.committed(host.run), "the checkpoint")
        assert checkpoints.verify(saved[0]).env_steps == held
        assert feed.snapshot().progress.env_steps == held  # type: ignore[union-attr]
        await pilot.press("space")
        await until(pilot, lambda: state_of(dashboard) == "running", "the resumption")
        await until(pilot, lambda: feed.snapshot().progress.env_steps > held, "steps after the pause")  # type: ignore[union-attr]

        game = app.screen.query_one(GameView)
        assert not game.display
        await pilot.press("g")
        first = await until(pilot, feed.frame, "a picture")
        await until(pilot, lambda: feed.frame() is not first, "the next picture")  # the game moves
        assert game.display
        assert len({first.rgb[i : i + 3] for i in range(0, len(first.rgb), 3)}) > 5  # colours of a real screen
        await pilot.press("g")
        assert not game.display

        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        await pilot.press("x")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("n")
        assert app.screen is dashboard
        assert state_of(dashboard) == "running"
        await pilot.press("x", "y")
        end = await until(pilot, lambda: feed.snapshot().end, "the end")
        assert isinstance(end, Finished)
        assert end.summary.reason == "stopped from the dashboard"
        dashboard.action_toggle_pause()  # as if pressed just before the key goes: answered, not lost in silence
        await until(pilot, lambda: any("not running" in notice.message for notice in app._notifications), "the answer")
        await pilot.press("escape")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("q")
    assert app.return_code == 0
    assert host.process.wait(PATIENCE_S) == 0


@pytest.mark.process
async def test_a_run_from_home_detach_and_attach_with_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = MarioApp()
    async with app.run_test(size=(80, 24)) as pilot:
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("enter")  # no run yet: Enter offers a new one
        await shown_as(pilot, NewRunScreen)
        await pilot.press("f3")
        await until(pilot, lambda: app.screen.query("#edit-seed"), "the group")
        app.screen.query_one("#edit-seed", Input).value = "-1"
        await pilot.press("ctrl+r")
        assert isinstance(app.screen, NewRunScreen)  # refused, with the reason at the field
        row = app.screen.query_one("#row-seed")
        assert "✗ must be a whole number between 0 and 4,294,967,295, got -1" in str(row.query_one(".about").render())
        await pilot.press("ctrl+u", *"5", "f3", "f3")  # Learning
        await until(pilot, lambda: app.screen.query("#edit-burnin"), "the group")
        app.screen.query_one("#edit-burnin", Input).value = "100"
        await pilot.pause()
        app.screen.query_one("#edit-parallel_envs", Input).value = "2"
        await pilot.press("ctrl+r")
        dashboard = await shown_as(pilot, DashboardScreen)
        assert isinstance(dashboard, DashboardScreen)
        await until(pilot, lambda: len(dashboard.feed.snapshot().points) > 2, "points for the charts")
        run, seen = dashboard.run, [point.env_steps for point in dashboard.feed.snapshot().points]
        assert run.config().burnin == 100
        await pilot.press("q")
    assert run.is_alive()

    again = MarioApp()
    async with again.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        dashboard = again.screen
        assert isinstance(dashboard, DashboardScreen)
        await until(pilot, lambda: dashboard.feed.snapshot().points, "the history")
        assert [point.env_steps for point in dashboard.feed.snapshot().points][: len(seen)] == seen
        await pilot.press("x", "y")
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
        before = run.record().env_steps
        await pilot.press("h")
        await shown_as(pilot, HomeScreen)
        await until(pilot, lambda: not run.is_alive(), "the host's end")
        await until(pilot, lambda: table_of(again).current() is not None, "the row of the run")
        await pilot.press("r")  # resume
        dashboard = await shown_as(pilot, DashboardScreen)
        progress = await until(pilot, lambda: dashboard.feed.snapshot().progress, "progress")
        assert progress.env_steps >= before
        await pilot.press("x", "y")
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
        assert dashboard.run.path == run.path


@pytest.mark.process
async def test_resume_of_a_complete_run_asks_for_more_steps(finished_run: FinishedRun, tmp_path: Path) -> None:
    home = tmp_path / "checkpoints"
    shutil.copytree(finished_run.run.path, home / "done")
    record = Run(home / "done").record()
    record.name, record.env_steps, record.steps = "done", 2000, 2000
    Run(home / "done").write_record(record)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        app = MarioApp()
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("r")
            await shown_as(pilot, NewRunScreen)
            await until(pilot, lambda: app.focused is not None and app.focused.id == "edit-steps", "the field")
            assert app.screen.query_one("#edit-steps", Input).value == "4000"
            assert not app.screen.query_one("#row-name").display  # a resumed run keeps its name
            await pilot.press("escape", "enter")
            dashboard = await shown_as(pilot, DashboardScreen)  # a finished run opens, too
            await until(pilot, lambda: dashboard.feed.snapshot().end, "the recorded end")
            await pilot.pause(0.3)
            assert "finished" in str(dashboard.query_one("#header").render())


@pytest.mark.process
async def test_a_crashed_engine_is_shown_with_reason_and_log(tmp_path: Path) -> None:
    host = start(tmp_path, steps=100_000_000, restarts=0)
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(80, 24)) as pilot:
        dashboard = app.screen
        assert isinstance(dashboard, DashboardScreen)
        await until(pilot, lambda: state_of(dashboard) == "running", "training")
        runner_of(host.run).kill()
        await until(pilot, lambda: app._notifications, "the notice")
        notice = " ".join(str(notice.message) for notice in app._notifications)
        assert "killed by SIGKILL" in notice
        assert "run.log" in notice


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        *(("home", keys) for keys in ("q c", "q n", "q ctrl+p", "ctrl+c ctrl+c n")),
        *(("dashboard", keys) for keys in ("q enter", "q w", "q h", "q ctrl+p")),
    ],
)
async def test_nothing_acts_after_q(place: str, keys: str, tmp_path: Path) -> None:
    run = recorded_run(tmp_path)
    app = MarioApp(run if place == "dashboard" else None, run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        if place == "dashboard":
            await until(pilot, lambda: app.screen.shown.end, "the recording")  # type: ignore[attr-defined]
            await pilot.press("1")  # a panel that `w` could hide, a lane that Enter could open
        screens, kept = list(app.screen_stack), panel_grid.recall("dashboard")
        type_at_once(app, *keys.split())
        while app.is_running:
            assert app.screen_stack == screens
            await asyncio.sleep(0)
    assert app.return_code == 0  # no traceback
    assert app.leaving
    assert panel_grid.recall("dashboard") == kept


# ---------------------------------------------------------------------------------------------- snapshots


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
def test_snapshot_of_the_dashboard(snap_compare: Any, size: tuple[int, int], tmp_path: Path) -> None:
    async def settle(pilot: Pilot[Any]) -> None:
        dashboard: Any = pilot.app.screen
        await until(
            pilot, lambda: dashboard.shown is dashboard.feed.snapshot() and dashboard.shown.end, "the recording"
        )
        await pilot.wait_for_scheduled_animations()

    assert snap_compare(MarioApp(open_run=recorded_run(tmp_path)), terminal_size=size, run_before=settle)
