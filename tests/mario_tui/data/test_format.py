"""Numbers as the terminal shows them."""

from __future__ import annotations

import pytest

from mario_tui.data.format import percent


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0, "0%"),
        (1e-6, "0.1%"),
        (0.004, "0.4%"),
        (0.5, "50%"),
        (249 / 250, "99.6%"),
        (0.99999, "99.9%"),
        (1 - 1e-15, "100%"),
        (1.0, "100%"),
    ],
)
def test_only_all_of_them_are_100_percent(share: float, shown: str) -> None:
    assert percent(share) == shown
