"""The network for Snake values a board and its turned or mirrored picture alike, and learns to eat."""

from __future__ import annotations

import numpy as np
import torch

from engine.agents.layout import autocast
from engine.games.snake.network import PathsQNetwork
from engine.games.snake.rules import SnakeLanes
from tests.support.games.players import towards_fruit

UP, RIGHT, DOWN, LEFT = range(4)


def longer_snakes(side: int) -> torch.Tensor:
    """Observations of snakes whose direction can be seen, with a fruit that is not straight ahead or behind."""
    env, random = SnakeLanes(256, height=side, width=side, seed=1), np.random.default_rng(0)
    frames = env.reset()
    for _ in range(80):
        frames = env.step(torch.from_numpy(towards_fruit(random, frames.numpy(), env.masks.numpy(), 0.02))).frames
    row, column = (frames[:, [1, 3]].flatten(2).argmax(2) // side, frames[:, [1, 3]].flatten(2).argmax(2) % side)
    aside = (row[:, 0] != row[:, 1]) & (column[:, 0] != column[:, 1])
    return frames[aside & ((frames[:, 4] > 0).flatten(1).sum(1) > 1)]


@torch.no_grad()
def test_turned_and_mirrored_boards_have_the_turned_and_mirrored_values() -> None:
    network = PathsQNetwork((5, 8, 8))
    frames = longer_snakes(8)
    q = network(frames[:, None])
    assert len(q) > 100 and q.std(1).min() > 0.01
    for turns in range(1, 4):  # counter-clockwise: right becomes up
        turned = network(torch.rot90(frames, turns, (2, 3))[:, None])
        assert torch.allclose(turned, q.roll(-turns, 1), atol=1e-5)
    mirrored = network(frames.flip(3)[:, None])
    assert torch.allclose(mirrored, q[:, [UP, LEFT, DOWN, RIGHT]], atol=1e-5)


@torch.no_grad()
def test_a_step_penalty_outlives_bfloat16() -> None:
    """Values as large as those of a good snake are exact to less than 0.01, the default penalty."""
    torch.manual_seed(0)
    network = PathsQNetwork((5, 12, 12))
    value = network.value[-1]
    assert isinstance(value, torch.nn.Linear)
    value.bias.fill_(12.0)
    frames = longer_snakes(12)[:, None]
    exact = network(frames)
    with autocast("cpu", "bfloat16"):
        found = network(frames)
    assert len(found.mean(1).unique()) > 0.9 * len(frames) > 50
    assert (found - exact).square().mean().sqrt() < 0.005


@torch.no_grad()
def test_boards_need_not_be_square() -> None:
    wide, high = PathsQNetwork((5, 4, 7)), PathsQNetwork((5, 7, 4))
    high.load_state_dict(wide.state_dict())
    frames = torch.zeros(1, 5, 4, 7, dtype=torch.uint8)
    for plane, cell in ((0, (1, 3)), (0, (1, 2)), (1, (1, 3)), (2, (1, 2)), (3, (3, 5))):
        frames[0, plane][cell] = 255
    frames[0, 4, 1, 3], frames[0, 4, 1, 2] = 255, 128
    assert wide(frames[:, None]).isfinite().all()
    assert high(frames.transpose(2, 3)[:, None]).isfinite().all()
