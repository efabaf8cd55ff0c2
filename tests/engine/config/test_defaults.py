"""Defaults of games and runners, and what a resumed run keeps."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config.reading import as_given, carried_over, defaults, make_config


@pytest.mark.parametrize("game", ["mario", "snake", "tetris"])
def test_a_run_resumed_by_another_runner_has_that_runners_defaults(game: str) -> None:
    for before, after in (("single", "ddp"), ("ddp", "single"), ("apex", "ddp")):
        kept = carried_over(make_config({"game": game, "runner": before}).options(), game, after)
        resumed = make_config({**kept, "runner": after})
        fresh = make_config({"game": game, "runner": after})
        assert (resumed.batch_size, resumed.parallel_envs) == (fresh.batch_size, fresh.parallel_envs)


def test_a_batch_size_that_was_given_is_kept_by_another_runner() -> None:
    assert defaults("mario", "ddp")["batch_size"] != 96
    kept = carried_over(make_config({"batch_size": 96}).options(), "mario", "ddp")
    assert make_config({**kept, "runner": "ddp"}).batch_size == 96


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": "auto"},
        {"final_advantage_learning": "none"},
        {"game": "tetris", "episodes": 5},
        {"runner": "apex"},
    ],
)
def test_what_was_given_can_be_given_again(options: dict[str, Any]) -> None:
    """As a resume does with what a run has stored."""
    config = make_config(options)
    given = as_given(config.options())
    assert given.items() >= options.items()
    assert make_config(given) == config
