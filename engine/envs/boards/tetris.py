"""N games of Tetris in tensors on one device, stepped together, by the rules of Jumanji's Tetris-v0.

An action places the whole piece: a rotation, and the column of the left edge of its 4x4 box; the piece falls straight.
A board is a number a column, whose bit y is row y from the top, so that all places where a piece could lie in a column
are found at once: bit y of a column shifted down by a cell's row in the piece says that the piece can't be at y. Below
the floor all bits are set.
https://github.com/instadeepai/jumanji/blob/main/jumanji/environments/packing/tetris/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.envs.boards.game import TensorLanes, TensorStep, check_range, draw_cells
from engine.errors import UserError

PIECES = (
    ("#...|#...|#...|#...", "####|....|....|....", "#...|#...|#...|#...", "####|....|....|...."),
    (".##.|##..|....|....", "#...|##..|.#..|....", ".##.|##..|....|....", "#...|##..|.#..|...."),
    ("##..|.##.|....|....", ".#..|##..|#...|....", "##..|.##.|....|....", ".#..|##..|#...|...."),
    ("##..|##..|....|....", "##..|##..|....|....", "##..|##..|....|....", "##..|##..|....|...."),
    ("###.|.#..|....|....", ".#..|##..|.#..|....", ".#..|###.|....|....", "#...|##..|#...|...."),
    ("#...|#...|##..|....", "###.|#...|....|....", "##..|.#..|.#..|....", "..#.|###.|....|...."),
    (".#..|.#..|##..|....", "#...|###.|....|....", "##..|#...|#...|....", "###.|..#.|....|...."),
)
"""Boxes of I, S, Z, O, T, L, J in four rotations, in Jumanji's order."""
PADDING = 3  # columns right of the board that a box may reach into
PLANES = 4
ROTATIONS = 4
REWARDS = ("lines", "jumanji")
LINE_REWARDS = (0.0, 40.0, 100.0, 300.0, 1200.0)  # Jumanji's
PRESETS: dict[str, dict[str, Any]] = {
    "jumanji": {"height": 10, "width": 10, "reward": "jumanji"},
    "standard": {"height": 20, "width": 10, "bag": True},
}
"""Options of other well-known games; without any the board is 14 high and 7 wide."""
GROUND, FILLED, PIECE = (24, 26, 33), (86, 140, 235), (255, 170, 51)


