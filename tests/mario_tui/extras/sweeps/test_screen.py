"""The screen of a sweep: its table, two settings against each other, curves, options, and what it saves and starts."""

from __future__ import annotations

import csv
import subprocess
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from engine.config.reading import make_config
from engine.protocol.framing import pack
from engine.protocol.messages import Hello
from engine.protocol.results import BestEvaluation, FinalResult, Interval
from engine.runs.recording import read_recording
from engine.runs.run import Run
from engine.runs.sweep import Member, Sweep, SweepPlan
from mario_tui.app import MarioApp
from mario_tui.data.listed import read_listed
from mario_tui.data.run_status import RunStatus
from mario_tui.extras.sweeps.folder import create_sweep
from mario_tui.extras.sweeps.results import commands_of
from mario_tui.extras.sweeps.screen import SweepScreen
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.widgets.charts.comparison import Series, over_seeds
from tests.mario_tui.screens.test_compared_runs import points_up_to
from tests.support.app import names, record_of, said, shown_as, table_of, text, until, write_recording

REACHED = {
    (0.001, 1): (5.0, 6.0, 7.0), (0.001, 3): (1.0, 1.5, 2.0),
    (0.0001, 1): (6.0, 7.0, 8.0), (0.0001, 3): (3.0, None, None),
}  # fmt: skip
"""Best evaluations of all seeds, by learning rate and n-step; the last two have not begun."""


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.chdir(tmp_path)
    members = tuple(Member({"learning_rate": rate, "n_step": n}, seed) for seed in range(3) for rate, n in REACHED)
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
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        assert column(screen, "best") == ["6.00", "1.50", "7.00", "3.00*"]
        assert column(screen, "within") == ["3.52 to 8.48", "0.258 to 2.74", "4.52 to 9.48", ""]
        assert column(screen, "done") == ["3/3", "3/3", "3/3", "1/3 ·"]
        assert column(screen, "better") == ["–", "0.00 ?", "0.78 ?", "0.00 ?"]
        assert "(?: too few seeds)" in (about := str(screen.query_one("#pair").render())) and "* trained less" in about
        await pilot.press("5")
        assert column(screen, "best") == ["7.00", "6.00", "3.00*", "1.50"]
        await pilot.press("2", "O")
        assert column(screen, "option learning_rate") == ["0.001", "0.001", "0.0001", "0.0001"]
        await pilot.press("1", "g", "space")
        assert column(screen, "mark") == ["◆", "", "", ""]
        await pilot.press("j", "space")
        await until(pilot, lambda: str(screen.query_one("#pair").render()).count("is better than") == 2, "both")
        one, other = str(screen.query_one("#pair").render()).splitlines()
        assert one.startswith("too few seeds  ● learning-rate=0.001 n-step=1 is better than ■")
        assert "■ learning-rate=0.0001 n-step=1 is better than ●" in other
        await pilot.press("c")
        compared: Any = await shown_as(pilot, CompareScreen)
        assert len(compared._live_runs) == 6 and compared._chosen.averaged
        await pilot.press("escape", "escape", "G", "enter")
        dashboard = await shown_as(pilot, DashboardScreen)
        assert dashboard.run.name == "rates-004"
        await pilot.press("escape", "k", "enter")
        compared = await shown_as(pilot, CompareScreen)
        assert [live.run.name for live in compared._live_runs] == ["rates-003", "rates-007", "rates-011"]
        await pilot.press("escape", "escape")
        await shown_as(pilot, HomeScreen)


async def test_results_stand_before_best_evaluations_and_options_go_by_them_once_all_runs_have_one(
    sweep: Sweep,
) -> None:
    for number in (7, 11):
        begin(sweep.run(number), (sweep.run(3).path / "config.toml").read_text(), 3.0)

    def judge(*numbers: int) -> None:
        for number in numbers:
            record = sweep.run(number).record()
            assert record.best is not None
            value = record.best.mean_return - 1
            mean = Interval(value, value - 0.5, value + 0.5)
            record.result = FinalResult(env_steps=2000, episodes=100, mean_return=mean)
            sweep.run(number).write_record(record)

    judge(*range(11))
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(160, 40)) as pilot:
        screen = await opened(pilot)
        assert column(screen, "result") == ["5.00", "0.500", "6.00", "2.00"]
        assert column(screen, "result_in") == ["2.52 to 7.48", "-0.742 to 1.74", "3.52 to 8.48", ""]
        assert column(screen, "best") == ["6.00", "1.50", "7.00", "3.00"]
        assert screen.query_one("#levels").title == "Options and best evaluation"
        judge(11)
        await until(pilot, lambda: screen.query_one("#levels").title == "Options and result", "the last result")
        await pilot.press("e")
        await until(pilot, lambda: Path("rates.md").exists(), "the files")
    rows = list(csv.DictReader(Path("rates.csv").read_text().splitlines()))
    assert (rows[0]["result"], rows[0]["result_low"], rows[0]["result_high"]) == ("4.0", "3.5", "4.5")
    assert "| result | best evaluation |" in Path("rates.md").read_text()


