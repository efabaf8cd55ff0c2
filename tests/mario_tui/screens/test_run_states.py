"""What the screen says of a run is true: paused, stopped, failed, unreachable, or only looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.protocol.framing import pack
from engine.protocol.messages import Evaluation, Failed, Finished, Hello, Lanes
from engine.runs.recording import read_recording
from engine.runs.run import Run, end_state
from mario_tui.app import MarioApp
from mario_tui.engine_command import program
from mario_tui.headless import progress_line
from mario_tui.widgets.charts.axes import x_text
from mario_tui.widgets.charts.chart import Curves
from mario_tui.widgets.panels.actors import COLUMNS
from mario_tui.widgets.panels.evaluations import EvaluationsPanel
from mario_tui.widgets.runs_table import Preview
from tests.mario_tui.data.test_settings import write
from tests.support.app import (
    RECORDING,
    folder_of_runs,
    hold,
    opened,
    record_of,
    recorded_run,
    said,
    table_of,
    text,
    type_at_once,
    until,
)
from tests.support.host import INVALID_EVENTS, host_that_sends
from tests.support.source import serving


def ended(folder: Path, steps: int, end: Finished | Failed, *, nothing: bool = False) -> Run:
    """The recorded run with another end, of a run of so many steps; `nothing`: it failed before its first report."""
    run = recorded_run(folder)
    hello, *current = read_recording(RECORDING)
    assert isinstance(hello, Hello)
    past = [event for event in hello.events if not isinstance(event, Finished | Failed)]
    hello = msgspec.structs.replace(
        hello, steps=steps, events=[end] if nothing else [*past, end], points=[] if nothing else hello.points
    )
    run.history_path.write_bytes(b"".join(pack(event) for event in ([hello] if nothing else [hello, *current])))
    record = run.record()
    record.steps = steps
    record.reason = end.summary.reason if isinstance(end, Finished) else end.reason
    record.state = "finished" if isinstance(end, Finished) else "failed"
    run.write_record(record)
    return run


def finished(reason: str) -> Finished:
    (end,) = [event for event in read_recording(RECORDING)[0].events if isinstance(event, Finished)]  # type: ignore[union-attr]
    return Finished(summary=msgspec.structs.replace(end.summary, reason=reason))


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_run_stopped_early_is_not_called_finished(read_only: bool, tmp_path: Path) -> None:
    run = ended(tmp_path, 2_000_000, finished("stopped from the dashboard"))
    app = MarioApp(run, run_dir=str(tmp_path), read_only=read_only)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard: Any = app.screen
        await until(pilot, lambda: dashboard.shown.end, "the end")
        header = text(dashboard, "header")
        assert "■ stopped" in header and "stopped at 20,000 of 2,000,000 steps" in header
        assert ("read-only" in header) is read_only
        assert "steps/s" not in header
        assert "%" not in text(dashboard, "machine")  # load and memory of long ago
        assert "/s" not in text(dashboard, "replay")
        assert "processes" not in {panel.id for panel in dashboard.present()}
        await pilot.press("escape")
        assert "■ stopped" in " ".join(str(cell) for cell in table_of(app).get_row_at(0))


async def test_all_episodes_are_a_finish(tmp_path: Path) -> None:
    app = MarioApp(ended(tmp_path, 2_000_000, finished("500 episodes are done")))
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard: Any = app.screen
        await until(pilot, lambda: "✓ finished" in text(dashboard, "header"), "the end")


def test_the_last_step_finishes_a_run_whoever_stopped_it() -> None:
    assert [end_state(steps, 2000, "received SIGTERM") for steps in (1999, 2000, 2031)] == [
        "stopped", "finished", "finished",
    ]  # fmt: skip


@pytest.mark.parametrize("nothing", [False, True])
async def test_why_a_run_failed_stays_on_the_screen(nothing: bool, tmp_path: Path) -> None:
    end = Failed(reason="the cat\nbit a cable", traceback="", log_path="run.log", checkpoint=None)
    app = MarioApp(ended(tmp_path, 2_000_000, end, nothing=nothing))
    async with app.run_test(size=(80, 24)) as pilot:
        dashboard: Any = app.screen
        await until(pilot, lambda: "✗ failed" in text(dashboard, "header"), "the end")
        app.clear_notifications()
        assert "the cat bit a cable" in text(dashboard, "header")


@pytest.mark.long
async def test_a_run_that_does_not_answer_is_not_called_running(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="running")
    with hold(run):  # a host that lives and has no socket
        app = MarioApp(run)
        async with app.run_test(size=(80, 24)) as pilot:
            dashboard: Any = app.screen
            assert "● running" not in text(dashboard, "header")
            await until(pilot, lambda: "? unreachable" in text(dashboard, "header"), "the state")
            app.clear_notifications()
            await pilot.press("p")
            assert "The run can't be reached" in said(app)


@pytest.mark.parametrize("name", ["size", "nested", "few pixels"])
async def test_what_is_no_message_is_told_once_in_one_line(name: str, tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="running")
    with host_that_sends(run, INVALID_EVENTS[name]):
        app = MarioApp(run)
        async with app.run_test(size=(80, 24)) as pilot:
            dashboard: Any = app.screen
            await until(pilot, lambda: "one: its host sent what is no message" in said(app), "the notice")
            first = dashboard.feed._view
            await until(pilot, lambda: dashboard.feed._view is not first, "another try")
            await until(pilot, lambda: dashboard.feed._view.hello and dashboard.feed._client is None, "its end")
            await until(pilot, lambda: "? unreachable" in text(dashboard, "header"), "the state")
            assert said(app).count("no message of mario-tui") == 1


async def test_only_the_present_best_is_marked(tmp_path: Path) -> None:
    evaluations = [
        Evaluation(env_steps=step, episodes=20, clears=0, mean_return=float(step), best=best, seconds=1.0)
        for step, best in ((100, True), (200, True), (300, False))
    ]
    curves = Curves((), evaluations)
    assert curves.best is evaluations[1]
    assert [letter for _, letter in curves.marks] == ["e", "b", "e"]
    app = MarioApp(recorded_run(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard: Any = app.screen
        await until(pilot, lambda: dashboard.shown.end, "the recording")
        for each in evaluations:
            dashboard.feed.take(each, dashboard.feed._view)
        panel = dashboard.query_one(EvaluationsPanel)
        await until(pilot, lambda: "300" in text(dashboard, "evaluations"), "the evaluations")
        (line,) = [line for line in str(panel.render()).splitlines() if "★" in line]
        assert line.split()[0] == "200"


async def test_to_look_at_a_run_that_had_failed_is_no_failure(tmp_path: Path) -> None:
    app = MarioApp(ended(tmp_path, 2_000_000, Failed(reason="out of luck")))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "out of luck" in text(app.screen, "header"), "the reason")
        await pilot.press("q")
    assert app._print_outcome() == 0


@pytest.mark.process
async def test_a_paused_run_is_called_paused_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, "--rate", "50", "--lanes", "4", "--history", "20000") as run:
        app = MarioApp(run)
        async with app.run_test(size=(120, 40)) as pilot:
            dashboard = await opened(pilot)
            await until(pilot, lambda: "/s" in text(dashboard, "replay"), "the rates")
            await pilot.press("p")
            assert dashboard.state == "paused"  # asked for: what is said on leaving counts with it
            await until(pilot, lambda: "paused" in text(dashboard, "header"), "the pause")
            assert "/s" not in text(dashboard, "replay")
            assert "paused" in progress_line(dashboard.shown.progress)
            assert "–/s" in progress_line(dashboard.shown.progress)
            await pilot.press("q")
        assert app._print_outcome() == 0
        assert f"{run.name} is paused. Reattach with: {program()} attach {run.name}" in capsys.readouterr().out
        app = MarioApp(run)
        async with app.run_test(size=(120, 40)) as pilot:
            await opened(pilot)
            type_at_once(app, "p", "q")  # the host has not yet said that it goes on
            await until(pilot, lambda: app.leaving, "the exit")
        assert app._print_outcome() == 0
        assert f"{run.name} keeps running." in capsys.readouterr().out


async def test_hints_name_the_keys_of_the_settings(tmp_path: Path) -> None:
    write('[keys]\n"home.new" = "a"\n"dashboard.toggle_game" = "f7"\n')
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        welcome = app.screen.query_one("#welcome")
        await until(pilot, lambda: welcome.display and "a   train one yourself" in str(welcome.render()), "the hint")
        app.open_dashboard(recorded_run(tmp_path))
        await until(pilot, lambda: app.screen.shown.end, "the recording")  # type: ignore[attr-defined]
        await pilot.press("a")
        assert "press f7 to show it" in said(app)
    visitor = MarioApp(run_dir=str(tmp_path / "none"), read_only=True)
    async with visitor.run_test(size=(80, 24)) as pilot:
        hint, welcome = visitor.screen.query_one("#hint"), visitor.screen.query_one("#welcome")
        await until(pilot, lambda: "No runs yet" in str(hint.render()), "the list of runs")
        assert not welcome.display


async def test_the_preview_follows_the_run(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="running")
    with hold(run):
        app = MarioApp(run_dir=str(tmp_path))
        async with app.run_test(size=(120, 40)) as pilot:
            preview = app.screen.query_one(Preview)
            for step in (30_000, 31_000):  # the recording stays as old as it is
                record = record_of(run.name, "running", step, 2_000_000)
                run.write_record(record)
                last = (float(step), record.mean_return)
                await until(pilot, lambda last=last: preview._points[-1:] == [last], "the newest")
            assert preview._points[-2][0] == 30_000


async def test_help_is_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("question_mark")
        keys = app.screen.query_one("#keys")
        await until(pilot, lambda: keys.size.height > 12, "the keys")
        assert keys.size.width >= 30
        scroll: Any = keys.parent
        await pilot.press("end")
        await until(pilot, lambda: scroll.scroll_y == scroll.max_scroll_y > 0, "its end")


def test_a_place_on_the_x_axis_is_not_taken_for_a_value() -> None:
    assert x_text(120_000, "steps") == "120k steps"
    assert x_text(-90, "ago") == "0:01:30 before the end"


def test_returns_have_the_decimals_that_they_need() -> None:
    lane = next(event for event in read_recording(RECORDING) if isinstance(event, Lanes)).lanes[0]
    returns = {0.64: "0.640", -0.64: "-0.64", 2.5: "2.50", 632.4: "632", -12345.6: "-12k", 12345.0: "12345", 3.0: "3"}
    for column in COLUMNS:
        if column.name in ("last", "best"):
            for value, text in (*returns.items(), (float("nan"), "–")):
                assert column.text(msgspec.structs.replace(lane, **{f"{column.name}_return": value})) == text
    (mean,) = [column for column in COLUMNS if column.name == "mean"]
    assert mean.text(msgspec.structs.replace(lane, mean_return=2.35)) == "2.35"


@pytest.mark.process
async def test_a_notice_covers_neither_charts_nor_log(tmp_path: Path) -> None:
    app = MarioApp(recorded_run(tmp_path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        dashboard: Any = app.screen
        await until(pilot, lambda: dashboard.shown.end, "the recording")
        await pilot.press("E")  # no chart is active, so nothing is saved
        await until(pilot, lambda: dashboard.query("Toast") and dashboard.query("Toast").first().size.area, "a notice")
        for panel in (*dashboard.charts, dashboard.query_one("#log")):
            assert not dashboard.query("Toast").first().region.overlaps(panel.region)
