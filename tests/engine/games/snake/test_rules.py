"""Batched Snake compared with a plain model of one game and with Jumanji."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.games.snake.rules import SnakeLanes
from tests.support.games.players import towards_fruit
from tests.support.games.snake_oracle import Cell, SnakeOracle

UP, RIGHT, DOWN, LEFT = range(4)


def cell(plane: np.ndarray) -> Cell:
    """The only cell that is set in a plane."""
    ((row, column),) = np.argwhere(plane)
    return int(row), int(column)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 600),
        ({"height": 3, "width": 3}, 600),
        ({"height": 2, "width": 2, "time_limit": 9}, 200),
        ({"height": 5, "width": 8, "time_limit": 30, "truncate": True}, 300),
        ({"height": 6, "width": 4, "death_penalty": 0.5}, 300),
        ({"height": 6, "width": 6, "stall_limit": 5}, 300),
        ({"height": 5, "width": 5, "stall_limit": 9, "time_limit": 20, "truncate": True}, 300),
        ({"height": 18, "width": 17}, 300),
    ],
    ids=["default", "3x3", "2x2", "truncate", "penalty", "stall", "stall and truncate", "large"],
)
def test_games_equal_those_of_a_plain_model(options: dict[str, Any], steps: int) -> None:
    lanes = SnakeLanes(12, seed=3, **options)
    _, height, width = lanes.frame_shape
    known = {"time_limit": 4000, "truncate": False, "stall_limit": 0, "death_penalty": 0.0, **options}
    models = [SnakeOracle(**{"height": height, "width": width, **known}) for _ in range(lanes.lanes)]
    frames, masks = lanes.reset().numpy(), lanes.masks.numpy()
    for lane, model in enumerate(models):
        model.begin(cell(frames[lane, 1]), cell(frames[lane, 3]))
        assert np.array_equal(model.planes(), frames[lane])
    rng, ended, filled = np.random.default_rng(0), 0, 0
    for _ in range(steps):
        actions = towards_fruit(rng, frames, masks, 0.02)
        step = lanes.step(torch.from_numpy(actions))
        frames, masks = step.frames.numpy(), step.masks.numpy()
        for lane, model in enumerate(models):
            final = step.final_frames[lane].numpy()
            reward, terminated, truncated = model.step(int(actions[lane]), cell(final[3]))
            assert np.array_equal(model.planes(), final)
            assert model.mask() == step.final_masks[lane].tolist()
            assert (terminated, truncated) == (bool(step.terminated[lane]), bool(step.truncated[lane]))
            assert step.rewards[lane] == reward
            assert step.returns[lane] == model.total
            assert [int(step.lengths[lane]), int(step.score[lane])] == [model.steps, len(model.body) - 1]
            if terminated or truncated:
                ended += 1
                filled += len(model.body) == height * width
                model.begin(cell(frames[lane, 1]), cell(frames[lane, 3]))
            assert np.array_equal(model.planes(), frames[lane])
            assert model.mask() == masks[lane].tolist()
    assert ended
    assert filled or height * width > 9


def test_fruit_and_heads_are_equally_likely_everywhere() -> None:
    lanes = SnakeLanes(4096, height=3, width=4, seed=5)
    frames = torch.cat([lanes.reset() for _ in range(10)]) > 0
    for plane, expected in ((1, 1 / 12), (3, 1 / 12)):
        shares = frames[:, plane].float().mean(0)
        assert (shares - expected).abs().max() < 5 * (expected / len(frames)) ** 0.5
    with_head = frames[frames[:, 1, 1, 1], 3].float().mean(0)
    assert with_head[1, 1] == 0
    assert (with_head[with_head > 0] - 1 / 11).abs().max() < 0.02


def test_next_fruit_is_equally_likely_on_every_free_cell() -> None:
    lanes = SnakeLanes(8192, height=3, width=3, seed=1)
    eaten: list[torch.Tensor] = []
    rng, frames = np.random.default_rng(0), lanes.reset()
    for _ in range(6):
        step = lanes.step(torch.from_numpy(towards_fruit(rng, frames.numpy(), lanes.masks.numpy(), 0.0)))
        eaten.append(step.final_frames[(step.rewards > 0) & (step.score == 1)])
        frames = step.frames
    planes = torch.cat(eaten) > 0
    free = ~planes[:, 0].flatten(1)
    rank = (free.cumsum(1) * planes[:, 3].flatten(1)).sum(1)  # 1 to 7 of the seven free cells
    shares = torch.bincount(rank, minlength=8)[1:] / len(rank)
    assert (shares - 1 / 7).abs().max() < 5 * (1 / 7 / len(rank)) ** 0.5


@pytest.mark.parametrize("wrong", [{"height": 1}, {"width": 31}, {"time_limit": 0}, {"lanes": 0}])
def test_options_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        SnakeLanes(**{"lanes": 2, **wrong})


@pytest.mark.long
@pytest.mark.skipif(
    find_spec("jumanji") is None, reason="jumanji is missing: .venv/bin/pip install -c constraints.txt -e '.[oracles]'"
)
def test_games_equal_those_of_jumanji() -> None:
    from tests.support.games.jumanji_snake import JumanjiSnake

    lanes = SnakeLanes(64, seed=11)
    frames, masks = lanes.reset().numpy(), lanes.masks.numpy()
    theirs = JumanjiSnake(frames)
    rng, ended, longest = np.random.default_rng(1), 0, 0
    for _ in range(10_000):
        actions = towards_fruit(rng, frames, masks, 0.02)
        step = lanes.step(torch.from_numpy(actions))
        final, legal = step.final_frames.numpy(), np.take_along_axis(masks, actions[:, None], 1)[:, 0]
        planes, mask, reward, done = theirs.step(actions, final)
        assert np.array_equal(planes[legal], final[legal])
        assert np.array_equal(mask[legal], step.final_masks.numpy()[legal])
        assert np.array_equal(reward, step.rewards.numpy())
        assert np.array_equal(done, step.terminated.numpy())
        frames, masks = step.frames.numpy(), step.masks.numpy()
        planes, mask = theirs.begin(done, frames)
        assert np.array_equal(planes, frames)
        assert np.array_equal(mask, masks)
        ended, longest = ended + int(done.sum()), max(longest, int(step.score.max()))
    assert ended > 1000
    assert longest > 20