async def test_curves_and_options_show_means_with_intervals(sweep: Sweep) -> None:
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("v")
        chart = screen.query_one("#curves")
        await until(pilot, lambda: len(chart.series) == 4 and all(each.values for each in chart.series), "curves")
        assert "Evaluated return" in text(screen, "curves") and "■ learning-rate=0.0001" in text(screen, "markers")
        first, *_, last = chart.series
        ends = first.values[-1], first.bounds[0][-1], first.bounds[1][-1]
        assert ends == pytest.approx((6.0, 3.52, 8.48), abs=0.01) and not last.bounds
        await pilot.press("v")
        await until(pilot, lambda: "n-step" in text(screen, "levels"), "the options")
        lines = text(screen, "levels").splitlines()
        found = {line.split()[0]: line.split()[1:3] for line in lines if len(line.split()) > 2}
        assert found["0.001"] == ["6", "3.75"] and found["1"] == ["6", "6.50"] and found["3"] == ["4", "1.88*"]
        assert "* trained less" in text(screen, "levels")
        await pilot.press("i")
        await until(pilot, lambda: "iqm" in text(screen, "levels"), "interquartile means")
        assert "IQM" in text(screen, "title")
        await pilot.press("escape")
        assert screen.table.has_focus


async def test_curves_are_made_beside_the_loop_that_handles_keys(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    made_in = set[int]()

    def spy(*arguments: Any) -> Series:
        made_in.add(threading.get_ident())
        return over_seeds(*arguments)

    monkeypatch.setattr("mario_tui.widgets.charts.comparison.over_seeds", spy)
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("v")
        chart = screen.query_one("#curves")
        await until(pilot, lambda: len(chart.series) == 4, "curves")
        mean = chart.series
        await pilot.press("i")
        await until(pilot, lambda: chart.series != mean, "interquartile means")
    assert made_in and threading.get_ident() not in made_in


def test_more_steps_than_planned_do_not_make_up_for_a_run_that_has_not_begun(sweep: Sweep) -> None:
    for listed in read_listed(str(sweep.path)):
        if listed.sweep is None:
            listed.record.env_steps = 4000  # of 3,000: ten of them have more than the twelve should have
            listed.run.write_record(listed.record)
    (row,) = [listed for listed in read_listed(str(sweep.path)) if listed.sweep is not None]
    assert row.status is RunStatus.STOPPED and row.record.steps == 36_000


def test_a_sweep_with_a_damaged_run_has_failed(sweep: Sweep) -> None:
    sweep.run(0).record_path.write_text("{")
    (row,) = [listed for listed in read_listed(str(sweep.path)) if listed.sweep is not None]
    assert row.status is RunStatus.FAILED


async def test_home_lists_a_sweep_above_its_runs(sweep: Sweep) -> None:
    app = MarioApp(run_dir=str(sweep.path))
    async with app.run_test(size=(120, 40)) as pilot:
        assert names(app)[0] == "rates (sweep of 12)" and len(names(app)) == 11
        row = [str(cell).strip() for cell in table_of(app).get_row_at(0)]
        assert row[1:4] == ["■ stopped", "rates (sweep of 12)", "30.0k/36.0k"]
        await pilot.press("g", "r")
        assert "not a sweep" in said(pilot.app)
        await pilot.press("d")
        await until(pilot, lambda: pilot.app.screen.query("#yes"), "the question")
        assert "Delete rates, a sweep of " in str(pilot.app.screen.query(Static).first().render())
        await pilot.press("n", "enter")
        await opened(pilot)
        await pilot.press("escape")
        await shown_as(pilot, HomeScreen)


@pytest.mark.process
async def test_it_follows_saves_and_stops_the_sweep(sweep: Sweep) -> None:
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        assert "10 finished, 2 waiting" in text(screen, "title") and screen.check_action("resume_sweep", ())
        for number, best in ((7, 4.0), (11, 5.0)):
            begin(sweep.run(number), (sweep.run(3).path / "config.toml").read_text(), best)
        await until(pilot, lambda: column(screen, "within")[3] == "1.52 to 6.48", "the last run")
        assert not any("*" in best for best in column(screen, "best"))
        assert not screen.check_action("resume_sweep", ())
        assert not screen.check_action("stop", ()), "all runs are done"
        await pilot.press("e")
        await until(pilot, lambda: "rates.csv and .md" in said(pilot.app).replace("\n", ""), "the notice")
        assert len(Path("rates.csv").read_text().splitlines()) == 13
        assert "| `learning-rate=0.0001 n-step=3` | 3 of 3 |" in Path("rates.md").read_text()
        running = record_of(sweep.run(0).name, "running", 100, 3000)
        with sweep.lock(), sweep.run(0).lock():
            sweep.run(0).write_record(running)
            await until(pilot, lambda: screen.check_action("stop", ()), "a run that trains")
            await pilot.press("x")
        sweep.run(0).write_record(record_of(sweep.run(0).name, "finished", 3000, 3000))
        await pilot.press("y")
        await until(pilot, lambda: "rates: all runs are done" in said(pilot.app), "the command")


async def test_how_many_runs_have_too_much_to_be_shown_is_in_the_titles(sweep: Sweep) -> None:
    first = sweep.run(0).history_path
    (hello,) = (event for event in read_recording(first) if isinstance(event, Hello))
    first.write_bytes(pack(msgspec.structs.replace(hello, task="x" * 15 * 2**20)))
    for number in range(1, 6):  # of 64 MiB, four such recordings can be kept
        sweep.run(number).history_path.unlink(missing_ok=True)
        if number != 3:
            sweep.run(number).history_path.hardlink_to(first)
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "1 run too large to be shown" in text(screen, "title"), "the sweep's title")
        await pilot.press("c")
        compared = await shown_as(pilot, CompareScreen)
        await until(pilot, lambda: "1 run too large to be shown" in text(compared, "title"), "the comparison's title")