class TetrisLanes(TensorLanes):
    """See the module's docstring.

    Action `rotation * width + column`. Observations are uint8 [lanes, 4, height, width], 0 or 255: the filled cells;
    the cells at or under the highest filled one of their column, which no piece can fall to; the piece, in rotation 0,
    in the upper left corner; and the legal actions, a row for each rotation.

    `weigh` shapes the reward that is learned from; returns and scores never are shaped.

    An episode is terminated by an illegal action, by a new piece without a legal one, and by the time limit. An action
    is legal if the piece is inside the board and can come straight down into the first rows. What an illegal one
    leaves on the board is Jumanji's, too.

    Args:
        lanes: number of games.
        height, width: of the board, in cells.
        reward: `lines`: 1 + width * (lines cleared)^2 for every piece placed; `jumanji`: 0, 40, 100, 300 or 1200 for
            0 to 4 lines. An illegal action gives 0.
        bag: whether pieces come from bags of all seven; otherwise each is drawn anew.
        time_limit: steps of an episode at most.
        truncate: whether the time limit truncates episodes. Jumanji terminates them, though no plane tells the time.
        seed: of every random decision; the games depend on the number of lanes and the kind of device, too.
    """

    kept = ("columns", "piece", "left", "lines", "clock", "return", "masks")

    def __init__(
        self,
        lanes: int,
        *,
        height: int = 14,
        width: int = 7,
        reward: str = "lines",
        bag: bool = False,
        time_limit: int = 400,
        truncate: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(lanes, device, seed)
        check_range("height", height, 4, 26)  # and the floor's bits in 31
        check_range("width", width, 4, 12)  # and padding with 4 bits a column in 63
        check_range("time_limit", time_limit, 1, 2**31)
        if reward not in REWARDS:
            raise UserError(f"reward: {reward!r} is not accepted; accepted: {', '.join(REWARDS)}")
        self.actions = ROTATIONS * width
        self.frame_shape = (PLANES, height, width)
        self.height, self.width, self.bag = height, width, bag
        self.time_limit, self.truncate = time_limit, truncate
        self._cell_columns, self._cell_rows, self._blocked = (table.to(self.device) for table in placements(width))
        self._pictures = piece_planes(height, width).to(self.device)  # uint8 [7, height * width]
        bags = range(1 << len(PIECES))
        members = [[piece for piece in range(len(PIECES)) if bag >> piece & 1] for bag in bags]
        self._sizes = self._constant([float(len(inside)) for inside in members])
        self._members = self._constant([inside + [0] * (len(PIECES) - len(inside)) for inside in members]).flatten()
        self._full_bag = self._constant([len(bags) - 1]).expand(lanes, 1)
        by_width = [1.0 + width * lines**2 for lines in range(5)]
        self._gains = self._constant(by_width if reward == "lines" else LINE_REWARDS)
        self._cell = float(self._gains[1] - self._gains[0]) / width
        self._shaping: Tensor | None = None  # float32 [3, 1]
        self._rows = self._constant(range(height), torch.int32)[:, None]
        self._places = self._constant([4 * column for column in range(width + PADDING)])
        self._wall = self._constant([1 << 62])
        self._never = self._constant([False]).expand(lanes, 1)
        # Numbers of Python's would be made tensors at every use.
        self._empty, self._board = (self._constant([bits], torch.int32) for bits in (-1 << height, (1 << height) - 1))
        self._bit, self._four = (self._constant([bits], torch.int32) for bits in (1, 15))
        self._to_bottom = self._constant([height - 1], torch.int32)
        self._limit, self._one, self._zero = (self._constant([number]) for number in (time_limit, 1, 0))
        self._kinds = self._constant([float(len(PIECES))])
        # int32 [lanes, width + 3], int64 [lanes, 1] each
        self._columns = self._empty.repeat(lanes, width + PADDING)
        self._piece, self._left, self._lines, self._clock = (self._constant([0]).repeat(lanes, 1) for _ in range(4))
        self._return = self._constant([0.0]).repeat(lanes, 1)
        self._masks = torch.zeros((lanes, self.actions), dtype=torch.bool, device=self.device)
        self.reset()

    def reset(self) -> Tensor:
        """Begin an episode in every lane; the first observations."""
        draw = self._draw(2)
        board = torch.zeros((self.lanes, PLANES, self.height * self.width), dtype=torch.uint8, device=self.device)
        now = (
            self._columns,
            self._take(draw[:, :1], self._left)[0],
            self._left,
            self._lines,
            self._clock,
            self._return,
        )
        packed = torch.zeros((self.lanes, 1), dtype=torch.int64, device=self.device)
        return self._begin(~self._never, draw, now, packed, board)

    def step(self, actions: Tensor) -> TensorStep:
        """One step with actions int64 [lanes], 0 to 4 * width - 1."""
        draw = self._draw(2)  # for the next piece, and for a new game's first
        legal = self._masks.gather(1, actions.unsqueeze(1))
        columns, lines = self._clear(self._place(torch.add(actions, self._piece[:, 0], alpha=self.actions)))
        piece, left = self._take(draw[:, :1], self._left)
        packed = ((columns & self._four) << self._places).sum(1, keepdim=True)  # the first four rows
        final_masks = self._legal(piece, packed)

        clock = self._clock + self._one
        late = clock >= self._limit
        terminated, truncated = ~(legal & final_masks.any(1, keepdim=True)), self._never
        if self.truncate:
            truncated = late & ~terminated
            ended = terminated | truncated
        else:
            ended = terminated = terminated | late
        rewards = self._gains.take(lines) * legal
        returns = self._return + rewards
        if self._shaping is not None:
            rewards = rewards + (self._count(columns) - self._count(self._columns)) @ self._shaping * legal
        score = self._lines + lines

        final = torch.zeros((self.lanes, PLANES, self.height * self.width), dtype=torch.uint8, device=self.device)
        seen = torch.stack((columns, -(columns & -columns)), 1)[:, :, : self.width]  # from the first filled row down
        seen = (seen.unsqueeze(2) >> self._rows).bitwise_and_(self._bit).neg_()  # 0 or -1, which is 255 in uint8
        final[:, :2] = seen.view(self.lanes, 2, -1)
        frames = self._begin(ended, draw, (columns, piece, left, score, clock, returns), packed, final)
        self._show(final, piece, final_masks)
        return TensorStep(
            frames=frames,
            final_frames=final.view(frames.shape),
            rewards=rewards[:, 0],
            terminated=terminated[:, 0],
            truncated=truncated[:, 0],
            masks=self.masks,
            final_masks=final_masks,
            returns=returns[:, 0],
            lengths=clock[:, 0],
            score=score[:, 0],
        )

    def weigh(self, weights: Sequence[float]) -> None:
        """Let each piece cost what it adds to the board's height, holes and bumpiness, and earn what it takes away.

        weights: of a unit of each, in what a cell of a cleared line gives; zeros for the plain reward. Height is the
        sum of the columns'; a hole is an empty cell under a filled one; bumpiness sums the differences of neighbouring
        columns. Changes add up to what is on the board in the end, whichever way it came to be.
        """
        costs = [[-weight * self._cell] for weight in weights]
        self._shaping = self._constant(costs) if any(weights) else None

    def board(self, lane: int, action: int = 0) -> NDArray[np.uint8]:
        """A picture of a lane for people, uint8 [(height + 5) * 12, width * 12, 3].

        Above the board is the piece, turned and moved as `action` would place it.
        """
        columns = self._columns[lane, : self.width].cpu().numpy()
        filled = columns >> np.arange(self.height)[:, None] & 1 > 0
        rotation, column = divmod(action, self.width)
        box = boxes()[int(self._piece[lane]), rotation, :, : self.width - column].numpy() > 0
        colours = np.full((self.height + 5, self.width, 3), GROUND, np.uint8)
        colours[: len(box), column : column + 4][box] = PIECE
        colours[5:][filled] = FILLED
        return draw_cells(colours)

    def _place(self, placements: Tensor) -> Tensor:
        """The columns with the current pieces in them. placements: piece * actions + action, int64 [lanes]."""
        column = self._cell_columns.index_select(0, placements)
        row = self._cell_rows.index_select(0, placements)
        taken = self._columns.gather(1, column) >> row
        taken = taken[:, :2] | taken[:, 2:]
        taken = taken[:, :1] | taken[:, 1:]  # bit y: the box can't be at row y
        first = taken & -taken
        place = (first >> self._bit) | (
            (first & self._bit) << self._to_bottom
        )  # Jumanji puts at the bottom what fits nowhere
        return torch.zeros_like(self._columns).scatter_add_(1, column, place << row).bitwise_or_(self._columns)

    def _clear(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The columns without full lines, and how many there were, int64 [lanes, 1]."""
        full = columns[:, : self.width]
        while (count := full.shape[1]) > 1:  # the halves overlap where the count is odd
            half = (count + 1) // 2
            full = full[:, :half] & full[:, count - half :]
        full = full & self._board
        lines = []
        for _ in range(4):  # from the top; without a full line nothing happens
            line = full & -full
            full = full ^ line
            columns = columns + (columns & (line - self._bit).clamp_(min=0)) - (columns & line)  # down one, and out
            lines.append(line)
        return columns, torch.cat(lines, 1).bool().sum(1, keepdim=True)

    def _count(self, columns: Tensor) -> Tensor:
        """Height, holes and bumpiness, float32 [lanes, 3]."""
        columns = columns[:, : self.width]
        cells = torch.stack((columns, -(columns & -columns)), 1).unsqueeze(2)  # from the first filled row down
        filled, heights = ((cells >> self._rows) & self._bit).sum(2).unbind(1)  # int64 [lanes, width]
        height = heights.sum(1)
        bumps = (heights[:, 1:] - heights[:, :-1]).abs().sum(1)
        return torch.stack((height, height - filled.sum(1), bumps), 1).float()

    def _take(self, draw: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """The next pieces, and what they leave in their bags: int64 [lanes, 1] each."""
        if not self.bag:
            return (draw * self._kinds).long(), left
        left = torch.where(left == self._zero, self._full_bag, left)
        nth = (draw * self._sizes.take(left)).long()
        piece = self._members.take(torch.add(nth, left, alpha=len(PIECES)))
        return piece, left ^ (self._one << piece)

    def _legal(self, piece: Tensor, packed: Tensor) -> Tensor:
        """Legal actions, bool [lanes, actions], from the boards' first rows as `placements` packs them."""
        return (self._blocked.index_select(0, piece[:, 0]) & (packed | self._wall)).bool().logical_not_()

    def _show(self, planes: Tensor, piece: Tensor, masks: Tensor) -> None:
        """Write the planes of the piece and the legal actions into uint8 [lanes, 4, height * width]."""
        planes[:, 2] = self._pictures.index_select(0, piece[:, 0])
        planes[:, 3, : self.actions] = masks.view(torch.uint8).neg()

    def _begin(self, ended: Tensor, draw: Tensor, now: tuple[Tensor, ...], packed: Tensor, planes: Tensor) -> Tensor:
        """Begin an episode where one has `ended` [lanes, 1], keep what is `now` elsewhere; all lanes' observations.

        now: columns, piece, left, lines, clock, return. packed: the first rows. planes: uint8 [lanes, 4, cells], only
        with those of the board.
        """
        columns, piece, left, lines, clock, returns = now
        if self.bag:
            new_piece, new_left = self._take(draw[:, 1:], self._full_bag)
            torch.where(ended, new_piece, piece, out=self._piece)
            torch.where(ended, new_left, left, out=self._left)
        else:
            self._piece.copy_(piece)  # a new episode may begin with it as well
        goes_on = (~ended).view(torch.uint8)
        torch.where(ended, self._empty, columns, out=self._columns)
        torch.mul(lines, goes_on, out=self._lines)
        torch.mul(clock, goes_on, out=self._clock)
        torch.mul(returns, goes_on, out=self._return)
        self._masks.copy_(self._legal(self._piece, packed * goes_on))
        frames = planes * goes_on.unsqueeze(2)
        self._show(frames, self._piece, self._masks)
        return frames.view(self.lanes, *self.frame_shape)


def boxes() -> Tensor:
    """The pieces, int64 [7, rotations, 4, 4]."""
    return torch.tensor(
        [[[[cell == "#" for cell in row] for row in box.split("|")] for box in turns] for turns in PIECES]
    ).long()


def placements(width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the cells of each placed piece are, and what forbids to place it.

    Their columns, int64 [7 * actions, 4], and their rows in the box, int32 [7 * actions, 4]; and bits int64
    [7, actions]: bit 4 x + y if the cell there must be free, bit 62 if the piece is not inside the board. Cells above a
    piece's own in the box must be free, too, as Jumanji has it, so that a piece can come down past overhangs.
    """
    columns, rows, blocked = [], [], []
    for box in boxes().flatten(0, 1):
        across, down = box.nonzero()[:, 1], box.nonzero()[:, 0]
        swept = box.flip(0).cumsum(0).flip(0).clamp(max=1)
        bits = int((swept.nonzero() * torch.tensor([1, 4])).sum(1).exp2().sum())
        for column in range(width):
            columns.append(column + across)
            rows.append(down)
            inside = column + int(across.max()) < width
            blocked.append(bits << 4 * column if inside else bits << 4 * column | 1 << 62)
    table = torch.tensor(blocked).view(len(PIECES), -1)
    return torch.stack(columns), torch.stack(rows).int(), table


def piece_planes(height: int, width: int) -> Tensor:
    """Each piece in rotation 0 in the upper left corner of a plane, uint8 [7, height * width], 0 or 255."""
    planes = torch.zeros((len(PIECES), height, width), dtype=torch.uint8)
    planes[:, :4, :4] = boxes()[:, 0] * 255
    return planes.flatten(1)
