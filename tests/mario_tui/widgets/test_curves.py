"""What the dashboard computes before it draws: windows, smoothing, braille, the past that is kept, the link's pace."""

from __future__ import annotations

import gc
import math

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.strip import Strip

from engine.host.run_state import LANE_EPISODES, MAX_EPISODES, MAX_MARKS, RunState
from engine.protocol.messages import GPU, Changed, Episode, Evaluation, Log, Phase, Point, Ready, Saved, System
from mario_tui.data.run_status import Snapshot
from mario_tui.terminal.picture import Pace
from mario_tui.widgets.base.panel import _last_difference, bar, sparkline
from mario_tui.widgets.charts.axes import ChartView, x_text
from mario_tui.widgets.charts.chart import Curves
from mario_tui.widgets.charts.comparison import MARKERS, Comparison, Series
from mario_tui.widgets.charts.curve import _DOTS, Canvas, Curve, gaps_in, nearest, reduced, smooth
from mario_tui.widgets.panels.machine import MachinePanel
from tests.support.app import until


def point(env_steps: int, wall_s: float = 0.0, value: float = 1.0, loss: float = 1.0) -> Point:
    return Point(
        env_steps=env_steps, wall_s=wall_s, mean_return=value, loss=loss, q_mean=value, env_steps_per_s=1.0, beta=0.4
    )


def episode(number: int, *, lane: int = 0, flag: bool = False) -> Episode:
    return Episode(
        actor=0,
        lane=lane,
        env_steps=number,
        episode=number,
        episode_return=1.0,
        length=1,
        success=flag,
        epsilon=0,
    )


def evaluation(env_steps: int, best: bool = False) -> Evaluation:
    return Evaluation(env_steps=env_steps, episodes=1, clears=0, mean_return=1.0, best=best, seconds=1.0)


# ---------------------------------------------------------------------------------------------- windows


def test_zooming_keeps_what_is_under_the_pointer() -> None:
    view = ChartView(reach=(0.0, 1000.0))
    view.zoom(0.5, 300.0)
    low, high = view.bounds
    assert high - low == 500
    assert (300 - low) / (high - low) == pytest.approx(0.3)
    view.zoom(2.0, 300.0)
    assert view == ChartView(reach=(0.0, 1000.0))


def test_a_window_at_the_right_end_follows_the_newest_until_it_is_moved() -> None:
    def bounds(last: float) -> tuple[float, float]:
        view.reach = (0.0, last)
        return view.bounds

    view = ChartView(reach=(0.0, 1000.0))
    view.zoom(0.5, None)
    assert view.bounds == (500, 1000)
    assert bounds(1200.0) == (700, 1200)
    view.pan(-0.5)
    assert view.bounds == bounds(9000.0) == (450, 950)
    view.reach = (0.0, 1200.0)
    view.pan(-10)
    assert view.bounds == (0, 500)
    view.pan(10)
    assert bounds(1300.0) == (800, 1300)


def test_zooming_ends_at_a_thousandth_and_at_nothing() -> None:
    view = ChartView(reach=(0.0, 1000.0))
    for _ in range(50):
        view.zoom(0.5, None)
    assert view.span == 1.0
    nothing = ChartView(reach=(5.0, 5.0))
    nothing.zoom(0.5, None)
    assert nothing.bounds == (5.0, 5.0)


# ---------------------------------------------------------------------------------------------- curves


def test_smoothing_starts_unbiased_and_passes_over_what_is_not_finite() -> None:
    assert smooth([4.0, 4.0, 4.0], 0.9) == pytest.approx([4, 4, 4])
    smoothed = smooth([1.0, math.nan, math.inf, 1.0], 0.6)
    assert [math.isnan(y) for y in smoothed] == [False, True, True, False]
    assert smoothed[3] == pytest.approx(1.0)
    assert smooth([1.0, 5.0], 0.0) == [1.0, 5.0]


def test_steps_done_again_after_a_resume_replace_the_old_ones() -> None:
    curves = Curves([point(10, 1), point(20, 2), point(30, 3), point(15, 4), point(25, 5)])
    assert curves.xs("steps") == [10, 15, 25]
    assert curves.xs("time") == [1, 4, 5]
    assert curves.xs("ago") == [-4, -1, 0]
    assert curves.x_of(20, "time") == pytest.approx(4.5)
    assert Curves().reach("steps") == Curves().reach("ago") == (0.0, 0.0)


