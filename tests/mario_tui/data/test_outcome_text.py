"""Evaluations in a few words, as the game declares its results."""

from __future__ import annotations

import pytest

from engine.config.game import game_of
from engine.protocol.messages import Evaluation
from engine.protocol.outcome import Outcome
from mario_tui.data.format import judged, reached


@pytest.mark.parametrize(
    ("outcome", "clears", "results", "told"),
    [
        (game_of("mario").outcome, 29, (3100.0, 300.0), "29/31 cleared, return 120"),
        (game_of("tetris").outcome, 0, (98.2,), "31 games, mean score 98.2"),
        (game_of("snake").outcome, 1, (98.2,), "31 games, mean score 98.2, 1 full board"),
        (game_of("snake").outcome, 0, (98.2,), "31 games, mean score 98.2"),
        (Outcome(), 0, (), "31 games, mean return 120"),
    ],
)
def test_an_evaluation_tells_what_it_is_judged_by(
    outcome: Outcome, clears: int, results: tuple[float, ...], told: str
) -> None:
    evaluation = Evaluation(
        env_steps=400, episodes=31, clears=clears, mean_return=120.0, best=True, seconds=1.0, results=results
    )
    assert judged(outcome, evaluation) == told


def test_an_episode_is_told_by_its_first_result() -> None:
    assert reached(game_of("mario").outcome, [1204.0, 300.0, 12.0]) == "x 1204"
    assert reached(game_of("snake").outcome, [12.0]) == "score 12"
    assert reached(Outcome(), []) == ""
