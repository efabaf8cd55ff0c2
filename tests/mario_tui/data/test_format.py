"""How results are told."""

from __future__ import annotations

import pytest

from engine.protocol.messages import Evaluation
from mario_tui.data.format import judged


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ({"clears": 29, "mean_x_pos": 3100.0}, "29/31 cleared, return 120"),
        ({"mean_score": 98.2}, "31 games, mean score 98.2"),
        ({"clears": 1, "mean_score": 98.2}, "31 games, mean score 98.2, 1 board filled"),
    ],
)
def test_an_evaluation_tells_clears_lines_or_boards_that_were_filled(results: dict[str, float], told: str) -> None:
    least = {"clears": 0, "mean_x_pos": 0.0, "mean_score": 0.0}
    evaluation = Evaluation(
        env_steps=400, episodes=31, mean_return=120.0, best=True, seconds=1.0, **{**least, **results}
    )
    assert judged(evaluation) == told
