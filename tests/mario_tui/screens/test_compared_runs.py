"""What Compare says of its runs is true: states, means over seeds, what differs; a run is followed through a resume."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.config.reading import make_config
from engine.protocol.messages import Point
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.widgets.charts.comparison import MARKERS, Comparison
from tests.support.app import folder_of_runs, said, shown_as, text, until, write_recording
from tests.support.host import host_of


async def compared(pilot: Pilot[Any], *keys: str) -> Any:
    """Compare with all runs, as soon as they have data; then press some keys."""
    await pilot.press("A", "c")
    screen = await shown_as(pilot, CompareScreen)
    await until(pilot, lambda: rows_of(screen) and "no data yet" not in text(screen, "compared"), "the data")
    await pilot.press(*keys)
    return screen


def rows_of(screen: Any) -> list[list[str]]:
    """Columns of the rows in the list of runs."""
    return [line.split() for line in text(screen, "compared").splitlines()[2:] if line.strip()]


def states_of(screen: Any) -> dict[str, str]:
    return {row[1]: row[-1] for row in rows_of(screen)}


def means_of(screen: Any) -> list[str]:
    """Names and intervals of the lines in the first chart."""
    return [f"{each.name}{' ±' * bool(each.bounds)}" for each in screen.query_one("#compare-mean_return").series]


def configure(runs: list[Run], **options: Any) -> None:
    """Give runs the same options but for their seed."""
    for seed, run in enumerate(runs):
        (run.path / "config.toml").write_text(make_config({"seed": seed, **options}).to_toml())


def points_up_to(env_steps: int, mean_return: float = 1.0) -> list[Point]:
    return [
        Point(
            env_steps=at, wall_s=at / 100, mean_return=mean_return, loss=0.1, q_mean=1.0, env_steps_per_s=1.0, beta=0.4
        )
        for at in range(1000, env_steps + 1, 1000)
    ]


async def test_a_run_is_followed_through_pause_end_and_resume(tmp_path: Path) -> None:
    run, _ = folder_of_runs(tmp_path, one="running", two="failed")
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        async with host_of(run, 101, "paused", points_up_to(5000)):
            screen = await compared(pilot)
            await until(pilot, lambda: states_of(screen) == {"one": "‖", "two": "✗"}, "the states")
        await until(pilot, lambda: states_of(screen)["one"] == "■", "the end")
        assert [max(each.steps) for each in screen.query_one("#compare-loss").series if each.name == "one"] == [5000]
        async with host_of(run, 102, "running", points_up_to(9000)):
            await until(pilot, lambda: states_of(screen)["one"] == "●", "the new host")
            assert [max(each.steps) for each in screen.query_one("#compare-loss").series if each.name == "one"] == [
                9000
            ]
            await pilot.press("q")


async def test_runs_are_ranked_by_evaluation_and_by_every_other_number(tmp_path: Path) -> None:
    runs = folder_of_runs(tmp_path, a="finished", b="finished", c="finished", d="finished")
    write_recording(runs[0], points_up_to(3000, 0.53), evaluated=[0.71])
    write_recording(runs[1], points_up_to(3000, 0.91), evaluated=[])
    write_recording(runs[2], [*points_up_to(2000, 0.99), *points_up_to(3000, 0.12)[-1:]], evaluated=[0.745, 0.2])
    write_recording(runs[3], points_up_to(3000, -0.25), evaluated=[0.72])
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot)
        assert ranking_of(screen) == ("Runs by best evaluation", "cdab")
        assert text(screen, "compared").splitlines()[1].split() == ["run", "best", "eval", "last", "highest"]
        assert rows_of(screen)[0][2:5] == ["0.745", "0.120", "0.990"]
        assert rows_of(screen)[3][2:5] == ["–", "0.910", "0.910"]
        await pilot.press("o")
        assert ranking_of(screen) == ("Runs by mean return", "bacd")
        assert screen.query_one("#compared").index == 0  # until it is moved
        await pilot.press("o")
        assert ranking_of(screen) == ("Runs by highest mean return", "cbad")
        await pilot.press("end", "asterisk")  # pinned rows come first
        assert ranking_of(screen) == ("Runs by highest mean return", "dcba")
        await pilot.press("asterisk", "o")
        assert ranking_of(screen) == ("Runs by name", "abcd")
        await pilot.press("o", "slash", *"seed=1", "enter")  # only a run without evaluations
        assert text(screen, "compared").splitlines()[1].split() == ["run", "last", "highest"]


def ranking_of(screen: Any) -> tuple[str, str]:
    """What the list says that it ranks the runs by, and the names in their order."""
    return screen.query_one("#compared").title, "".join(row[1] for row in rows_of(screen))


async def test_a_run_that_was_deleted_is_a_notice(tmp_path: Path) -> None:
    (run, _) = folder_of_runs(tmp_path, one="finished", two="finished")
    app = MarioApp(open_run=run, run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await shown_as(pilot, DashboardScreen)
        shutil.rmtree(run.path)
        await pilot.press("c")
        await until(pilot, lambda: "one: not a run of mario-tui" in said(app), "the notice")
        assert isinstance(app.screen, DashboardScreen)


async def test_a_mean_is_over_the_runs_that_are_shown(tmp_path: Path) -> None:
    runs = folder_of_runs(tmp_path, a="finished", b="failed", c="finished", d="finished")
    configure(runs[:3])
    configure(runs[3:], learning_rate=2e-4)
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot, "space", "M")
        assert means_of(screen) == ["2 × learning_rate=0.0007", "1 × learning_rate=0.0002"]  # too few for intervals
        assert [row[-1] for row in rows_of(screen)] == ["✗■", "■"]  # states of both runs
        await pilot.press("M", "home", "space", "M")
        assert means_of(screen)[0] == "3 × learning_rate=0.0007 ±"
        await pilot.press("M", "A", "M")
        assert "all runs are hidden" in text(screen, "compared")
        assert "no line is shown" in text(screen, "differences")


async def test_marks_of_means_outlast_a_filter(tmp_path: Path) -> None:
    runs = folder_of_runs(tmp_path, a="finished", b="finished", c="finished")
    configure(runs[:2])
    configure(runs[2:], learning_rate=2e-4)
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot, "M", "space", "end", "asterisk")  # one mean is hidden, the other one is pinned
        assert means_of(screen) == ["1 × learning_rate=0.0002"]
        await pilot.press("slash", *"seed=1", "enter")
        assert [row[:3] for row in rows_of(screen)] == [[MARKERS[2], "1", "×"], ["·", "1", "×"]]
        assert "⇧" in rows_of(screen)[0]
        assert "only one line is shown" in text(screen, "differences")
        await pilot.press("A")
        assert len(means_of(screen)) == 2


async def test_runs_of_unknown_configuration_are_not_averaged(tmp_path: Path) -> None:
    for run in folder_of_runs(tmp_path, a="finished", b="finished"):
        (run.path / "config.toml").write_text("neither = [toml")
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot, "M")
        assert means_of(screen) == ["1 × a", "1 × b"]


async def test_charts_are_drawn_once_and_only_if_something_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_runs(tmp_path, a="finished", b="finished", c="finished")
    drawn: list[str | None] = []
    repaint = Comparison.repaint

    def counted(chart: Comparison) -> None:
        drawn.append(chart.id)
        repaint(chart)

    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot)
        live = screen._live_runs
        await until(pilot, lambda: all(each.seen.hello for each in live) and not screen._news, "all of them")
        monkeypatch.setattr(Comparison, "repaint", counted)
        drawn.clear()
        screen._choose()
        assert drawn == []
        await pilot.press("space")
        assert sorted(map(str, drawn)) == sorted({str(chart.id) for chart in screen.plots()})


async def test_the_highest_return_is_finite_and_heads_are_whole(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    write_recording(run, [*points_up_to(5000, 7.0), *points_up_to(6000, math.inf)[-1:]], evaluated=[])
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(80, 40)) as pilot:
        screen = await compared(pilot, "t", "t", "left", "left")
        assert rows_of(screen)[0][2:4] == ["7.00", "7.00"]
        head = text(screen, "compared").splitlines()[1]
        assert head.split()[-2:] == ["end", "highest"]


@pytest.mark.parametrize("size", [(120, 40), (80, 34)])
async def test_a_long_list_of_runs_leaves_room_for_what_differs(size: tuple[int, int], tmp_path: Path) -> None:
    folder_of_runs(tmp_path, **{f"run-{index}": "finished" for index in range(13)})
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=size) as pilot:
        screen = await compared(pilot, "A", "space")
        panel = screen.query_one("#differences")
        await until(pilot, lambda: panel.size.height == 2, "the panel's new height")
        assert "only one line is shown" in text(screen, "differences")
        assert panel.parent.region.contains_region(panel.region)


async def test_a_mean_of_fewer_runs_than_before_is_marked(tmp_path: Path) -> None:
    runs = folder_of_runs(tmp_path, a="finished", b="failed", c="finished")
    configure(runs)
    for run, last in zip(runs, (9000, 3000, 9000), strict=True):
        write_recording(run, points_up_to(last, mean_return=2.0), evaluated=[])
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot, "M")
        assert "2.00*" in text(screen, "compared") and "* mean of fewer runs" in text(screen, "compared")
        (mean,) = screen.query_one("#compare-mean_return").series
        assert mean.counts[0] == 3 and mean.counts[-1] == 2 and "n=2" in text(screen, "compare-mean_return")
        await pilot.press("M")
        assert "fewer" not in text(screen, "compared")
