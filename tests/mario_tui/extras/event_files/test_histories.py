"""Long series: what is dropped, and what never is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mario_tui.extras.event_files import MOST_POINTS, Columns
from mario_tui.extras.event_files.history import History, HistoryBuilder
from mario_tui.widgets.charts.axes import ChartView
from mario_tui.widgets.charts.comparison import Comparison, Series


def columns_of(values: Sequence[float], first: int = 0) -> Columns:
    columns = Columns()
    for step, value in enumerate(values, first):
        columns.append(step, 1000.0 + step, value)
    return columns


def built(*portions: Sequence[float]) -> History:
    builder, step = HistoryBuilder(), 0
    for values in portions:
        builder.extend(columns_of(values, step))
        step += len(values)
    return builder.history


def test_a_short_series_is_kept_whole() -> None:
    values = [math.sin(step) for step in range(MOST_POINTS)]
    history = built(values)
    assert list(history.values) == list(history.means) == values
    assert list(history.steps) == list(history.seconds) == list(range(MOST_POINTS))
    assert (history.stride, history.count) == (1, MOST_POINTS)


@pytest.mark.parametrize("count", [MOST_POINTS + 1, 3 * MOST_POINTS, 50_001, 200_000])
def test_a_long_series_keeps_its_outline_and_its_mean(count: int) -> None:
    values = [step / count + 100 * (step == count // 3) - 100 * (step == count // 2) for step in range(count)]
    history = built(values)
    assert MOST_POINTS / 2 <= len(history) <= MOST_POINTS + 4
    assert (history.steps[0], history.steps[-1]) == (0, count - 1)
    assert (min(history.values), max(history.values)) == (min(values), max(values))
    assert [values[step] for step in history.steps] == list(history.values)
    assert sorted(history.steps) == list(history.steps)
    gaps = {b - a for a, b in itertools.pairwise(history.steps)}
    assert max(gaps) < 2 * history.stride  # evenly: no stretch is without points
    assert sum(history.means) / len(history) == pytest.approx(sum(values) / count, abs=0.01)
    assert abs(sum(history.values) / len(history)) < 1


def test_rare_peaks_are_all_there_but_do_not_change_the_mean() -> None:
    """The lowest and the highest point of each bucket alone would say that half of the values are 100."""
    values = [100.0 * (step % 50 == 25) for step in range(100_000)]
    history = built(values)
    assert history.stride >= 50 and set(history.values) == {0.0, 100.0}
    assert sum(history.values) / len(history) == pytest.approx(50, abs=5)
    assert sum(history.means) / len(history) == pytest.approx(2, abs=0.1)


def test_smoothing_uses_the_means() -> None:
    history = built([100.0 * (step % 50 == 25) for step in range(100_000)])
    chart = Comparison("rare", ChartView(smoothing=0.99))
    series = Series("x", 0, history.steps, history.seconds, history.values, means=history.means)
    chart.series = [series]  # showing it takes a screen
    (curve,) = chart.curves()
    assert max(curve.ys) < 4 and curve.ys[-1] == pytest.approx(2, abs=0.5)


@pytest.mark.parametrize(
    ("steps", "times", "ordered"),
    [
        ([1, 2, 2, 5], [0.0, 0.0, 1.0, 1.0], True),
        ([1, 2, 1], [0.0, 1.0, 2.0], False),
        ([1, 2, 3], [0.0, 2.0, 1.0], False),
        ([1, 2], [0.0, math.nan], False),
        ([1, 2], [math.nan, 1.0], False),
        ([1, 2], [-1e308, 1e308], False),
        ([1], [math.inf], False),
        ([], [], True),
    ],
)
def test_a_history_tells_whether_it_is_in_order(steps: list[int], times: list[float], ordered: bool) -> None:
    builder, columns = HistoryBuilder(), Columns()
    for step, time in zip(steps, times, strict=True):
        one = Columns()
        one.append(step, time, 0.0)
        columns.extend(one)
        builder.extend(one)
    at_once = HistoryBuilder()
    at_once.extend(columns)
    assert builder.history.ordered == at_once.history.ordered == ordered


numbers = st.floats(width=32) | st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, -1e308])


@given(st.lists(st.lists(numbers, max_size=60), max_size=8), st.sets(st.integers(0, 7)))
def test_whatever_comes_in_the_first_the_newest_and_the_extremes_stay(
    portions: list[list[float]], thinned: set[int]
) -> None:
    builder, values = HistoryBuilder(), list[float]()
    for index, portion in enumerate(portions):
        before, content = builder.history, repr(builder.history)
        builder.extend(columns_of(portion, len(values)))
        if index in thinned:
            builder.thin()
        values += portion
        assert repr(before) == content  # what was shown does not change
    history = builder.history
    finite = [value for value in values if math.isfinite(value)]
    assert len({len(history.steps), len(history.seconds), len(history.values), len(history.means)}) == 1
    assert history.count == len(values)
    assert list(history.steps) == sorted(set(history.steps))
    assert repr([values[step] for step in history.steps]) == repr(list(history.values))
    if values:
        assert (history.steps[0], history.steps[-1]) == (0, len(values) - 1)
    if finite:
        assert {min(finite), max(finite)} <= set(history.values)
    slack = 1e-6 * max(map(abs, finite), default=0)
    for mean in filter(math.isfinite, history.means):
        assert min(finite) - slack <= mean <= max(finite) + slack


@given(st.integers(0, 20_000), st.integers(-1, 21_000), st.integers(0, 9_000), st.booleans())
def test_what_is_dropped_leaves_what_was_before(count: int, step: int, more: int, thinned: bool) -> None:
    builder = HistoryBuilder()
    builder.extend(columns_of([math.sin(at / 100) for at in range(count)]))
    if thinned:
        builder.thin()
    stride = builder.history.stride
    builder.drop_from(step)
    left = max(0, min(step, count))
    history = builder.history
    assert len({len(history.steps), len(history.seconds), len(history.values), len(history.means)}) == 1
    assert all(known < step for known in history.steps)
    if left:
        assert (history.steps[0], history.seconds[0]) == (0, 0)
        assert history.steps[-1] >= left - 1 - 2 * stride  # what was before, but for a part of one bucket
        assert abs(history.count - left) <= 4 * stride
    else:
        assert not len(history) and history.count == 0
    if stride == 1:
        assert list(history.steps) == list(range(left))
    values = [5.0 + at for at in range(more)]
    builder.extend(columns_of(values, left))
    assert list(builder.history.steps) == sorted(set(builder.history.steps))
    assert len(builder.history) <= MOST_POINTS + 4
    if more:
        assert builder.history.steps[-1] == left + more - 1
        assert builder.history.values[-1] == values[-1]
