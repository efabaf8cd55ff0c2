"""What a replay holds at one instant: the ages and priorities of its entries, for the dashboard.

Of a large replay only `SURVEYED` places are looked at, the same each time. A survey changes nothing and takes no
numbers from the generators of the training, so a run with surveys computes the same bits as one without.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SURVEYED = 8192
"""Most places to look at; a replay with no more slots is surveyed as a whole."""
_SPREAD = np.random.default_rng(0).random(SURVEYED)  # even distances would meet only some ages of many short rings


@dataclass(frozen=True)
class Survey:
    """Entries that can be drawn."""

    ages: NDArray[np.int64]  # [n], environment steps stored since, over all lanes
    chances: NDArray[np.float64]  # [n], probability of being drawn, up to a common factor; above zero
    priorities: NDArray[np.float64] | None  # [n], |TD error| + epsilon; None if draws are uniform


def places(lanes: int, used: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lanes [n] and slots [n] to look at in rings of which the first `used` slots are in use."""
    count = lanes * used
    numbers = np.arange(count) if count <= SURVEYED else (_SPREAD * count).astype(np.int64)
    return numbers // max(used, 1), numbers % max(used, 1)


def survey(
    written: NDArray[np.int64],
    capacity: int,
    lanes: NDArray[np.int64],
    slots: NDArray[np.int64],
    chances: NDArray[np.float64],
    alpha: float,
) -> Survey:
    """The survey of some places, without those that can't be drawn.

    Args:
        written: entries written so far [all lanes].
        capacity: slots of a ring.
        lanes, slots: the places [n]; see `places`.
        chances: p^alpha there [n]; 0 where nothing can be drawn.
        alpha: priority exponent; 0 is uniform.
    """
    ages = (written[lanes] - 1 - slots) % capacity
    found = (ages < written[lanes]) & (chances > 0) & np.isfinite(chances)
    chances = chances[found]
    return Survey(ages[found] * written.size, chances, chances ** (1 / alpha) if alpha else None)