async def test_the_selected_setting_says_why_its_runs_have_failed(sweep: Sweep) -> None:
    run = sweep.run(0)
    run.write_record(record_of(run.name, "failed", 100, 3000))
    for reason in ("no memory", "the joint is broken"):
        sweep.note("begun", run)
        sweep.note("failed", run, reason=reason)
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "rates-001 failed: the joint is broken" in text(screen, "reasons"), "the reason")
        await pilot.press("down")
        await until(pilot, lambda: not text(screen, "reasons").strip(), "a setting without failures")


@pytest.mark.process
async def test_several_commands_are_copied_as_lines_that_run_together(sweep: Sweep) -> None:
    """A shell runs none of them before the last is there and the user has pressed enter."""
    with sweep.changed_plan() as (plan, write):
        write(msgspec.structs.replace(plan, members=(*plan.members, Member({"n_step": 5}, 0))))
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(120, 40)) as pilot:
        screen: Any = await shown_as(pilot, SweepScreen)
        await until(pilot, lambda: screen.table.row_count == 5, "the settings")
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.clipboard, "the commands")
    *lines, last = commands_of(sweep.plan())
    assert lines and pilot.app.clipboard.splitlines() == [*(f"{line} &&" for line in lines), last]
    printed = subprocess.run(
        ["bash", "-c", pilot.app.clipboard.replace("mario-tui", "echo")], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines() == [line.removeprefix("mario-tui ") for line in (*lines, last)]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_picture(snap_compare: Any, sweep: Sweep, size: tuple[int, int]) -> None:
    async def settle(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        await pilot.press("space", "j", "space")
        chart = screen.query_one("#curves")
        await until(pilot, lambda: [len(each.bounds) for each in chart.series] == [2, 2], "both curves")
        await until(pilot, lambda: str(screen.query_one("#pair").render()).count("is better than") == 2, "both")
        await pilot.wait_for_scheduled_animations()

    assert snap_compare(MarioApp(open_screen=lambda: SweepScreen(sweep)), terminal_size=size, run_before=settle)


async def test_a_sweep_whose_folder_is_gone_says_so(sweep: Sweep) -> None:
    async with MarioApp(open_screen=lambda: SweepScreen(sweep)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        sweep.path.rename(sweep.path.with_name("elsewhere"))
        title = screen.query_one("#title", Static)
        await until(pilot, lambda: "moved or removed" in str(title.render()), "the reason")
        assert "finished" not in str(title.render())
