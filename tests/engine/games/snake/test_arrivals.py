"""When a snake could reach each cell: all forms of the search against a plain one, and against play."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.games.boards.lanes import in_frame
from engine.games.snake.network import CUDA_SEARCH, Arrivals, arrivals
from engine.games.snake.rules import MOVES, SnakeLanes
from tests.support.cuda_on_cpu import run_on_cpu
from tests.support.games.players import towards_fruit


def boards(height: int, width: int, steps: int, lanes: int = 64) -> torch.Tensor:
    """Observations from games that are played towards the fruit."""
    env, random = SnakeLanes(lanes, height=height, width=width, seed=1), np.random.default_rng(0)
    frames = env.reset()
    for _ in range(steps):
        frames = env.step(torch.from_numpy(towards_fruit(random, frames.numpy(), env.masks.numpy(), 0.02))).frames
    return frames


def plain_arrivals(board: np.ndarray, move: int) -> np.ndarray:
    """Earliest arrivals [height, width] after a move: cell by cell, moment by moment."""
    _, height, width = board.shape
    ordered = sorted((cell for cell in np.ndindex(height, width) if board[4][cell]), key=lambda cell: board[4][cell])
    leaves = {cell: number for number, cell in enumerate(ordered, 1)}  # from the tail
    (head,) = map(tuple, np.argwhere(board[1]))
    down, right = MOVES[move]
    first = (head[0] + down, head[1] + right)
    times = np.zeros((height, width), int)
    inside = 0 <= first[0] < height and 0 <= first[1] < width
    if not inside or leaves.get(first, 0) > 1:
        return times
    eats, now, time = bool(board[3][first]), {first}, 1
    while now:
        for cell in now:
            times[cell] = time
        time += 1
        around = {(row + down, column + right) for row, column in now for down, right in MOVES}
        around = {(row, column) for row, column in around if 0 <= row < height and 0 <= column < width}
        now = {cell for cell in around if not times[cell] and (cell not in leaves or leaves[cell] + eats <= time)}
    return times


@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 9)])
@pytest.mark.process
def test_all_forms_find_what_a_plain_search_finds(height: int, width: int) -> None:
    search = Arrivals(height, width)
    for steps in (3, 60, 200):
        frames = boards(height, width, steps)
        found = search(frames)
        assert torch.equal(found, arrivals(frames.flatten(2), search.beside))
        in_cuda = torch.full_like(found, -1)
        run_on_cpu(CUDA_SEARCH, (len(frames), 4), 1, (frames, search.beside, in_cuda, height * width))
        assert torch.equal(in_cuda, found)
        for lane in range(0, len(frames), 8):
            expected = [plain_arrivals(frames[lane].numpy(), move) for move in range(4)]
            assert np.array_equal(found[lane].reshape(4, height, width).numpy(), expected)


def test_a_snake_in_its_own_ring_can_leave_only_where_the_body_moves_away() -> None:
    """Head in the middle of a 3x3 board, body around it, tail to the left: up, right and down are body for longer."""
    board = torch.zeros(1, 5, 3, 3, dtype=torch.uint8)
    body = [(1, 0), (0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (1, 1)]  # from the tail
    for number, cell in enumerate(body, 1):
        board[0, 0][cell], board[0, 4][cell] = 255, -(-255 * number // len(body))
    board[0, 1][body[-1]], board[0, 2][body[0]], board[0, 3, 2, 0] = 255, 255, 255
    up, right, down, left = Arrivals(3, 3)(board)[0].reshape(4, 3, 3).tolist()
    assert up == right == down == [[0] * 3] * 3
    assert left == [[2, 3, 4], [1, 8, 5], [2, 7, 6]]


def test_cells_outside_a_small_board_in_a_large_frame_are_never_reached() -> None:
    small = boards(5, 5, 40)
    large = in_frame(small, 8, 7)
    found = Arrivals(8, 7)(large).reshape(-1, 4, 8, 7)
    assert torch.equal(found[:, :, :5, :5], Arrivals(5, 5)(small).reshape(-1, 4, 5, 5))
    assert not found[:, :, 5:].any() and not found[:, :, :, 5:].any()
    assert torch.equal(found, arrivals(large.flatten(2), Arrivals(8, 7).beside).reshape(-1, 4, 8, 7))