def test_a_loss_that_is_not_known_yet_after_a_resume_is_no_gap_in_its_curve() -> None:
    points = [point(10, 1, loss=math.nan), point(20, 2, loss=0.5), point(25, 3, loss=math.nan), point(30, 4, loss=0.7)]
    curves = Curves(points)
    steps, losses = curves.xs("steps", "loss"), curves.values("loss")
    assert (steps, curves.xs("ago", "loss"), losses) == ([20, 30], [-2, 0], [0.5, 0.7])
    assert gaps_in(Curve(steps, losses, 0, 0), 0, 100) == 0
    assert len(curves.xs("steps")) == len(curves.values("mean_return")) == 4
    assert curves.reach("steps") == (10, 30)


def test_evaluations_done_again_after_a_resume_replace_the_old_ones() -> None:
    evaluations = [evaluation(10), evaluation(20), evaluation(30, best=True), evaluation(15, best=True), evaluation(20)]
    curves = Curves([point(10), point(20)], evaluations)
    assert [event.env_steps for event in curves.evaluations] == [10, 15, 20]
    assert curves.best is evaluations[3]


def test_an_evaluation_without_points_has_no_time() -> None:
    curves = Curves((), [evaluation(10)])
    assert curves.x_of(10, "steps") == 10
    assert math.isnan(curves.x_of(10, "time"))
    assert math.isnan(curves.x_of(10, "ago"))


def test_marks_say_what_happened_and_where() -> None:
    ready = Ready(device="cpu", precision="float32", lane_threads=1, torch_threads=1)
    marks = Curves(
        [point(1), point(100)],
        [
            ready,
            Saved(kind="checkpoint", path="a", env_steps=10),
            Saved(kind="policy", path="b", env_steps=11),
            evaluation(20),
            evaluation(30, best=True),
            Log(at=0.0, level="warning", text="hot"),
            Log(at=0.0, level="info", text="fine"),
            ready,
            Changed(name="beta", value=1.0, before=0.5, env_steps=50),
            Phase(env_steps=60, phase=2, phases=3, name="1-2"),
        ],
    ).marks
    assert marks == [(10, "c"), (20, "e"), (30, "b"), (30, "!"), (30, "r"), (50, "d"), (60, "p")]


def test_the_data_of_many_runs_are_nothing_for_the_garbage_collector() -> None:
    """It stops everything while it goes through what it knows."""
    curves = Curves([point(10, 1), point(20, 2)], [evaluation(20)])
    gc.collect()
    data = curves.points, curves.points[0], curves.evaluations, curves.evaluations[0], curves._steps, curves._wall
    assert not any(map(gc.is_tracked, data))


async def test_a_chart_with_many_curves_is_drawn_in_steps() -> None:
    class Alone(App[None]):
        def compose(self) -> ComposeResult:
            yield chart

    xs = (1.0, 2.0)
    view, many = ChartView(reach=(1.0, 2.0)), [Series(f"run {at}", at, xs, xs, xs) for at in range(60)]
    chart = Comparison("Return", view)
    async with Alone().run_test(size=(80, 24)) as pilot:
        chart.show(many[:1])
        assert list(chart._steps()) == [] and "●" in str(chart.render())
        chart.show(many)
        assert len(list(chart._steps())) >= 30
        await until(pilot, lambda: chart._drawing is None, "the whole chart")
        assert MARKERS[59 % len(MARKERS)] in str(chart.render())


def test_the_nearest_value_and_how_places_are_called() -> None:
    assert [nearest([0.0, 10.0, 20.0], x) for x in (-5, 4.9, 5.1, 17, 99)] == [0, 0, 1, 2, 2]
    assert (x_text(12_345, "steps"), x_text(3661, "time"), x_text(-61, "ago"), x_text(0, "ago")) == (
        "12.3k steps", "1:01:01", "0:01:01 before the end", "end",
    )  # fmt: skip


