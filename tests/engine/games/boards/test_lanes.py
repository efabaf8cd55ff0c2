"""Board games on the device that learns: frames stay there, and a step never waits for it but for one small copy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.evaluation.policy import play_episodes
from engine.games.boards.lanes import BoardLanes
from engine.games.tetris.rules import TetrisLanes
from engine.games.tetris.viewer import TetrisViewer
from tests.support.devices import META, NoMixing, NoWaiting

LANES = 6
CPU = torch.device("cpu")


def lanes_of(game: str) -> Any:
    config = make_config({"game": game, "parallel_envs": LANES})
    return make_lanes(config, LANES, threads=1, seed=3, device=CPU)


def lanes_of_tensors(game: str) -> Any:
    """Lanes that step on the CPU as they would on a GPU."""
    lanes = lanes_of(game)
    lanes.board.compiled = False
    return lanes


def move_to_meta(lanes: Any) -> None:
    """PyTorch makes no random generators for this device, so the tensors of existing games are moved."""
    board = lanes.board
    for owner in (lanes, board):
        for name, value in vars(owner).items():
            if isinstance(value, torch.Tensor | torch.nn.Module):
                setattr(owner, name, value.to(META))
    board.device = META
    board._draw = lambda numbers: torch.rand((LANES, numbers), device=META)


@pytest.mark.parametrize("game", ["snake", "tetris"])
def test_frames_stay_on_the_device_and_all_else_equals_the_boards_own_results(game: str) -> None:
    ours, board = lanes_of(game), lanes_of(game).board
    assert torch.equal(ours.reset(), board.reset())
    random = np.random.default_rng(0)
    for _ in range(60):
        actions = random.integers(0, board.actions, LANES)
        step, expected = ours.step(actions), board.step(torch.from_numpy(actions))
        assert torch.equal(step.frames, expected.frames) and torch.equal(step.final_frames, expected.final_frames)
        for name in ("terminated", "truncated", "returns", "lengths"):
            tensor = getattr(expected, name)
            np.testing.assert_array_equal(getattr(step, name), tensor.numpy())
            assert getattr(step, name).dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(step.results[:, 0], expected.score.numpy())
        scale, penalty = (1.0, 0.01) if game == "snake" else (0.1, 0.0)
        np.testing.assert_allclose(step.rewards, scale * expected.rewards.numpy() - penalty, atol=1e-6)
        if game == "tetris":
            np.testing.assert_array_equal(step.masks, expected.masks.numpy())
            np.testing.assert_array_equal(step.final_masks, expected.final_masks.numpy())


@pytest.mark.parametrize("game", ["snake", "tetris"])
def test_a_step_waits_only_for_the_packed_results(game: str) -> None:
    ours = lanes_of_tensors(game)
    for guard in (NoWaiting(), NoMixing()):
        if isinstance(guard, NoMixing):
            move_to_meta(ours)
        for level in (0.0, 0.5):
            ours.set_curriculum_level(level)
            with guard:
                ours._step()
    with pytest.raises(NotImplementedError, match="no data"):
        ours.step(np.zeros(LANES, np.int64))


@pytest.mark.parametrize("bag", [False, True])
def test_a_step_that_draws_the_next_piece_beforehand_waits_for_nothing(bag: bool) -> None:
    games = TetrisLanes(LANES, bag=bag, next_piece=True, compiled=False)
    viewer = partial(TetrisViewer, games)
    ours = BoardLanes(games, masked=True, reward_scale=1.0, new_viewer=viewer, tensors=True)
    with NoWaiting():
        ours._step()
    move_to_meta(ours)
    with NoMixing():
        ours._step()


def test_changing_the_shaping_moves_no_tensor() -> None:
    """Otherwise a recorded step would go on with the old weights."""
    ours = lanes_of("tetris")
    ours.set_curriculum_level(0.0)
    shaping = ours.board._shaping
    first = shaping.clone()
    ours.set_curriculum_level(1.0)
    assert ours.board._shaping is shaping and not torch.equal(shaping, first)


@pytest.mark.parametrize("goes_round", [True, False])
def test_a_board_of_snake_that_is_filled_is_cleared_and_a_crash_is_not(goes_round: bool) -> None:
    route = np.array([[1, 1, 1, 2], [0, 2, 3, 2], [0, 3, 0, 3]])  # through all cells and back
    lanes = make_lanes(make_config({"game": "snake", "board": "4x3"}), LANES, threads=1, seed=3, evaluation=True)

    def act(obs: Any, masks: Any) -> Any:
        heads = obs[:, 0, 1].reshape(len(obs), -1).argmax(1)
        return route.flatten()[heads] if goes_round else np.zeros(len(obs), np.int64)

    for episode in play_episodes(lanes, act, 2 * LANES):
        assert (episode.success, episode.results == (11.0,)) == (goes_round, goes_round)


def test_only_lanes_whose_episode_counts_are_asked_for_actions() -> None:
    lanes = make_lanes(make_config({"game": "tetris", "board": "6x8"}), LANES, threads=1, seed=3, evaluation=True)
    asked: list[int] = []

    def act(obs: Any, masks: Any) -> Any:
        assert len(obs) == len(masks)
        asked.append(len(obs))
        return masks.argmax(1)

    played = play_episodes(lanes, act, LANES)
    assert sorted(episode.lane for episode in played) == list(range(LANES))
    assert asked == [sum(episode.length > step for episode in played) for step in range(len(asked))]
    assert asked[0] == LANES > asked[-1]
