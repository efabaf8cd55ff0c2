"""Compare: every key on real recordings, seeds of one configuration, differences, colours that last."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.config.reading import make_config
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.differences import colours_of, differences, natural, same_but_seed
from mario_tui.data.seed_statistics import Statistic
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.widgets.charts.comparison import Means, Series, over_seeds
from tests.support.app import folder_of_runs, shown_as, text, until

RATES = {"run-9": 1e-4, "run-10": 1e-4, "run-11": 2e-4}


def rates_and_seeds(folder: Path) -> list[Run]:
    """Runs that differ in seed and learning rate; two of them only in the seed."""
    runs = folder_of_runs(folder, **dict.fromkeys(RATES, "finished"))
    for seed, run in enumerate(runs):
        options = {"seed": seed, "learning_rate": RATES[run.name]}
        (run.path / "config.toml").write_text(make_config(options).to_toml())
    return runs


async def compared(pilot: Pilot[Any]) -> Any:
    """Compare with all runs, as soon as they have data."""
    await pilot.press("space", "space", "space", "c")
    screen = await shown_as(pilot, CompareScreen)
    await until(pilot, lambda: shown_in(screen) == 3, "the lines")
    await until(pilot, lambda: "no data yet" not in text(screen, "compared"), "the recordings")
    return screen


def shown_in(screen: Any) -> int:
    """Number of lines in the first chart."""
    return len(screen.query_one("#compare-mean_return").series)


def names_in(screen: Any) -> list[str]:
    return [line.split()[1] for line in text(screen, "compared").splitlines()[2:] if len(line.split()) > 2]


async def test_runs_are_in_natural_order_beside_what_differs(tmp_path: Path) -> None:
    rates_and_seeds(tmp_path)
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(140, 40)) as pilot:
        screen = await compared(pilot)
        assert names_in(screen) == ["run-9", "run-10", "run-11"]
        rows = [line.split() for line in text(screen, "differences").splitlines()[1:] if line.strip()]
        assert rows[1:] == [["seed", "0", "1", "2"], ["learning-rate", "0.0001", "0.0001", "0.0002"]]
        assert rows[0] == [series.marker for series in sorted(screen.query_one("#compare-loss").series, key=index)]


def index(series: Series) -> list[Any]:
    return natural(series.name)


async def test_keys_of_the_list_hide_pin_and_filter(tmp_path: Path) -> None:
    rates_and_seeds(tmp_path)
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot)
        await pilot.press("space")
        await until(pilot, lambda: shown_in(screen) == 2, "what the keys do")
        await until(
            pilot, lambda: text(screen, "compared").splitlines()[2].strip().startswith("· run-9"), "what the keys do"
        )
        await until(
            pilot,
            lambda: "seed" in text(screen, "differences") and " 0 " not in text(screen, "differences").splitlines()[2],
            "what the keys do",
        )
        await pilot.press("A")
        await until(pilot, lambda: shown_in(screen) == 3, "what the keys do")
        await pilot.press("end", "asterisk")
        await until(
            pilot,
            lambda: names_in(screen)[0] == "run-11" and "⇧" in text(screen, "compared").splitlines()[2],
            "what the keys do",
        )
        await until(
            pilot,
            lambda: [each.name for each in screen.query_one("#compare-loss").series][-1] == "run-11",
            "what the keys do",
        )  # drawn over the others
        await pilot.press("A")
        await until(pilot, lambda: shown_in(screen) == 1, "what the keys do")
        await pilot.press("A", "slash", *"seed=1", "enter")
        await until(
            pilot, lambda: names_in(screen) == ["run-11", "run-10"], "what the keys do"
        )  # a pinned run always stays
        await pilot.press("escape")
        await until(pilot, lambda: len(names_in(screen)) == 3, "what the keys do")
        await pilot.press("home", "enter")
        await until(
            pilot,
            lambda: isinstance(pilot.app.screen, DashboardScreen) and pilot.app.screen.run.name == "run-11",
            "what the keys do",
        )
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen, "what the keys do")


@pytest.mark.long
async def test_keys_of_the_charts_are_those_of_the_dashboard(tmp_path: Path) -> None:
    rates_and_seeds(tmp_path)
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot)
        first, last = screen.view.reach
        await pilot.press("plus")
        assert screen.view.span == pytest.approx((last - first) / 2)
        await pilot.press("comma", "full_stop", "minus", "plus", "0")
        assert screen.view.span is None
        await pilot.press("left", "left")
        assert " at " in text(screen, "compare-loss") and "│" in text(screen, "compare-q_mean")
        assert "last" not in text(screen, "compared").splitlines()[1]
        await pilot.press("right", "escape")
        assert screen.view.cursor is None
        await pilot.press("m")
        assert "ema 0.6" in text(screen, "compare-loss")
        await pilot.press("5", "l")
        assert [plot.id for plot in screen.plots() if plot.logarithmic] == ["compare-loss"]
        await pilot.press("t", "enter")
        await until(pilot, lambda: screen.query_one("#compare-loss").size.height > 30, "the chart alone")
        assert "training time" in text(screen, "compare-loss")
        await pilot.press("z", "w")
        await until(pilot, lambda: not screen.query_one("#compare-loss").display, "the chart hidden")
        await pilot.press("W", "tab")
        assert screen.focused is not None
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:  # view and scale are remembered
        screen = await compared(pilot)
        assert (screen.view.axis, screen.view.smoothing) == ("time", 0.6)
        assert [plot.id for plot in screen.plots() if plot.logarithmic] == ["compare-loss"]
        await pilot.press("h")
        assert isinstance(pilot.app.screen, HomeScreen)


async def test_seeds_of_one_configuration_become_their_mean(tmp_path: Path) -> None:
    rates_and_seeds(tmp_path)
    async with MarioApp(run_dir=str(tmp_path)).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot)
        await pilot.press("M")
        assert "means over seeds of 2 configurations" in str(screen.query_one("#title").render())
        two, one = screen.query_one("#compare-mean_return").series
        assert (two.name, one.name) == ("2 × learning_rate=0.0001", "1 × learning_rate=0.0002")
        assert (set(two.counts), set(one.counts)) == ({2}, {1}) and not two.bounds  # too few for an interval
        await pilot.press("M")
        assert shown_in(screen) == 3


def line(slope: float, last: int, first: int = 0, seconds: float = 1.0) -> Series:
    steps = [float(step) for step in range(first, last + 1, 10)]
    return Series("", 0, steps, [seconds * step for step in steps], [slope * step for step in steps])


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_a_mean_goes_on_where_a_run_has_ended_and_tells_how_many_there_are(statistic: Statistic) -> None:
    mean = over_seeds([line(1.0, 1000), line(2.0, 500), line(3.0, 2000)], "x", 3, statistic)
    assert (mean.steps[0], mean.steps[-1]) == (0, 2000) and mean.values[-1] == 6000
    at = mean.place(400, "steps")
    assert at is not None and mean.counts[at] == 3
    step, (low, high) = mean.steps[at], mean.bounds
    assert mean.values[at] == pytest.approx(2 * step)
    # The standard deviation is the step, of three runs: 4.303 * step / sqrt(3).
    assert [low[at], high[at]] == pytest.approx([2 * step - 2.484 * step, 2 * step + 2.484 * step], abs=1)
    ends = [
        step for (step, before), (_, count) in pairwise(zip(mean.steps, mean.counts, strict=True)) if before > count
    ]
    assert ends == pytest.approx([520, 1020], abs=10) and list(mean.counts) == sorted(mean.counts, reverse=True)
    assert [math.isnan(end) for end in low] == [math.isnan(end) for end in high] == [n < 3 for n in mean.counts]


def test_runs_that_end_a_few_steps_apart_are_all_counted_at_the_end() -> None:
    mean = over_seeds([line(1.0, 10_000), line(2.0, 10_040), line(3.0, 10_020, first=30)], "x", 0)
    assert set(mean.counts) == {3}


def test_time_does_not_go_back_where_a_slow_run_ends() -> None:
    mean = over_seeds([line(1.0, 1000, seconds=9.0), line(2.0, 2000)], "x", 0)
    assert list(mean.seconds) == sorted(mean.seconds)


def test_a_mean_of_one_run_has_no_interval_and_one_of_none_no_value() -> None:
    assert over_seeds([line(1.0, 100)], "x", 0).bounds == ()
    assert over_seeds([Series("", 0), line(1.0, 50)], "x", 0).values[-1] == 50
    assert not over_seeds([Series("", 0)], "x", 0).values


def test_a_mean_is_made_anew_whenever_its_runs_have_new_data() -> None:
    """Also where the new series lies in memory where the old one was."""
    means = Means()
    for last in range(100, 2000, 100):
        assert means.over_seeds("key", [line(1.0, last)], "x", 0).values[-1] == last
    runs = [line(1.0, 100), line(3.0, 100)]
    mean = means.over_seeds("key", runs, "x", 0)
    assert means.over_seeds("key", list(runs), "x", 0) is mean and mean.values[-1] == 200


def test_a_run_keeps_its_colour(tmp_path: Path) -> None:
    assert colours_of(["a", "b", "c"]) == [0, 1, 2]
    assert colours_of(["c", "a"]) == [2, 0]
    assert colours_of(["d", "b"]) == [3, 1]  # the number of a run that is not compared now is not free
    assert colours_of(["x", "y", "c"], save=False) == [4, 5, 2]
    assert colours_of(["y", "d", "a"]) == [4, 3, 0]
    many = [str(number) for number in range(1000)]
    numbers = colours_of(many)
    assert len(set(numbers)) == 1000
    assert colours_of(["new", *many[-2:]]) == [0, *numbers[-2:]]  # only the oldest ones are forgotten


def test_differences_name_what_is_missing_and_leave_out_what_is_equal() -> None:
    one, two = {"seed": 1, "lr": 0.1, "same": 3}, {"seed": 2, "lr": 0.1, "same": 3, "alpha": 0.6}
    assert differences([one, two]) == {"seed": ["1", "2"], "alpha": ["–", "0.6"]}
    assert same_but_seed({**one, "seed": 7}) == same_but_seed(one) != same_but_seed(two)
    close = {"lr": 0.10000000001}
    assert differences([one, one | close, {}]) == {"lr": ["0.1", "0.10000000001", "–"]}
    assert same_but_seed(one) != same_but_seed(one | close)
    assert differences([one, {}]) == {}  # nothing is known of the second run
    assert sorted(["run-10", "run-9", "Run-1", "a"], key=natural) == ["a", "Run-1", "run-9", "run-10"]


@pytest.mark.process
async def test_a_chart_is_saved_as_measured_points_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    rates_and_seeds(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    async with MarioApp(run_dir=str(tmp_path / "runs")).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot)
        await pilot.press("5", "E", "E")
        await until(pilot, lambda: (tmp_path / "TD-loss-2.pdf").exists(), "all files")
        lines = (tmp_path / "TD-loss.csv").read_text().splitlines()
        assert lines[0] == "series,env_steps,seconds,value"
        assert len(lines) == 1 + sum(len(each.values) for each in screen.query_one("#compare-loss").series)
        assert "<svg" in (tmp_path / "TD-loss.svg").read_text()
        await pilot.press("M", "E")  # of means, the measured points of their runs are saved
        await until(pilot, lambda: (tmp_path / "TD-loss-3.csv").exists(), "the runs")
        head, *means = (tmp_path / "TD-loss-3.csv").read_text().splitlines()
        assert head == "series,setting,seed,env_steps,seconds,value"
        runs = {tuple(line.split(",")[:3]) for line in means}
        assert runs == {
            ("run-9", "2 × learning_rate=0.0001", "0"), ("run-10", "2 × learning_rate=0.0001", "1"),
            ("run-11", "1 × learning_rate=0.0002", "2"),
        }  # fmt: skip
        assert sorted(line.split(",", 1)[1] for line in lines[1:]) == sorted(line.split(",", 3)[3] for line in means)


def test_a_value_is_told_where_a_run_was_and_not_beyond() -> None:
    """The run goes on behind its newest evaluation; one that ended long before is not there."""
    steps = [float(step) for step in range(50, 1000, 50)]
    evaluated = Series("", 0, steps, steps, [step / 10 for step in steps])
    assert evaluated.place(985, "steps") == evaluated.place(math.inf, "steps") == len(steps) - 1
    assert evaluated.place(40, "steps") is evaluated.place(1001, "steps") is None
    assert Series("", 0, (50.0,), (50.0,), (5.0,)).place(80, "steps") == 0


def test_an_earlier_value_does_not_stand_for_a_newest_one_that_is_not_finite() -> None:
    diverged = Series("", 0, (50.0, 100.0), (1.0, 2.0), (5.0, math.nan))
    assert diverged.place(math.inf, "steps") is None and diverged.place(90, "steps") == 0