@pytest.mark.parametrize("smoothing", [0.0, 0.9])
def test_a_reduced_curve_keeps_extremes_and_ends(smoothing: float) -> None:
    xs = [float(x) for x in range(10_000)]
    ys = [math.sin(x / 100) for x in xs]
    ys[4321], ys[8765] = 50.0, -50.0
    curve = Curve(xs, smooth(ys, smoothing), 0, 1, [ys] if smoothing else [])
    small = reduced(curve, 1000.0, 9000.0, 200)
    shown = small.behind[0] if smoothing else small.ys
    assert len(small.xs) <= 200
    assert small.xs[0] == pytest.approx(1000, abs=100) and small.xs[-1] == 9000
    assert (max(shown), min(shown)) == (50.0, -50.0)
    assert list(small.xs) == sorted(small.xs)
    assert reduced(curve, 0.0, 50.0, 200) is curve
    ys[5000] = math.nan
    gap = Curve(xs, ys, 0, 1)
    assert reduced(gap, 1000.0, 9000.0, 200) is gap
    assert len(reduced(gap, 5001.0, 9999.0, 200).xs) <= 200  # the gap is out of sight


@pytest.mark.parametrize("most", [3, 4, 5, 8, 99])
@pytest.mark.parametrize("count", [100, 101, 1_000, 4_097])
def test_a_reduced_curve_has_no_more_points_than_asked_for(count: int, most: int) -> None:
    xs = [float(x) for x in range(count)]
    few = reduced(Curve(xs, [math.sin(x) for x in xs], 0, 1), 0.0, count, most)
    assert len(few.xs) <= most
    assert few.xs[-1] == count - 1


def test_a_reduced_mean_keeps_the_ends_of_its_interval() -> None:
    xs = [float(x) for x in range(1_000)]
    low, high = [-1.0] * 1_000, [1.0] * 1_000
    low[123], high[456] = -9.0, 9.0
    lower, upper = reduced(Curve(xs, [0.0] * 1_000, 0, 1, (low, high)), 0.0, 999.0, 50).behind
    assert (min(lower), max(upper)) == (-9.0, 9.0)


# ---------------------------------------------------------------------------------------------- drawing


def test_a_line_has_a_gap_where_a_value_is_not_finite() -> None:
    canvas = Canvas(10, 2, (0, 19), (0, 7))
    canvas.line([0, 2, 5, 10, 17, 19], [0, 0, math.nan, math.inf, 7, 7], 1)
    assert ["".join(piece for piece, _ in canvas.runs(row)) for row in range(2)] == ["        ⠈⠉", "⣀⡀        "]


@pytest.mark.parametrize(("ys", "expected"), [([0.0, 15.0], 16), ([15.0, 0.0, 15.0], 32), ([3.0, 3.0], 12)])
def test_a_steep_line_of_few_points_has_no_holes(ys: list[float], expected: int) -> None:
    """Each dot touches the next one, so it has a dot at least in each row that it passes."""
    canvas = Canvas(6, 4, (0.0, len(ys) - 1.0), (0.0, 15.0))
    canvas.line(range(len(ys)), ys, 1)
    dots = {
        (4 * row + y, 2 * column + x)
        for row, bits in enumerate(canvas._bits)
        for column, each in enumerate(bits)
        for x in range(2)
        for y in range(4)
        if each & (_DOTS[y][x])
    }
    start = min(dots, key=lambda dot: dot[1])
    reached, ahead = {start}, [start]
    while ahead:
        row, column = ahead.pop()
        near = {(row + y, column + x) for x in (-1, 0, 1) for y in (-1, 0, 1)} & dots - reached
        reached |= near
        ahead += near
    assert reached == dots
    assert len(dots) >= expected - 1


def test_every_extreme_survives_the_thinning() -> None:
    ys = [0.0] * 50_000
    ys[31_234] = 100.0
    canvas = Canvas(40, 4, (0, 49_999), (0, 100))
    canvas.line(list(range(50_000)), ys, 1)
    top = "".join(piece for piece, _ in canvas.runs(0))
    assert top.strip(), "the one spike of fifty thousand"
    assert top.index(top.strip()) == pytest.approx(31_234 / 50_000 * 40, abs=1)


def test_glyphs_and_the_crosshair_lie_over_the_line() -> None:
    canvas = Canvas(5, 2, (0, 4), (0, 1))
    canvas.line([0, 4], [0, 0], 1)
    canvas.glyph(4, 1, "★", 3)
    canvas.glyph(4, math.nan, "★", 3)
    canvas.vertical_line(0, 5)
    canvas.vertical_line(99, 5)
    assert "".join(piece for piece, _ in canvas.runs(0)) == "│   ★"
    assert canvas.runs(1)[0][1] == 5  # the line's dots stay, in the crosshair's ink


