"""N games of Snake in tensors on one device, stepped together, by the rules of Jumanji's Snake-v1.

A cell remembers when the head came to it, so that a move writes one number a lane: the cell belongs to the body for as
many steps without fruit as the snake is long. Cells are numbered row by row; number `cells` is everything outside.

The order of operations owes something to the clock: on a processor, with a few hundred lanes, what costs is calls, and
comparisons of large tensors. https://github.com/instadeepai/jumanji/blob/main/jumanji/environments/routing/snake/env.py
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.envs.batched import TensorStep, check_range, draw_cells, make_generator

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left as (row, column), in the order of Jumanji's actions."""
PLANES = 5
OUTSIDE = 1e6  # when the head came to what is outside: it never fades
GROUND, BODY, HEAD, TAIL, FRUIT = (24, 26, 33), (76, 175, 110), (255, 202, 58), (46, 110, 70), (232, 65, 78)


class SnakeLanes:
    """See the module's docstring.

    Observations are Jumanji's five planes, uint8 [lanes, 5, height, width] with 255 for its 1.0: body, head, tail,
    fruit, and the body in order: 255 k / length, rounded up, in the k-th cell from the tail. Actions: up, right, down,
    left. A fruit gives 1. An episode is terminated when the snake leaves the board or bites itself (not its last cell,
    which moves away), when it fills the board, and by the time limit.

    One difference to Jumanji: the last observation of a snake that left the board shows its head in the cell it left
    from; Jumanji's shows it at the opposite edge or nowhere.

    Args:
        lanes: number of games.
        height, width: of the board, in cells.
        time_limit: steps of an episode at most.
        truncate: whether the time limit truncates episodes. Jumanji terminates them, though no plane tells the time.
        death_penalty: what leaving the board or biting takes from the reward.
        seed: of every random decision; the games depend on the number of lanes and the kind of device, too.
    """

    actions = len(MOVES)

    def __init__(
        self,
        lanes: int,
        *,
        height: int = 12,
        width: int = 12,
        time_limit: int = 4000,
        truncate: bool = False,
        death_penalty: float = 0.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        check_range("lanes", lanes, 1, 2**20)
        check_range("height", height, 2, 30)
        check_range("width", width, 2, 30)
        check_range("time_limit", time_limit, 1, 500_000)
        self.lanes, self.device = lanes, torch.device(device)
        self.frame_shape = (PLANES, height, width)
        self.time_limit, self.truncate, self.death_penalty = time_limit, truncate, death_penalty
        self.cells = cells = height * width
        self._random = make_generator(self.device, seed)
        beside = neighbours(height, width)
        here = torch.arange(cells)[:, None]
        self._beside = beside.to(self.device)  # [cells, 4]
        self._onto = torch.where(beside < cells, beside, here).to(self.device)  # a head that leaves stays where it was
        self._inside = (beside < cells).to(self.device)
        self._numbering = self._constant(range(1, cells + 1), torch.int16)
        self._planes = self._constant([cells, 2 * cells, 3 * cells])  # where those of head, tail and fruit begin
        self._first_planes = self._constant([cells, 2 * cells, 3 * cells, 0, 4 * cells])
        self._choices = self._constant([cells, cells - 1], torch.float32)
        self._scales = self._constant([0.0] + [255.0 / length for length in range(1, cells + 1)])
        self._one = self._constant([1]).expand(lanes, 1)
        self._never = self._constant([False]).expand(lanes, 1)
        # The clock begins with `cells`, so that where no head has been can say 0 and is no part of any snake.
        self._dawn = self._constant([cells]).expand(lanes, 1)
        self._head, self._fruit = (self._constant([0]).repeat(lanes, 1) for _ in range(2))  # cells, int64 [lanes, 1]
        self._length, self._clock = self._one.clone(), self._dawn.clone()  # int64 [lanes, 1]
        self._born = self._constant([0.0] * cells + [OUTSIDE]).repeat(lanes, 1)  # clock when the head came
        self._trail = self._constant([0] * cells).repeat(lanes, 1)  # where the head was, by clock
        self._masks = self._inside[self._head[:, 0]]
        self.reset()

    def reset(self) -> Tensor:
        """Begin an episode in every lane; the first observations."""
        nothing = torch.zeros((self.lanes, PLANES, self.cells), dtype=torch.uint8, device=self.device)
        now = (self._head, self._head, self._fruit, self._length, self._clock)
        return self._begin(~self._never, self._draw(), now, self._masks, nothing)

    @property
    def masks(self) -> Tensor:
        """Legal actions in the latest observations, bool [lanes, actions]."""
        return self._masks.clone()

    def step(self, actions: Tensor) -> TensorStep:
        """One step with actions int64 [lanes], 0 to 3."""
        cells, draw, chosen = self.cells, self._draw(), actions.unsqueeze(1)
        legal = self._masks.gather(1, chosen)
        head = self._onto.take(torch.add(chosen, self._head, alpha=self.actions))
        eaten = head == self._fruit
        length = self._length + eaten
        clock = self._clock + 1
        self._born.scatter_(1, head, clock.float())
        self._trail.scatter_(1, clock % cells, head)
        since = length - clock
        tail = self._trail.gather(1, (1 - since) % cells)

        # A cell's place in the body, 1 at the tail, is when the head came plus this; 0 or less: not in the body.
        since = since.float()
        order = (
            (self._born[:, :cells] + since).clamp_(min=0.0).mul_(self._scales.take(length)).add_(0.999).to(torch.int16)
        )
        body = order.clamp(max=1)
        final = torch.zeros((self.lanes, PLANES, cells), dtype=torch.uint8, device=self.device)
        final[:, 0] = body * 255
        final[:, 4] = order
        final_masks = self._born.gather(1, self._beside.index_select(0, head[:, 0])) + since <= 1.0

        # The n-th free cell, n from 0: from it on, more than n are free up to there. On a full board: cell 0.
        nth = (draw[:, :1] * (cells - length)).short()
        onward = (self._numbering - body.cumsum(1, dtype=torch.int16)).sub_(nth).clamp_(0, 1)
        found = (cells - onward.sum(1, keepdim=True, dtype=torch.int16)) % cells
        fruit = torch.where(eaten, found.long(), self._fruit)

        crashed, late = ~legal, clock >= cells + self.time_limit
        terminated, truncated = crashed | (length == cells), self._never
        if self.truncate:
            truncated = late & ~terminated
            ended = terminated | truncated
        else:
            ended = terminated = terminated | late
        score = length - 1
        rewards, returns = eaten.float(), score.float()
        if self.death_penalty:
            loss = crashed * self.death_penalty
            rewards, returns = rewards - loss, returns - loss

        frames = self._begin(ended, draw, (head, tail, fruit, length, clock), final_masks, final)
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
            lengths=clock[:, 0] - cells,
            score=score[:, 0],
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that the next steps depend on, copied."""
        return {name: kept.clone() for name, kept in self._kept().items()} | {"random": self._random.get_state()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from the `state()` of as many lanes with the same options on the same kind of device."""
        for name, kept in self._kept().items():
            kept.copy_(state[name])
        self._random.set_state(state["random"].cpu())

    def board(self, lane: int, action: int = 0) -> NDArray[np.uint8]:
        """A picture of a lane for people, uint8 [height * 12, width * 12, 3]; it is the same for every action."""
        since = int(self._length[lane] - self._clock[lane])
        places = self._born[lane, : self.cells].cpu().numpy() + since
        body, tail = places > 0, np.flatnonzero(places == 1)
        colours = np.where(body[:, None], np.uint8(BODY), np.uint8(GROUND))
        for cell, colour in ((self._fruit[lane], FRUIT), (tail, TAIL), (self._head[lane], HEAD)):
            colours[np.asarray(cell)] = colour
        return draw_cells(colours.reshape(*self.frame_shape[1:], 3))

    def _begin(self, ended: Tensor, draw: Tensor, now: tuple[Tensor, ...], masks: Tensor, planes: Tensor) -> Tensor:
        """Begin an episode where one has `ended` [lanes, 1], keep what is `now` elsewhere; all lanes' observations.

        now: head, tail, fruit, length, clock. planes: uint8 [lanes, 5, cells], only with the body and its order.
        """
        head, fruit = (draw[:, 1:] * self._choices).long().split(1, 1)
        fruit = fruit + (fruit >= head)  # it has one cell less to choose from
        tail = torch.where(ended, head, now[1])
        head = torch.where(ended, head, now[0], out=self._head)
        fruit = torch.where(ended, fruit, now[2], out=self._fruit)
        torch.where(ended, self._one, now[3], out=self._length)
        clock = torch.where(ended, self._dawn, now[4], out=self._clock)
        torch.where(ended, self._inside.index_select(0, head[:, 0]), masks, out=self._masks)
        goes_on = (~ended).to(torch.uint8)
        self._born[:, : self.cells].mul_(goes_on)
        self._born.scatter_(1, head, clock.float())
        self._trail.scatter_(1, clock % self.cells, head)
        frames = planes * goes_on.unsqueeze(2)
        marks = torch.cat((head, tail, fruit, head, head), 1).add_(self._first_planes)
        frames.view(self.lanes, -1).scatter_(1, marks, 255)
        return frames.view(self.lanes, *self.frame_shape)

    def _draw(self) -> Tensor:
        """For the next fruit, and a new episode's head and fruit: float32 [lanes, 3] below 1."""
        return torch.rand((self.lanes, 3), generator=self._random, device=self.device)

    def _kept(self) -> dict[str, Tensor]:
        names = ("head", "fruit", "length", "clock", "born", "trail", "masks")
        return {name: getattr(self, f"_{name}") for name in names}

    def _constant(self, values: Sequence[float], dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)


def neighbours(height: int, width: int) -> Tensor:
    """The cell that each move leads to, `height * width` for outside: int64 [cells, 4]."""
    row, column = torch.arange(height * width).div(width, rounding_mode="floor"), torch.arange(height * width) % width
    found = []
    for down, right in MOVES:
        there = (row + down, column + right)
        inside = (there[0] >= 0) & (there[0] < height) & (there[1] >= 0) & (there[1] < width)
        found.append(torch.where(inside, there[0] * width + there[1], height * width))
    return torch.stack(found, 1)
