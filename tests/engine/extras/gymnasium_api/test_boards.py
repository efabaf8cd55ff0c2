"""Snake and Tetris for Gymnasium: its own checks, ends of episodes in the same step, seeds, misuse."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode

from engine.errors import UserError
from engine.extras.gymnasium_api.boards import SnakeEnv, SnakeVectorEnv, TetrisEnv, TetrisVectorEnv

GAMES = ("mario_tui/Snake-v1", "mario_tui/Tetris-v0")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("game", GAMES)
def test_gymnasiums_checks_give_no_warnings(game: str) -> None:
    env = gymnasium.make(game, render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("game", GAMES)
def test_one_game_of_the_vector_environment_equals_the_single_one(game: str) -> None:
    one = gymnasium.make(game)
    many = gymnasium.make_vec(game, num_envs=1, vectorization_mode="vector_entry_point")
    assert (one.observation_space, one.action_space) == (many.single_observation_space, many.single_action_space)
    (first, info), (firsts, infos) = one.reset(seed=5), many.reset(seed=5)
    assert np.array_equal(first, firsts[0])
    assert np.array_equal(info["action_mask"], infos["action_mask"][0])
    for action in np.random.default_rng(0).integers(0, 4, 200):
        frame, reward, terminated, truncated, info = one.step(action)
        frames, rewards, terminations, truncations, infos = many.step(np.array([action]))
        assert (reward, terminated, truncated) == (rewards[0], terminations[0], truncations[0])
        if terminated:
            assert np.array_equal(frame, infos["final_obs"][0])
            assert np.array_equal(info["action_mask"], infos["final_info"]["action_mask"][0])
            assert info["score"] == infos["final_info"]["score"][0]
            assert infos["score"][0] == 0
            break
        assert np.array_equal(frame, frames[0])
        assert np.array_equal(info["action_mask"], infos["action_mask"][0])
    else:
        raise AssertionError("random actions end a game sooner")
    with pytest.raises(ResetNeeded):
        one.step(0)


def test_episodes_end_and_begin_in_the_same_step() -> None:
    env = SnakeVectorEnv(3, time_limit=4, truncate=True, height=10, width=10)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    _, infos = env.reset(seed=0)
    for _ in range(3):
        frames, *_, infos = env.step(infos["action_mask"].argmax(1))
        assert "final_obs" not in infos
    frames, _, terminations, truncations, infos = env.step(infos["action_mask"].argmax(1))
    assert truncations.all() and not terminations.any()
    assert infos["_final_obs"].all()
    assert (frames[:, 0] > 0).sum() == 3  # three new snakes of one cell
    assert infos["final_info"]["action_mask"].shape == (3, 4)
    assert infos["action_mask"].shape == (3, 4)


@pytest.mark.parametrize("kind", [SnakeVectorEnv, TetrisVectorEnv])
def test_seeds_make_games_reproducible(kind: Any) -> None:
    def play(env: Any, seed: Any) -> list[Any]:
        return [env.reset(seed=seed), *(env.step(np.full(4, action)) for action in (0, 1, 2, 3) * 5)]

    one, other = kind(4), kind(4)
    first, second = play(one, 7), play(one, None)
    assert not data_equivalence(first, second, exact=True)
    other.reset(seed=3)
    assert data_equivalence(play(other, 7), first, exact=True)
    assert data_equivalence(play(other, None), second, exact=True)
    assert data_equivalence(play(other, np.int64(7)), first, exact=True)


@pytest.mark.parametrize("kind", [SnakeVectorEnv, TetrisVectorEnv])
def test_a_copy_plays_on_as_the_original_would_and_leaves_it_alone(kind: Any) -> None:
    env = kind(4)
    env.reset(seed=1)
    env.step(np.zeros(4, np.int64))
    twin = copy.deepcopy(env)
    before = env._lanes.state()
    actions = np.random.default_rng(0).integers(0, 4, (40, 4))
    played = [twin.step(chosen) for chosen in actions]
    assert all(before[name].equal(now) for name, now in env._lanes.state().items())
    assert data_equivalence(played, [env.step(chosen) for chosen in actions], exact=True)
    assert data_equivalence(twin.reset(), env.reset(), exact=True)
    assert np.array_equal(twin._lanes.masks, env._lanes.masks)


def test_misuse_is_refused() -> None:
    env = TetrisVectorEnv(2, render_mode="rgb_array", height=10, width=10, bag=True)
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(2, np.int64))
    env.reset(seed=0)
    for actions in ([0], [0, 40], [-1, 0]):
        with pytest.raises(ValueError, match="2 integers between 0 and 39"):
            env.step(np.array(actions))
    with pytest.raises(ValueError, match="single integer for all games"):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.array([True, False])})
    pictures = env.render()
    assert pictures is not None and [picture.shape for picture in pictures] == [(240, 256, 3)] * 2
    with pytest.raises(UserError, match="human"):
        SnakeEnv(render_mode="human")
    with pytest.raises(UserError, match="width"):
        TetrisEnv(width=40)
    with pytest.raises(UserError, match="width must be an integer between 4 and 12, got '10'"):
        TetrisEnv(width="10")


def test_the_score_of_a_late_start_counts_the_fruits_of_its_snake() -> None:
    env = SnakeVectorEnv(64, height=6, width=6, late_starts=0.9)
    env.reset(seed=0)
    for _ in range(8):
        frames, *_, infos = env.step(np.zeros(64, np.int64))
        assert np.array_equal(infos["score"], (frames[:, 0] > 0).sum((1, 2)) - 1)
    assert infos["score"].max() > 10
    frames, infos = env.reset()
    assert not infos["score"].any()
