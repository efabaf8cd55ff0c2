"""Panels that have the screen for themselves use it; what has no room is named; the log is searched and scrolled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from engine.protocol.messages import Log, System
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.format import distinct
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.panels.machine import MachinePanel
from mario_tui.widgets.panels.run import describe
from tests.support.app import folder_of_runs, said, text, until

SNAKE = Path(__file__).parents[2] / "support" / "recordings" / "snake.msgpack"


def snake(folder: Path) -> Run:
    (run,) = folder_of_runs(folder, snake="finished")
    shutil.copy(SNAKE, run.history_path)
    return run


async def shown(pilot: Pilot[Any]) -> Any:
    dashboard: Any = pilot.app.screen
    await until(pilot, lambda: dashboard.shown.end and dashboard.is_over, "the recording")
    return dashboard


def lines(dashboard: Any) -> list[str]:
    return [line.strip() for line in text(dashboard, "log").splitlines()[1:] if line.strip()]


async def test_the_log_is_filtered_and_scrolled(tmp_path: Path) -> None:
    async with MarioApp(open_run=snake(tmp_path)).run_test(size=(120, 40)) as pilot:
        dashboard = await shown(pilot)
        await pilot.press("8", "z", "slash", *"evaluation", "enter")
        await until(pilot, lambda: lines(dashboard) and all("evaluation" in line for line in lines(dashboard)), "them")
        assert len(lines(dashboard)) == 10
        assert "filter: evaluation" in text(dashboard, "log").splitlines()[0]
        await pilot.press("escape")
        assert not dashboard.query_one("#filter", Input).display
        await until(pilot, lambda: any("return" in line for line in lines(dashboard)), "everything again")
        newest = lines(dashboard)
        await pilot.press("pageup")
        assert "older lines" in text(dashboard, "log").splitlines()[0]
        assert lines(dashboard)[-1] != newest[-1]
        await pilot.press("home")
        oldest = lines(dashboard)
        await pilot.press("up")
        assert lines(dashboard) == oldest
        await pilot.press("end")
        assert lines(dashboard)[-1] == newest[-1]
        await pilot.press("slash", *"no such line")
        assert lines(dashboard) == ["no line matches the filter"]


async def test_evaluations_are_a_chart_and_what_marks_mean_is_explained(tmp_path: Path) -> None:
    async with MarioApp(open_run=snake(tmp_path)).run_test(size=(100, 40)) as pilot:
        dashboard = await shown(pilot)
        await pilot.press("7", "z")
        await until(pilot, lambda: "mean score" in text(dashboard, "evaluations"), "the chart")
        assert " 7 Evaluations" in text(dashboard, "evaluations")  # Snake has no stages
        assert text(dashboard, "evaluations").count("◆") == 9
        assert text(dashboard, "evaluations").count("★") == 2  # in the chart and in the table
        await pilot.press("4")
        await until(
            pilot,
            lambda: "c checkpoint  e evaluation  b best evaluation  ● newest" in text(dashboard, "chart-return"),
            "the legend",
        )
        assert "r restart" not in text(dashboard, "chart-return")  # there was none


async def test_panels_without_room_are_named(tmp_path: Path) -> None:
    async with MarioApp(open_run=snake(tmp_path)).run_test(size=(80, 24)) as pilot:
        dashboard = await shown(pilot)
        await until(pilot, lambda: "7 Evaluations" in text(dashboard, "header"), "the evaluations' key")
        await pilot.press("7")
        await until(pilot, lambda: "at step" in text(dashboard, "evaluations"), "the evaluations alone")
        assert "7 Evaluations" not in text(dashboard, "header")


async def test_each_core_has_its_history() -> None:
    app = MarioApp()
    async with app.run_test(size=(100, 30)) as pilot:
        panel = MachinePanel()
        panel.add_class("-alone")
        await app.screen.mount(panel)
        panel.styles.height = 20
        await until(pilot, lambda: panel.body[1] > 10, "its size")
        for percent in (0.0, 50.0, 100.0):
            system = System(
                cpu_percent=[percent, 100 - percent], memory_used_bytes=2**33, memory_total_bytes=2**36,
                run_cpu_percent=1.0, run_memory_bytes=2**30, processes=1, gpus=[], gpu_note="none",
            )  # fmt: skip
            panel.show(Snapshot(system=system))
        cores = [line for line in str(panel.render()).splitlines() if line.strip().startswith("core ")]
        assert [line.split()[-1] for line in cores] == ["▁▅█", "█▅▁"]


def test_steps_in_a_list_differ_if_the_numbers_do() -> None:
    assert distinct([1_500_000, 1_480_000, 1_412_000]) == ["1.50M", "1.48M", "1.41M"]
    assert distinct([160_000, 144_000, 16_000]) == ["160k", "144k", "16.0k"]
    assert distinct([5, 5, 7]) == ["5", "5", "7"]


async def test_a_log_that_has_the_screen_cuts_no_line_and_errors_are_told_once(tmp_path: Path) -> None:
    async with MarioApp(open_run=snake(tmp_path)).run_test(size=(60, 24)) as pilot:
        dashboard = await shown(pilot)
        long = "the disk is full: no checkpoint was written at 10,048 steps " + "x" * 60 + " end"
        for times in (1, 2):  # what is still shown is not shown again
            dashboard.feed.take(Log(at=float(times), level="error", text=long), dashboard.feed._view)
            await until(pilot, lambda times=times: str(dashboard.shown.others).count(long) == times, "the line")
            await until(pilot, lambda: long in said(pilot.app), "the notice")
        await pilot.pause()
        assert said(pilot.app).count(long) == 1 and dashboard.run.name in said(pilot.app)
        await pilot.press("8", "z")
        await until(pilot, lambda: lines(dashboard)[-1].endswith("end"), "the whole line")
        assert all(len(line) <= 60 for line in lines(dashboard))
        await pilot.press("up")
        assert sum(line.endswith("end") for line in lines(dashboard)) == 1
        await pilot.press("home")
        assert lines(dashboard) == [describe(dashboard.shown.events[0], dashboard.shown.outcome).plain.strip()]
