"""The dashboard of a run that has ended offers what can be done with it, and nothing that can't."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from engine.protocol.messages import Failed, Finished
from engine.runs.checkpoints import BEST_POLICY_FILE
from mario_tui.app import MarioApp
from mario_tui.engine_command import program
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dialogs import TextScreen
from mario_tui.screens.run_control import EvaluationScreen
from mario_tui.widgets.charts.comparison import Comparison
from tests.support.app import folder_of_runs, recorded_run, said, shown_as, text, until
from tests.support.policy_files import shipped


async def ended(pilot: Pilot[Any]) -> Any:
    """The dashboard, as soon as it knows that the run has ended."""
    dashboard: Any = pilot.app.screen
    await until(pilot, lambda: dashboard.is_over and dashboard.shown.end, "the end")
    return dashboard


async def test_keys_of_a_live_run_are_gone_and_others_are_there(tmp_path: Path) -> None:
    (run, *_) = folder_of_runs(tmp_path, one="finished", two="finished", three="failed")
    app = MarioApp(open_run=run, run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = await ended(pilot)
        offered = {binding.binding.action for binding in dashboard.active_bindings.values() if binding.enabled}
        assert offered >= {"resume_run", "evaluate", "compare", "copy", "toggle_game"}
        assert not offered & {"toggle_pause", "save", "checkpoint", "tune", "stop"}
        await pilot.press("y")
        assert isinstance(app.screen, TextScreen)
        await pilot.press("escape", "c")
        compare = await shown_as(pilot, CompareScreen)
        await until(pilot, lambda: len(compare.query_one("#compare-loss", Comparison).series) == 1, "the run's line")
        assert [line.split()[:2] for line in text(compare, "compared").splitlines()[2:5]] == [
            ["●", "one"], ["·", "three"], ["·", "two"],
        ]  # fmt: skip
        await pilot.press("escape", "v")
        await until(pilot, lambda: said(app).count("no complete checkpoint") == 1, "that there is nothing to evaluate")
        app.clear_notifications()
        await pilot.press("r")
        await until(pilot, lambda: said(app).count("no complete checkpoint") == 1, "nor to resume from")
        assert app.screen is dashboard


@pytest.mark.process
async def test_the_best_policy_is_evaluated(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    shutil.copy(shipped("tetris-7x14"), run.path / BEST_POLICY_FILE)
    app = MarioApp(open_run=run, run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await ended(pilot)
        await pilot.press("v")
        screen = await shown_as(pilot, EvaluationScreen)
        assert str(screen.query_one(".dialog").border_title) == "Evaluation of one best"
        await until(pilot, lambda: "20 games, mean score" in str(screen.query_one("#result", Static).render()), "it")
        await pilot.press("escape")
        assert screen._command._process.returncode is not None  # nothing is left behind


@pytest.mark.parametrize(("state", "shown"), [("running", "? lost"), ("failed", "✗ failed")])
async def test_the_record_of_a_run_beats_an_older_recording_of_its_end(state: Any, shown: str, tmp_path: Path) -> None:
    """As of a finished run that was resumed, and whose host was killed before its first recording."""
    run = recorded_run(tmp_path)
    record = run.record()
    record.state, record.reason = state, "killed"
    record.env_steps += 31_000
    run.write_record(record)
    app = MarioApp(open_run=run, run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard: Any = app.screen
        await until(pilot, lambda: dashboard.shown.points, "the recording")
        assert shown in text(dashboard, "header")
        assert not any(isinstance(event, Finished | Failed) for event in dashboard.shown.events)
        assert dashboard.shown.progress.env_steps == record.env_steps


async def test_a_long_reason_of_a_failure_stays_on_the_screen(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="failed")
    record = run.record()
    record.reason = "the learner ran out of memory: " + "much too much " * 8 + "END"
    run.write_record(record)
    run.history_path.unlink()
    async with MarioApp(open_run=run).run_test(size=(80, 24)) as pilot:
        dashboard: Any = pilot.app.screen
        await until(pilot, lambda: "END" in text(dashboard, "header"), "the whole reason")
        assert dashboard.query_one("#header").size.height == len(text(dashboard, "header").splitlines())


async def test_opening_a_run_that_has_ended_earlier_announces_nothing(tmp_path: Path) -> None:
    app = MarioApp(open_run=recorded_run(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        dashboard = await ended(pilot)
        await until(pilot, lambda: dashboard._end_announced, "that its end is known")
        assert said(app) == ""
        assert "✓ finished" in text(dashboard, "header")


@pytest.mark.parametrize("read_only", [False, True])
async def test_where_no_game_can_be_started_g_says_why_and_what_can(read_only: bool, tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    shutil.copy(shipped("tetris-7x14"), run.path / BEST_POLICY_FILE)
    app = MarioApp(open_run=run, run_dir=str(tmp_path), read_only=read_only)
    async with app.run_test(size=(80, 24)) as pilot:  # as in a browser, there is no terminal to leave
        await ended(pilot)
        await pilot.press("g")
        where = "in read-only mode" if read_only else "in a browser"
        told = f"Nobody can play {where}. In a shell: {program()} play one"
        await until(pilot, lambda: told in said(app), "why nobody can play")
