"""Round ticks: few, inside the range, with short labels that differ."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mario_tui.widgets.charts.axes import log_ticks, round_ticks, tick_labels, time_ticks, x_ticks

ranges = st.tuples(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(ranges, st.integers(1, 12))
@example((1.0005924708862564e-11, 1.0000100059247088e-06), 1)  # far shorter than a second
def test_ticks_lie_inside_the_range_and_are_few(bounds: tuple[float, float], most: int) -> None:
    low, high = bounds
    for ticks in (round_ticks(low, high, most), time_ticks(low, high, most)):
        assert len(ticks) <= most
        margin = 1e-6 * (high - low) + 1e-9 * max(abs(low), abs(high))
        assert all(low - margin <= tick <= high + margin for tick in ticks)
        assert ticks == sorted(ticks)


@given(ranges, st.integers(2, 12))
@example((999999000000.9999, 999999000001.0), 6)  # neighbouring floats
def test_labels_have_room_and_tell_neighbours_apart(bounds: tuple[float, float], most: int) -> None:
    ticks = round_ticks(*bounds, most)
    labels = tick_labels(ticks, 6)
    assert all(len(label) <= 6 for label in labels)
    written = [label for label in labels if label]
    assert len(set(written)) == len(written)
    largest = max(map(abs, ticks), default=0.0)
    have_room = largest >= 1 or all(len(f"{tick:g}") <= 6 for tick in ticks)  # 0.00105 has not
    if largest >= 1e-3 and have_room and len(ticks) > 1 and ticks[1] - ticks[0] > 0.01 * largest:
        assert len(written) == len(ticks)


@pytest.mark.parametrize(
    ("low", "high", "most", "labels"),
    [
        (0, 1_000_000, 6, ["0", "0.2M", "0.4M", "0.6M", "0.8M", "1.0M"]),
        (1_412_000, 1_498_000, 4, ["1.42M", "1.44M", "1.46M", "1.48M"]),
        (-3, 632, 4, ["0", "200", "400", "600"]),
        (0.0002, 0.0171, 4, ["0.005", "0.010", "0.015"]),
        (1e-7, 9e-7, 4, ["2.0e-7", "4.0e-7", "6.0e-7", "8.0e-7"]),
        (0, 12_345, 3, ["0", "5k", "10k"]),
        (0, 9_000, 3, ["0", "5,000"]),
    ],
)
def test_numbers_of_the_usual_sizes(low: float, high: float, most: int, labels: list[str]) -> None:
    found = tick_labels(round_ticks(low, high, most), 6)
    assert found == labels


def test_time_has_ticks_at_round_minutes_and_hours() -> None:
    assert x_ticks(0, 3600, "time", 5)[1] == ["0:00:00", "0:15:00", "0:30:00", "0:45:00", "1:00:00"]
    assert x_ticks(-7 * 3600, 0, "ago", 4)[1] == ["6:00:00", "4:00:00", "2:00:00", "end"]
    assert x_ticks(0, 10 * 86400, "time", 3)[1] == ["0:00:00", "5d 00:00", "10d 00:00"]


def test_a_logarithmic_axis_has_powers_of_ten_and_what_lies_between_if_there_is_room() -> None:
    assert log_ticks(0.5, 2000, 5) == [1, 10, 100, 1000]
    assert log_ticks(0.5, 50, 9) == [0.5, 1, 2, 5, 10, 20, 50]
    assert log_ticks(310, 330, 3) == pytest.approx([310, 320, 330])
    assert [math.log10(tick) for tick in log_ticks(1, 1e12, 5)] == pytest.approx([0, 3, 6, 9, 12])
    assert log_ticks(-1, 5, 3) == []
