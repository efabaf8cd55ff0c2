"""Intervals of a mean, against the quantiles of published tables."""

from __future__ import annotations

import math
import statistics

import pytest

from engine.runtime.students_t import half_width, half_width_of_sum, quantile


@pytest.mark.parametrize(("count", "quantile"), [(2, 12.706), (31, 2.0423), (32, 2.0395), (50, 2.0096), (1001, 1.9623)])
def test_the_interval_is_students_for_any_number_of_values(count: int, quantile: float) -> None:
    values = [float(each % 7) for each in range(count)]
    expected = quantile * statistics.stdev(values) / math.sqrt(count)
    assert half_width(values) == pytest.approx(expected, rel=2e-4)


def test_quantiles_between_those_of_the_table_are_interpolated() -> None:
    found = [quantile(freedom) for freedom in (2.0, 2.5, 3.3, 7.7, 29.9, 30.0, 30.5)]
    assert found == pytest.approx([4.3027, 3.5747, 3.0249, 2.3217, 2.0425, 2.0423, 2.0409], rel=0.02)
    assert found == sorted(found, reverse=True)


def test_a_difference_has_welchs_interval() -> None:
    # Variances of the means 1 and 4, of 4 and 6 values: 25 / (1/3 + 16/5) = 7.08 degrees of freedom.
    assert half_width_of_sum([(1.0, 3), (4.0, 5)]) == pytest.approx(2.36 * 5**0.5, rel=0.002)
    assert half_width_of_sum([(0.0, 3), (0.0, 5)]) == 0
