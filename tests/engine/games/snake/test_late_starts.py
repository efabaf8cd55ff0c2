"""Starts of Snake late in a game: what they look like, how they go on, and how many there are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.games.snake.rules import MOVES, SnakeLanes, closed_way

BODY, HEAD, TAIL, FRUIT, ORDER = range(5)


def along(one: tuple[int, int], other: tuple[int, int]) -> int:
    """The move from a cell to its neighbour."""
    return MOVES.index((other[0] - one[0], other[1] - one[1]))


@pytest.mark.parametrize(("height", "width"), [(2, 2), (4, 4), (12, 12), (6, 10), (7, 5)])
def test_a_closed_way_visits_each_cell_once(height: int, width: int) -> None:
    random = np.random.default_rng(0)
    ways = [closed_way(height, width, random) for _ in range(20)]
    even = {row * width + column for row in range(height // 2 * 2) for column in range(width // 2 * 2)}
    for way in ways:
        assert set(way.tolist()) == even and len(way) == len(even)
        cells = [divmod(int(cell), width) for cell in [*way, way[0]]]
        for one, other in pairwise(cells):
            along(one, other)  # neighbours
    different = len({tuple(way) for way in ways})
    assert different >= {4: 1, 16: 4}.get(len(even), 10)  # two by two blocks have four spanning trees


@pytest.mark.parametrize(("height", "width"), [(6, 8), (5, 7)])
def test_a_long_snake_lies_in_one_piece_and_goes_on_as_any_other(height: int, width: int) -> None:
    env = SnakeLanes(64, height=height, width=width, late_starts=0.9, seed=3)
    begun = 0
    for _ in range(20):
        step = env.step(torch.zeros(64, dtype=torch.int64))  # into the wall
        late = (step.terminated | step.truncated) & ((step.frames[:, BODY] > 0).flatten(1).sum(1) > 1)
        begun += int(late.sum())
        for lane in late.nonzero()[:, 0].tolist():
            planes = step.frames[lane].numpy()
            body = sorted((tuple(cell) for cell in np.argwhere(planes[BODY])), key=lambda cell: planes[ORDER][cell])
            for one, other in pairwise(body):
                along(one, other)
            length = len(body)
            assert [planes[ORDER][cell] for cell in body] == [-(-255 * k // length) for k in range(1, length + 1)]
            assert planes[TAIL][body[0]] == planes[HEAD][body[-1]] == 255
            assert planes[[HEAD, TAIL, FRUIT]].astype(int).sum() == 3 * 255
            assert not (planes[FRUIT] & planes[BODY]).any()
            row, column = body[-1]
            there = [(row + down, column + right) for down, right in MOVES]
            inside = [0 <= r < height and 0 <= c < width for r, c in there]
            free = [ok and (cell not in body or cell == body[0]) for ok, cell in zip(inside, there, strict=True)]
            assert env.masks[lane].tolist() == free
    assert begun > 50
    assert_tails_follow(env, step.frames)


def assert_tails_follow(env: SnakeLanes, frames: torch.Tensor) -> None:
    """In a step without fruit, the tail is then where the second cell of the body was."""
    compared = 0
    for _ in range(5):
        order = frames[:, ORDER].numpy()
        step = env.step(env.masks.int().argmax(1))
        for lane in range(env.lanes):
            if step.terminated[lane] or step.truncated[lane] or step.rewards[lane] > 0 or (order[lane] > 0).sum() == 1:
                continue
            second = sorted((tuple(cell) for cell in np.argwhere(order[lane])), key=lambda cell: order[lane][cell])[1]
            assert step.final_frames[lane, TAIL][second] == 255
            compared += 1
        frames = step.frames
    assert compared > 50


def test_the_share_is_kept_and_marked_and_the_state_holds_the_mark() -> None:
    env = SnakeLanes(512, height=6, width=6, late_starts=0.5, seed=1)
    random = torch.Generator().manual_seed(0)
    begun = torch.ones(512, dtype=torch.bool)  # first episodes begin at the start
    late = episodes = 0
    for _ in range(60):
        before = begun.clone()
        step = env.step(torch.randint(0, 4, (512,), generator=random))
        ended = step.terminated | step.truncated
        assert torch.equal(step.from_start, before)
        longer = (step.frames[:, BODY] > 0).flatten(1).sum(1) > 1
        begun = torch.where(ended, ~longer, begun)
        late, episodes = late + int((ended & longer).sum()), episodes + int(ended.sum())
    assert episodes > 3000 and 0.47 < late / episodes < 0.53
    state, actions = env.state(), torch.zeros(512, dtype=torch.int64)
    there = SnakeLanes(512, height=6, width=6, late_starts=0.5, seed=9)
    there.load_state(state)
    one, other = env.step(actions), there.step(actions)
    assert torch.equal(one.frames, other.frames) and torch.equal(one.from_start, other.from_start)


@pytest.mark.parametrize("compiled", [True, False])
def test_games_go_on_with_another_share_and_keep_the_mark(compiled: bool) -> None:
    wall = torch.zeros(64, dtype=torch.int64)
    env = SnakeLanes(64, height=6, width=6, late_starts=0.9, seed=3, compiled=compiled)
    for _ in range(8):
        env.step(wall)
    without = SnakeLanes(64, height=6, width=6, compiled=compiled)
    without.load_state(env.state())
    marks = without.step(wall).from_start
    assert torch.equal(marks, env.step(wall).from_start) and 0 < marks.sum() < 64
    for _ in range(8):  # until all have run into the wall
        step = without.step(wall)
    assert step.from_start.all()
    earlier = without.state()
    del earlier["from_start"]  # as an earlier version stored games without late starts
    env.load_state(earlier)
    assert env.step(wall).from_start.all()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_reset_begins_at_the_start_whatever_was_played_before(compiled: bool) -> None:
    env = SnakeLanes(64, height=6, width=6, late_starts=0.9, seed=3, compiled=compiled)
    wall = torch.zeros(64, dtype=torch.int64)
    for _ in range(8):
        step = env.step(wall)
    assert not step.from_start.all()
    env.reset()
    assert not env.scores.any()
    assert env.step(wall).from_start.all()
