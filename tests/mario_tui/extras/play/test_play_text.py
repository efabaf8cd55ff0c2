"""What `mario-tui play` says about a game."""

from __future__ import annotations

import tracemalloc

from engine.config.game import game_of
from engine.protocol.messages import Episode
from mario_tui.extras.play.film import Results, facts


def game(score: int, *results: float, success: bool = False) -> Episode:
    return Episode(
        actor=0, lane=0, env_steps=10, episode=1, episode_return=float(score), length=10, success=success,
        epsilon=0.0, results=results,
    )  # fmt: skip


def test_results_of_many_games_take_no_room() -> None:
    results = Results(game_of("tetris").outcome)
    tracemalloc.start()
    for number in range(20_000):
        results = results.added(game(number % 10, number % 10))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 20_000
    assert results.line() == "20,000 games, mean score 4.50, best 9; last: 9"
    assert results.summary() == "20,000 games, mean score 4.50, best 9"


def test_results_of_mario_count_clears() -> None:
    results = Results(game_of("mario").outcome).added(game(300, 700)).added(game(3000, 3161, success=True))
    assert results.line() == "1 of 2 cleared; last: flag at x 3161"
    assert results.summary() == "1 of 2 cleared, mean return 1,650, best x 3161"
    assert Results().line() == Results().summary() == ""


def test_values_of_mario_are_in_players_words() -> None:
    from engine.extras.playing.mario import facts as of_mario

    info = {"coins": 3, "flag_get": 0, "life": 2, "score": 400, "stage": 4, "status": 1, "time": 321, "world": 8}
    info |= {"x_pos": 40, "y_pos": 79}
    assert facts(of_mario(info)) == "world 8-4  x 40  y 79  time 321  score 400  coins 3  lives 3  tall"
    assert facts({"lines": 3, "height": 7}) == "lines 3  height 7"
    widest = facts(
        of_mario({**info, "score": 999_950, "x_pos": 3161, "y_pos": 176, "life": 9, "coins": 99, "status": 2})
    )
    assert len(widest) <= 78  # a terminal of 80 columns shows all of it
