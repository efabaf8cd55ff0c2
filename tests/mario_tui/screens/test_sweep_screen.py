"""The screen of a sweep: its table, two settings against each other, curves, options, and what it saves and starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from engine.config.reading import make_config
from engine.runs.run import BestEvaluation, Run
from engine.runs.sweep import Member, Sweep, SweepPlan, create_sweep
from mario_tui.app import MarioApp
from mario_tui.data.listed import read_listed
from mario_tui.data.run_status import RunStatus
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.sweep import SweepScreen
from mario_tui.widgets.charts.comparison import Series
from tests.mario_tui.screens.test_compared_runs import points_up_to
from tests.support.app import names, record_of, said, shown_as, table_of, text, until, write_recording

REACHED = {(0.001, 1): (5.0, 7.0), (0.001, 3): (1.0, 2.0), (0.0001, 1): (6.0, 8.0), (0.0001, 3): (3.0, None)}
"""Best evaluations of both seeds, by learning rate and n-step; the last one has not begun."""


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.chdir(tmp_path)
    members = tuple(Member({"learning_rate": rate, "n_step": n}, seed) for seed in range(2) for rate, n in REACHED)
    plan = SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=members)
    sweep = create_sweep(tmp_path / "runs", "rates", plan)
    for number, member in enumerate(members):
        rate, steps = member.settings.values()
        if (best := REACHED[rate, steps][member.seed]) is not None:  # type: ignore[index]
            begin(sweep.run(number), make_config({**plan.values(member), "run_dir": str(sweep.path)}).to_toml(), best)
    return sweep


def begin(run: Run, config: str, best: float) -> None:
    run.path.mkdir()
    (run.path / "config.toml").write_text(config)
    record = record_of(run.name, "finished", 3000, 3000)
    record.best = BestEvaluation(env_steps=2000, episodes=10, clears=0, mean_return=best)
    run.write_record(record)
    write_recording(run, points_up_to(3000, best), evaluated=[best / 2, best])


async def opened(pilot: Pilot[Any]) -> Any:
    screen: Any = await shown_as(pilot, SweepScreen)
    await until(pilot, lambda: screen.table.row_count == 4, "the settings")
    return screen


def column(screen: Any, name: str) -> list[str]:
    at = [str(key.value) for key in screen.table.columns].index(name)
    return [str(screen.table.get_row_at(row)[at]).strip() for row in range(screen.table.row_count)]


async def test_the_table_sorts_by_any_column_and_compares_two_settings(sweep: Sweep) -> None:
    async with MarioApp(sweep=sweep).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        assert column(screen, "best") == ["6.00", "1.50", "7.00", "3.00"]
        assert column(screen, "within") == ["5.00 to 7.00", "1.00 to 2.00", "6.00 to 8.00", ""]
        assert column(screen, "done") == ["2/2", "2/2", "2/2", "1/2 ·"]
        assert column(screen, "better") == ["0.50", "0.00", "0.75", "0.00"]
        await pilot.press("5")
        assert column(screen, "best") == ["7.00", "6.00", "3.00", "1.50"]
        await pilot.press("2", "O")
        assert column(screen, "option learning_rate") == ["0.001", "0.001", "0.0001", "0.0001"]
        await pilot.press("1", "g", "space")
        assert column(screen, "mark") == ["◆", "", "", ""]
        await pilot.press("j", "space")
        await until(pilot, lambda: str(screen.query_one("#pair").render()).count("is better than") == 2, "both")
        one, other = str(screen.query_one("#pair").render()).splitlines()
        assert one.startswith("0.25 (0.00 to 1.00)  ● learning-rate=0.001 n-step=1 is better than ■")
        assert "0.75" in other and "■ learning-rate=0.0001 n-step=1 is better than ●" in other
        await pilot.press("c")
        compared: Any = await shown_as(pilot, CompareScreen)
        assert len(compared._followed) == 4 and compared._averaged
        await pilot.press("escape", "escape", "G", "enter")
        dashboard = await shown_as(pilot, DashboardScreen)
        assert dashboard.run.name == "rates-004"
        await pilot.press("escape", "k", "enter")
        compared = await shown_as(pilot, CompareScreen)
        assert [followed.run.name for followed in compared._followed] == ["rates-003", "rates-007"]
        await pilot.press("escape", "escape")
        await shown_as(pilot, HomeScreen)


async def test_curves_and_options_show_means_with_intervals(sweep: Sweep) -> None:
    async with MarioApp(sweep=sweep).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("v")
        chart = screen.query_one("#curves")
        await until(pilot, lambda: len(chart.series) == 4 and all(each.values for each in chart.series), "curves")
        assert "Evaluated return" in text(screen, "curves") and "■ learning-rate=0.0001" in text(screen, "markers")
        first, *_, last = chart.series
        assert (first.values[-1], first.bounds[0][-1], first.bounds[1][-1]) == (6.0, 5.0, 7.0) and not last.bounds
        await pilot.press("v")
        await until(pilot, lambda: "n-step" in text(screen, "levels"), "the options")
        lines = text(screen, "levels").splitlines()
        found = {line.split()[0]: line.split()[1:3] for line in lines if len(line.split()) > 2}
        assert found["0.001"] == ["4", "3.75"] and found["1"] == ["4", "6.50"] and found["3"] == ["3", "2.00"]
        await pilot.press("i")
        await until(pilot, lambda: "iqm" in text(screen, "levels"), "interquartile means")
        assert "IQM" in text(screen, "title")
        await pilot.press("escape")
        assert screen.table.has_focus


async def test_a_curve_is_made_anew_whenever_its_runs_have_new_data(sweep: Sweep) -> None:
    """Also where the new series lies in memory where the old one was."""
    async with MarioApp(sweep=sweep).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        row = screen._reading.settings[0]
        for value in range(20):
            run = SimpleNamespace(series=lambda metric: Series(metric, 0, (1.0,), (1.0,), (float(value),)))  # noqa: B023
            assert screen._curve(row, [run], "mean_return").values == [value]


def test_more_steps_than_planned_do_not_make_up_for_a_run_that_has_not_begun(sweep: Sweep) -> None:
    for listed in read_listed(str(sweep.path)):
        if listed.sweep is None:
            listed.record.env_steps = 4000  # of 3,000: seven of them have more than the eight should have
            listed.run.write_record(listed.record)
    (row,) = [listed for listed in read_listed(str(sweep.path)) if listed.sweep is not None]
    assert row.status is RunStatus.STOPPED and row.record.steps == 24_000


def test_a_sweep_with_a_damaged_run_has_failed(sweep: Sweep) -> None:
    sweep.run(0).record_path.write_text("{")
    (row,) = [listed for listed in read_listed(str(sweep.path)) if listed.sweep is not None]
    assert row.status is RunStatus.FAILED


async def test_home_lists_a_sweep_above_its_runs(sweep: Sweep) -> None:
    app = MarioApp(run_dir=str(sweep.path))
    async with app.run_test(size=(120, 40)) as pilot:
        assert names(app)[0] == "rates (sweep of 8)" and len(names(app)) == 8
        row = [str(cell).strip() for cell in table_of(app).get_row_at(0)]
        assert row[1:5] == ["■ stopped", "rates (sweep of 8)", "sweep", "21.0k/24.0k"]
        await pilot.press("g", "r")
        assert "not a sweep" in said(pilot.app)
        await pilot.press("d")
        await until(pilot, lambda: pilot.app.screen.query("#yes"), "the question")
        assert "Delete 7 runs?" in str(pilot.app.screen.query(Static).first().render())
        await pilot.press("n", "enter")
        await opened(pilot)
        await pilot.press("escape")
        await shown_as(pilot, HomeScreen)


async def test_it_follows_saves_and_stops_the_sweep(sweep: Sweep) -> None:
    async with MarioApp(sweep=sweep).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        assert "7 finished, 1 waiting" in text(screen, "title") and screen.check_action("resume_sweep", ())
        begin(sweep.run(7), (sweep.run(3).path / "config.toml").read_text(), 4.0)
        await until(pilot, lambda: column(screen, "within")[3] == "3.00 to 4.00", "the last run")
        assert not screen.check_action("resume_sweep", ())
        await pilot.press("e")
        await until(pilot, lambda: "rates.csv and .md" in said(pilot.app).replace("\n", ""), "the notice")
        assert len(Path("rates.csv").read_text().splitlines()) == 9
        assert "| `learning-rate=0.0001 n-step=3` | 2 of 2 |" in Path("rates.md").read_text()
        await pilot.press("x", "y")
        await until(pilot, lambda: "rates: all runs are done" in said(pilot.app), "the command")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_picture(snap_compare: Any, sweep: Sweep, size: tuple[int, int]) -> None:
    async def settle(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        await pilot.press("space", "j", "space")
        chart = screen.query_one("#curves")
        await until(pilot, lambda: [len(each.bounds) for each in chart.series] == [2, 2], "both curves")
        await until(pilot, lambda: str(screen.query_one("#pair").render()).count("is better than") == 2, "both")
        await pilot.wait_for_scheduled_animations()

    assert snap_compare(MarioApp(sweep=sweep), terminal_size=size, run_before=settle)


async def test_a_sweep_whose_folder_is_gone_says_so(sweep: Sweep) -> None:
    async with MarioApp(sweep=sweep).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        sweep.path.rename(sweep.path.with_name("elsewhere"))
        title = screen.query_one("#title", Static)
        await until(pilot, lambda: "moved or removed" in str(title.render()), "the reason")
        assert "finished" not in str(title.render())
