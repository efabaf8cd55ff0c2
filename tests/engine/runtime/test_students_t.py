"""Intervals of a mean, against the quantiles of published tables."""

from __future__ import annotations

import math
import statistics

import pytest

from engine.runtime.students_t import half_width


@pytest.mark.parametrize(("count", "quantile"), [(2, 12.706), (31, 2.0423), (32, 2.0395), (50, 2.0096), (1001, 1.9623)])
def test_the_interval_is_students_for_any_number_of_values(count: int, quantile: float) -> None:
    values = [float(each % 7) for each in range(count)]
    expected = quantile * statistics.stdev(values) / math.sqrt(count)
    assert half_width(values) == pytest.approx(expected, rel=2e-4)
