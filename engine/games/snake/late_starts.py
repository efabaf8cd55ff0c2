"""Starts of Snake late in a game: a long snake that lies on a closed way through all cells.

Such a snake can always go on along its way, so each of these boards can be filled. Agents that begin some of their
episodes here learn the end of the game before they play well enough to reach it. No closed way leads through an odd
number of cells, so an odd number of rows or columns leaves out the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_WAYS = 256
_DIRECTIONS = ((0, 1), (1, 0), (0, -1), (-1, 0))


@dataclass(frozen=True)
class LateBoards:
    """Boards with a snake and a fruit; all tensors are on one device."""

    length: Tensor  # int64 [lanes, 1]
    places: Tensor  # int64 [lanes, cells]: 0 for the tail's cell, and so on along the way: body below `length`
    onward: Tensor  # int64 [lanes, cells], the next cell along the way
    head: Tensor  # int64 [lanes, 1]
    tail: Tensor  # int64 [lanes, 1]
    fruit: Tensor  # int64 [lanes, 1]


class LateStarts(torch.nn.Module):
    """Chooses boards of one size."""

    cells: Tensor
    places: Tensor
    scales: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        ways = torch.from_numpy(np.stack([closed_way(height, width, random) for _ in range(_WAYS)]))
        places = torch.full((_WAYS, height * width), -1)
        places.scatter_(1, ways, torch.arange(ways.shape[1]).expand_as(ways))
        self.register_buffer("cells", ways)  # int64 [ways, cells on the way]
        self.register_buffer("scales", torch.tensor([_WAYS, ways.shape[1], 2, ways.shape[1] - 2, 1]))
        self.register_buffer("places", places)  # int64 [ways, cells], the inverse; -1 for a cell that is left out

    def forward(self, draw: Tensor) -> LateBoards:
        """Boards from random numbers float32 [lanes, 5] in [0, 1). At least one cell of the way is free."""
        count = self.cells.shape[1]
        way, first, reverse, longer, free = (draw * self.scales).unbind(1)
        ways, first, sign = way.long(), first.long()[:, None], (1 - 2 * reverse.long())[:, None]
        length = longer.long()[:, None] + 2
        fruit = length + (free[:, None] * (count - length)).long()
        cells, places = self.cells[ways], self.places[ways]
        onward = cells.gather(1, (places + sign) % count)
        places = torch.where(places < 0, count, (sign * (places - first)) % count)
        head, tail, food = (cells.gather(1, (first + sign * at) % count) for at in (length - 1, 0 * length, fruit))
        return LateBoards(length, places, onward, head, tail, food)


def closed_way(height: int, width: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The cells of a random closed way through an even number of rows and columns, in order, int64 [cells].

    It runs around a random spanning tree of the blocks of 2x2 cells, with the tree always to its right.
    """
    rows, columns = height // 2, width // 2
    joined = _spanning_tree(rows, columns, random)
    # A cell's way on: along the side of its block, unless the tree crosses there. Clockwise from the upper left.
    corners = ((0, 0), (0, 1), (1, 1), (1, 0))
    way, block, corner = [], (0, 0), 0
    for _ in range(4 * rows * columns):
        way.append((2 * block[0] + corners[corner][0]) * width + 2 * block[1] + corners[corner][1])
        outward = _DIRECTIONS[(corner + 3) % 4]  # up from the upper left corner, right from the upper right one
        beyond = (block[0] + outward[0], block[1] + outward[1])
        if (block, beyond) in joined:
            block, corner = beyond, (corner + 3) % 4
        else:
            corner = (corner + 1) % 4
    return np.array(way)


def _spanning_tree(
    rows: int, columns: int, random: np.random.Generator
) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of neighbouring blocks that a random spanning tree joins, in both orders. Branches are long or short."""
    straight = random.random()  # the chance to go on from the newest block
    reached, joined = [(0, 0)], set()
    inside = {(0, 0)}
    while reached:
        at = len(reached) - 1 if random.random() < straight else int(random.integers(len(reached)))
        block = reached[at]
        around = [(block[0] + down, block[1] + right) for down, right in _DIRECTIONS]
        free = [(r, c) for r, c in around if 0 <= r < rows and 0 <= c < columns and (r, c) not in inside]
        if not free:
            reached.pop(at)
            continue
        beyond = free[int(random.integers(len(free)))]
        joined |= {(block, beyond), (beyond, block)}
        inside.add(beyond)
        reached.append(beyond)
    return joined