def test_behind_the_last_changed_cell_nothing_is_sent() -> None:
    def line(*texts: str) -> Strip:
        return Strip([Segment(text) for text in texts])

    assert _last_difference(line("step ", "12", " of 20"), line("step ", "12", " of 20")) == 0
    assert _last_difference(line("step ", "12", " of 20"), line("step ", "13", " of 20")) == 7
    assert _last_difference(None, line("step ")) == 5
    assert _last_difference(line("step"), line("steps")) == 5


def test_bars_and_sparklines() -> None:
    assert bar(0.5, 4) == "██··"
    assert bar(7.0, 2) == "██"
    assert sparkline([0, 50, 100], 3, 0, 100) == "▁▅█"
    assert sparkline([1, 1], 5) == "▁▁"
    assert sparkline([], 5) == ""


@pytest.mark.parametrize("count", [0, 1, 2, 8])
def test_every_gpu_and_every_core_is_there(count: int) -> None:
    gpu = GPU(
        name="H100", utilisation_percent=61.0, memory_used_bytes=2**34, memory_total_bytes=2**36, temperature_c=64
    )
    system = System(
        cpu_percent=[0.0, 50.0, 100.0, 100.0], memory_used_bytes=2**33, memory_total_bytes=2**36, run_cpu_percent=150.0,
        run_memory_bytes=2**30, processes=3, gpus=[gpu] * count, gpu_note="" if count else "no NVIDIA GPU",
    )  # fmt: skip
    panel = MachinePanel()
    for width in (36, 58):
        text = panel.compose_text(Snapshot(system=system), width).plain
        assert all(f"gpu {index}" in text for index in range(count))
        assert text.count("61%") == text.count("64°C") == text.count("16.0/64.0G") == count
        assert "▁▅██" in text
        assert "run: 150% of a core, 1.0G, 3 processes" in text
        assert ("no NVIDIA GPU" in text) == (count == 0)
        assert max(len(line.rstrip()) for line in text.splitlines()[:-2]) <= width
    panel.add_class("-alone")
    text = panel.compose_text(Snapshot(system=system), 120).plain
    assert text.count("core ") == 4
    assert text.count("H100") == count


# ---------------------------------------------------------------------------------------------- the past


def test_the_rare_outlives_the_frequent() -> None:
    view = RunState()
    view.apply(episode(1, flag=True))
    view.apply(evaluation(2, best=True))
    view.apply(Log(at=0.0, level="warning", text="remember me"))
    for number in range(3, 20_000):
        view.apply(episode(number, lane=number % 256, flag=number % 7 == 0))
    events = list(view.events)
    assert [type(event) for event in events[:3]] == [Episode, Evaluation, Log]
    assert len(events) == len(view.events) == MAX_EPISODES + 3
    numbers = [event.episode for event in events if isinstance(event, Episode)]
    assert numbers == sorted(numbers)
    assert len(view.lane_episodes) == 256
    assert all(len(past) == LANE_EPISODES for past in view.lane_episodes.values())
    for number in range(10_000):
        view.apply(evaluation(number))
    kept = [event.env_steps for event in view.events if isinstance(event, Evaluation)]
    assert len(kept) < MAX_MARKS
    assert kept[0] == 2  # it was the best
    assert kept[1:] == sorted(kept[1:])
    assert kept[-1] == 9_999
    assert any(isinstance(event, Episode) and event.episode == 1 for event in view.events)  # the first clear


@pytest.mark.parametrize("before", [0, 1, 2, 600])
def test_the_first_clear_outlives_any_number_of_best_evaluations(before: int) -> None:
    view = RunState()
    for number in range(before):
        view.apply(evaluation(number, best=True))
    view.apply(episode(7, flag=True))
    for number in range(before, 10_000):
        view.apply(evaluation(number, best=True))
    assert len(view.events) < MAX_MARKS
    assert [event.episode for event in view.events if isinstance(event, Episode)] == [7]


# ---------------------------------------------------------------------------------------------- the link


def test_the_pace_falls_on_a_slow_link_and_recovers() -> None:
    pace = Pace(10.0)
    now = 0.0
    for _ in range(200):
        now += 0.1
        pace.offered(True, now)
    assert pace.fps == 1.0
    for _ in range(400):
        now += 0.1
        pace.offered(False, now)
    assert pace.fps == 10.0
