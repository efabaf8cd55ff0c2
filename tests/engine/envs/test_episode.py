"""What a game of any package may say of its episodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.envs.episode import EpisodeRecord, ended_episodes
from engine.envs.lanes import VectorStep
from engine.protocol.outcome import Outcome, Result
from engine.runners.coordination.stats import LaneStats

YES, NO = np.ones(2, bool), np.zeros(2, bool)
STEP = VectorStep(
    frames=np.zeros((2, 1, 3, 3), np.uint8),
    final_frames=np.zeros((2, 1, 3, 3), np.uint8),
    rewards=np.zeros(2, np.float32),
    terminated=np.array([False, True]),
    truncated=NO,
    returns=np.array([1.0, 2.0]),
    lengths=np.array([3, 4]),
    results=np.array([[5.0], [6.0]]),
    success=NO,
    from_start=YES,
    tasks=np.full(2, -1),
    game_frames=0,
)


def test_an_episode_that_ended_has_the_numbers_of_its_lane() -> None:
    (episode,) = ended_episodes(STEP)
    assert episode == EpisodeRecord(1, 2.0, 4, success=False, task=-1, cleared=0, results=(6.0,))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"results": np.full((2, 1), np.nan)}, "a result of an episode must be between -1e15 and 1e15, got nan"),
        ({"results": np.full((2, 1), -1e300)}, "a result of an episode must be between -1e15 and 1e15, got -1e"),
        ({"returns": np.full(2, np.inf)}, "a return of an episode must be between -1e15 and 1e15, got inf"),
        ({"results": np.zeros((2, 9))}, "an episode must have at most 8 results, got 9"),
        ({"results": np.zeros(2)}, "results of a step must be an array"),
        ({"results": [[0.0], [0.0]]}, "results of a step must be an array"),
        ({"terminated": np.array([0, 1], np.uint8)}, "terminated of a step must be an array of bool"),
        ({"truncated": [False, True]}, "truncated of a step must be an array of bool"),
        ({"from_start": [True, True]}, "from_start of a step must be an array of bool"),
        ({"failed": np.array([0, 1])}, "failed of a step must be an array of bool"),
        ({"game_frames": -1}, "game_frames of a step must be at least 0, got -1"),
    ],
)
def test_a_step_from_which_no_checkpoint_could_be_loaded_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ended_episodes(replace(STEP, **changed))


@pytest.mark.parametrize("count", [0, 2])
def test_an_episode_has_the_results_that_its_game_declares(count: int) -> None:
    stats = LaneStats(Outcome((Result("score", "score"),)), members=1, lanes=2)
    episode = EpisodeRecord(0, 1.0, 1, success=False, task=-1, cleared=0, results=(0.0,) * count)
    with pytest.raises(ValueError, match=f"must have 1 results, as its game declares, got {count}"):
        stats.record_episode(0, episode, 10)
