"""Batched Snake on a torch device, with the rules of Jumanji's Snake-v1; compiled on CPUs (kernel.py).

Each cell stores the time when the head entered it, so a move writes only one number per lane. The cell belongs to the
body for as many steps as the snake is long, not counting steps in which it eats. Cells are numbered row by row; number
`cells` stands for everything outside the board.

Some episodes may start late in a game: with a long snake that lies on a closed way through all cells, along which it
can always go on, so each of these boards can be filled. Agents that begin there learn the end of the game before they
play well enough to reach it. No closed way leads through an odd number of cells, so an odd number of rows or columns
leaves out the last one.

In tensor form, the time of a step of a few hundred lanes is proportional to the number of torch calls.
https://github.com/instadeepai/jumanji/blob/main/jumanji/environments/routing/snake/env.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.console.compiler.kernels import bind_last
from engine.games.boards.tensor_lanes import TensorLanes, TensorStep, as_step, check_range, new_arrays
from engine.games.snake.kernel import SnakeRules, SnakeState, step_snakes
from engine.games.snake.options import BODY, ORDER, PLANES

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


MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left as (row, column) offsets, in the order of Jumanji's actions."""
OUTSIDE = 1e6  # time of entry for number `cells`: so late that it always counts as body


class SnakeLanes(TensorLanes):
    """Many games of Snake, stepped together.

    Observations are Jumanji's five planes, uint8 [lanes, 5, height, width] with 255 for its 1.0: body, head, tail,
    fruit, and the order of the body: 255 k / length, rounded up, in the k-th cell from the tail. Actions: up, right,
    down, left. A fruit gives a reward of 1. An episode terminates when the snake leaves the board or bites itself
    (except for its last cell, which moves away), when it fills the board, and at the time limit.

    Only the last observation of a crashed snake differs from Jumanji's: if it left the board, its head is shown where
    it left, not at the opposite edge or nowhere; if it bit its tail, the tail is shown there.

    Args:
        lanes: number of games.
        height, width: size of the board, in cells.
        time_limit: maximum number of steps of an episode.
        truncate: whether the time limit truncates episodes. Jumanji terminates them, although no plane shows the time.
        stall_limit: number of steps without fruit after which an episode is truncated; 0 for never. Greedy snakes may
            go in circles.
        death_penalty: subtracted from the reward when the snake leaves the board or bites itself.
        late_starts: share of the episodes, except those that `reset` begins, that begin late in a game
            (`LateStarts`). Their scores count the fruits that a snake of this length has eaten.
        seed: seed of all random decisions; the games also depend on the number of lanes and the kind of device.
        device: torch device of all tensors.
        compiled: whether steps are compiled, which only a CPU allows; None for yes on a CPU. Both forms give the same
            bits.

    Raises `UserError` if an option is out of its range.
    """

    actions = len(MOVES)
    draws = 3  # for the next fruit, and for head and fruit of a new game
    state_names = ("head", "tail", "fruit", "length", "clock", "meal", "born", "next", "masks", "from_start")

    def __init__(
        self,
        lanes: int,
        *,
        height: int = 12,
        width: int = 12,
        time_limit: int = 4000,
        truncate: bool = False,
        stall_limit: int = 0,
        death_penalty: float = 0.0,
        late_starts: float = 0.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
        compiled: bool | None = None,
    ) -> None:
        super().__init__(lanes, device, seed, compiled)
        check_range("height", height, 2, 30)
        check_range("width", width, 2, 30)
        check_range("time_limit", time_limit, 1, 500_000)
        check_range("stall_limit", stall_limit, 0, 500_000)
        self.frame_shape = (PLANES, height, width)
        self.time_limit, self.truncate, self.stall_limit = time_limit, truncate, stall_limit
        self.death_penalty = death_penalty
        self._late_starts = LateStarts(height, width).to(self.device) if late_starts else None
        self._late_share = late_starts
        self.cells = cells = height * width
        self.state_ranges = {
            **dict.fromkeys(("head", "tail", "fruit", "next"), (0, cells - 1)),
            **dict.fromkeys(("clock", "meal"), (cells, cells + time_limit)),
            "length": (1, cells),
            "born": (0, OUTSIDE),
        }
        beside = neighbours(height, width)
        here = torch.arange(cells)[:, None]
        self._beside = beside.to(self.device)  # [cells, 4]
        self._moved_to = torch.where(beside < cells, beside, here).to(self.device)  # stays put at the board's edge
        self._inside = (beside < cells).to(self.device)
        self._numbering = self._constant(range(1, cells + 1), torch.int16)
        self._planes = self._constant([cells, 2 * cells, 3 * cells])  # offsets of the planes of head, tail and fruit
        self._first_planes = self._constant([cells, 2 * cells, 3 * cells, 0, 4 * cells])
        self._choices = self._constant([cells, cells - 1], torch.float32)
        self._never = self._constant([False]).expand(lanes, 1)
        # As tensors, because Python numbers would be converted to tensors at every use.
        self._one, self._white, self._ceil = (self._constant([number]) for number in (1.0, 255.0, 0.999))
        self._start_time, self._end_time = (self._constant([float(number)]) for number in (cells, cells + time_limit))
        self._cells16, self._white16 = (self._constant([number], torch.int16) for number in (cells, 255))
        # Cells are int64 [lanes, 1]; counts and times float32 [lanes, 1], whole numbers. The clock starts at `cells`,
        # so that cells which no head has entered can have time 0 without being part of a snake.
        self._head, self._tail, self._fruit = (self._constant([0]).repeat(lanes, 1) for _ in range(3))
        self._length, self._clock = (start.repeat(lanes, 1) for start in (self._one, self._start_time))
        self._meal = self._start_time.repeat(lanes, 1)  # time of the last fruit, if there is a stall limit
        self._born = self._constant([0.0] * cells + [OUTSIDE]).repeat(lanes, 1)  # time when the head entered
        self._next = self._constant([0] * cells).repeat(lanes, 1)  # the cell that the head entered next
        self._masks = self._inside[self._head[:, 0]]
        self._from_start = ~self._never.clone()
        self._bind()
        self.reset()

    @property
    def scores(self) -> Tensor:
        """Fruits of the current episodes so far, int64 [lanes]."""
        return (self._length - self._one)[:, 0].long()

    def reset(self) -> Tensor:
        nothing = torch.zeros((self.lanes, PLANES, self.cells), dtype=torch.uint8, device=self.device)
        now = (self._head, self._tail, self._fruit, self._length, self._clock)
        return self._begin(~self._never, self._draw(self.draws), now, self._masks, nothing)

    def load_state(self, state: dict[str, Tensor]) -> None:
        # Earlier versions stored it with late starts only.
        super().load_state({"from_start": ~self._never} | state)

    def _step_compiled(self, actions: Tensor, draw: Tensor) -> TensorStep:
        late_draw = torch.empty(0, 6) if self._late_starts is None else self._draw(6)
        arrays = new_arrays(self.lanes, self.actions, self.frame_shape)
        chosen = actions.contiguous().numpy()
        if not self._kernel(chosen, draw.numpy(), late_draw.numpy(), arrays):
            raise IndexError("an action of Snake is not between 0 and 3")
        return as_step(arrays, self.frame_shape)

    def _bind(self) -> None:
        if not self.compiled:
            return
        none = torch.empty(0, 0, dtype=torch.int64)
        rules = SnakeRules(
            beside=self._beside.numpy(),
            ways=(none if self._late_starts is None else self._late_starts.cells).numpy(),
            places=(none if self._late_starts is None else self._late_starts.places).numpy(),
            late_share=float(self._late_share),
            time_limit=self.time_limit,
            truncate=self.truncate,
            stall_limit=self.stall_limit,
            death_penalty=float(self.death_penalty),
        )
        state = SnakeState(*(getattr(self, f"_{name}").numpy() for name in SnakeState._fields))
        self._kernel = bind_last(step_snakes, state, rules)

    def _step_tensors(self, actions: Tensor, draw: Tensor) -> TensorStep:
        cells, chosen = self.cells, actions.unsqueeze(1)
        legal = self._masks.gather(1, chosen)
        head = self._moved_to.take(torch.add(chosen, self._head, alpha=self.actions))
        eaten = head == self._fruit
        length = self._length + eaten
        clock = self._clock + self._one
        self._born.scatter_(1, head, clock)
        self._next.scatter_(1, self._head, head)
        tail = torch.where(eaten, self._tail, self._next.gather(1, self._tail))

        # The position of a cell in the body, 1 at the tail, is its time of entry plus this; 0 or less is not body.
        since = length - clock
        order = (self._born[:, :cells] + since).clamp_(min=0).mul_(self._white / length).add_(self._ceil).short()
        body = order.clamp(max=1)
        final = torch.zeros((self.lanes, PLANES, cells), dtype=torch.uint8, device=self.device)
        final[:, BODY] = body * self._white16
        final[:, ORDER] = order
        beside = self._beside.index_select(0, head[:, 0])
        final_masks = self._born.gather(1, beside) + since <= self._one

        # The n-th free cell (n from 0) is the first with more than n free cells up to it. On a full board: cell 0.
        nth = (draw[:, :1] * (self._start_time - length)).short()
        onward = (self._numbering - body.cumsum(1, dtype=torch.int16)).sub_(nth).clamp_(0, 1)
        found = (self._cells16 - onward.sum(1, keepdim=True, dtype=torch.int16)) % self._cells16
        fruit = torch.where(eaten, found.long(), self._fruit)

        crashed, late = ~legal, clock >= self._end_time
        terminated, truncated = crashed | (length == self._start_time), self._never
        if self.truncate:
            truncated = late
        else:
            terminated = terminated | late
        if self.stall_limit:
            torch.where(eaten, clock, self._meal, out=self._meal)
            truncated = truncated | (clock - self._meal >= self.stall_limit)
        truncated = truncated & ~terminated
        ended = terminated | truncated
        score = length - self._one
        rewards, returns = eaten.float(), score
        if self.death_penalty:
            loss = crashed * self.death_penalty
            rewards, returns = rewards - loss, returns - loss

        from_start = self._from_start[:, 0].clone()
        frames = self._begin(ended, draw, (head, tail, fruit, length, clock), final_masks, final)
        if self._late_starts is not None:
            self._begin_late(self._late_starts, ended, frames)
        final.view(self.lanes, -1).scatter_(1, torch.cat((head, tail, fruit), 1).add_(self._planes), 255)
        return TensorStep(
            frames=frames,
            final_frames=final.view(frames.shape),
            rewards=rewards[:, 0],
            terminated=terminated[:, 0],
            truncated=truncated[:, 0],
            masks=self.masks,
            final_masks=final_masks,
            returns=returns[:, 0],
            lengths=(clock - self._start_time)[:, 0].long(),
            score=score[:, 0].long(),
            from_start=from_start,
        )

    def path(self, lane: int) -> list[int]:
        """The cells of a lane's snake, from tail to head."""
        born = self._born[lane, : self.cells]
        order = born.argsort()[-int(self._length[lane, 0]) :]
        path: list[int] = order.tolist()
        return path

    def fruit(self, lane: int) -> int:
        """The cell of a lane's fruit."""
        return int(self._fruit[lane, 0])

    def _begin(self, ended: Tensor, draw: Tensor, now: tuple[Tensor, ...], masks: Tensor, planes: Tensor) -> Tensor:
        """Begin an episode where one has `ended` [lanes, 1] and store `now` elsewhere; returns all observations.

        now: head, tail, fruit, length, clock. planes: uint8 [lanes, 5, cells], in which only the body and its order are
        drawn.
        """
        chosen = (draw[:, 1:] * self._choices).long()
        head, fruit = chosen[:, :1], chosen[:, 1:]
        fruit = fruit + (fruit >= head)  # skip the head's cell
        tail = torch.where(ended, head, now[1], out=self._tail)
        head = torch.where(ended, head, now[0], out=self._head)
        fruit = torch.where(ended, fruit, now[2], out=self._fruit)
        torch.where(ended, self._one, now[3], out=self._length)
        clock = torch.where(ended, self._start_time, now[4], out=self._clock)
        if self.stall_limit:
            torch.where(ended, self._start_time, self._meal, out=self._meal)
        torch.where(ended, self._inside.index_select(0, head[:, 0]), masks, out=self._masks)
        self._from_start |= ended
        continues = (~ended).view(torch.uint8)
        self._born[:, : self.cells].mul_(continues)
        self._born.scatter_(1, head, clock)
        frames = planes * continues.unsqueeze(2)
        marks = torch.cat((head, tail, fruit, head, head), 1).add_(self._first_planes)
        frames.view(self.lanes, -1).scatter_(1, marks, 255)
        return frames.view(self.lanes, *self.frame_shape)

    def _begin_late(self, starts: LateStarts, ended: Tensor, frames: Tensor) -> None:
        """Of the episodes that have just begun, where one has `ended` [lanes, 1], begin a share late in a game.

        frames: their observations, uint8 [lanes, 5, height, width], drawn anew.
        """
        draw = self._draw(6)
        late = ended & (draw[:, :1] < self._late_share)
        boards = starts(draw[:, 1:])
        length, cells = boards.length, self.cells
        body = boards.places < length
        born = torch.where(body, self._clock - length + 1 + boards.places, 0.0)
        beside = self._beside[boards.head[:, 0]]
        free = torch.nn.functional.pad(boards.places, (0, 1), value=1)  # of the body only the tail's cell, place 0
        ahead = torch.nn.functional.pad(~body, (0, 1), value=False) | (free == 0)
        for now, new in (
            (self._head, boards.head), (self._tail, boards.tail), (self._fruit, boards.fruit),
            (self._length, length.float()), (self._next, boards.onward), (self._masks, ahead.gather(1, beside)),
        ):  # fmt: skip
            torch.where(late, new, now, out=now)
        self._born[:, :cells] = torch.where(late, born, self._born[:, :cells])
        self._from_start &= ~late

        order = ((boards.places + 1) * (self._white / length)).add_(self._ceil).to(torch.uint8) * body
        at = torch.arange(cells, device=self.device)
        marks = [at == cell for cell in (boards.head, boards.tail, boards.fruit)]
        planes = torch.stack((body * 255, *(mark * 255 for mark in marks), order), 1).to(torch.uint8)
        frames.copy_(torch.where(late[:, :, None, None], planes.view(frames.shape), frames))


def neighbours(height: int, width: int) -> Tensor:
    """The cell that each move leads to, int64 [cells, 4]; `height * width` is outside the board."""
    row, column = torch.arange(height * width).div(width, rounding_mode="floor"), torch.arange(height * width) % width
    found = []
    for down, right in MOVES:
        there = (row + down, column + right)
        inside = (there[0] >= 0) & (there[0] < height) & (there[1] >= 0) & (there[1] < width)
        found.append(torch.where(inside, there[0] * width + there[1], height * width))
    return torch.stack(found, 1)
