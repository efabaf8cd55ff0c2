"""Batched Tetris on a torch device, with the rules of Jumanji's Tetris-v0; compiled on CPUs (kernel.py).

An action places a whole piece: a rotation, and the column of the left edge of its 4x4 box; the piece drops straight
down. A board is stored as one integer per column, whose bit y is row y from the top. So a few bit operations find all
rows where a piece fits: if a column is shifted right by a cell's row in the piece, a set bit y means that the piece
can't be at row y. Bits below the floor are set.
https://github.com/instadeepai/jumanji/blob/main/jumanji/environments/packing/tetris/
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.console.compiler.kernels import bind_last
from engine.errors import UserError
from engine.games.boards.tensor_lanes import TensorLanes, TensorStep, as_step, check_range, new_arrays
from engine.games.tetris.kernel import TetrisRules, TetrisState, step_tetris
from engine.games.tetris.options import MASKS, NEXT, PIECE, PLANES

PIECES = (
    ("#...|#...|#...|#...", "####|....|....|....", "#...|#...|#...|#...", "####|....|....|...."),
    (".##.|##..|....|....", "#...|##..|.#..|....", ".##.|##..|....|....", "#...|##..|.#..|...."),
    ("##..|.##.|....|....", ".#..|##..|#...|....", "##..|.##.|....|....", ".#..|##..|#...|...."),
    ("##..|##..|....|....", "##..|##..|....|....", "##..|##..|....|....", "##..|##..|....|...."),
    ("###.|.#..|....|....", ".#..|##..|.#..|....", ".#..|###.|....|....", "#...|##..|#...|...."),
    ("#...|#...|##..|....", "###.|#...|....|....", "##..|.#..|.#..|....", "..#.|###.|....|...."),
    (".#..|.#..|##..|....", "#...|###.|....|....", "##..|#...|#...|....", "###.|..#.|....|...."),
)
"""4x4 boxes of the pieces I, S, Z, O, T, L, J in four rotations, in Jumanji's order."""
MIRRORED = (0, 2, 1, 3, 4, 6, 5)
"""Index in `PIECES` of each piece's mirror image."""
PADDING = 3  # columns to the right of the board that a box may overlap
ROTATIONS = 4
REWARDS = ("cells", "lines", "jumanji")
LINE_REWARDS = (0.0, 40.0, 100.0, 300.0, 1200.0)  # Jumanji's


class TetrisLanes(TensorLanes):
    """Many games of Tetris, stepped together.

    Actions are `rotation * width + column`. Observations are uint8 [lanes, planes, height, width], 0 or 255: the filled
    cells; the cells at or below the highest filled cell of their column, which no piece can reach; the piece, in
    rotation 0, in the upper left corner; the legal actions, one row per rotation; and, if it is drawn beforehand, the
    piece after the current one, in a fifth plane of the same kind as the third.

    `set_shaping` shapes the reward that the agent learns from; returns and scores are never shaped.

    An episode terminates after an illegal action, when the new piece has no legal action, and at the time limit. An
    action is legal if the piece is inside the board and can enter the first rows from straight above. The board after
    an illegal action is the same as Jumanji's.

    Args:
        lanes: number of games.
        height, width: size of the board, in cells.
        reward: for every piece placed; `cells`: 1 + the number of cells cleared; `lines`: 1 + width * (lines
            cleared)^2; `jumanji`: 0, 40, 100, 300 or 1200 for 0 to 4 lines. An illegal action gives 0.
        bag: whether pieces are drawn from bags of all seven; otherwise each is drawn independently.
        time_limit: maximum number of steps of an episode.
        truncate: whether the time limit truncates episodes. Jumanji terminates them, although no plane shows the time.
        next_piece: whether the piece after the current one is drawn beforehand and shown.
        seed: seed of all random decisions; the games also depend on the number of lanes and the kind of device.
        device: torch device of all tensors.
        compiled: whether steps are compiled, which only a CPU allows; None for yes on a CPU. Both forms give the same
            bits.

    Raises `UserError` if an option is not accepted.
    """

    state_names: tuple[str, ...] = ("columns", "piece", "left", "lines", "clock", "return", "masks")

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
        next_piece: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        compiled: bool | None = None,
    ) -> None:
        super().__init__(lanes, device, seed, compiled)
        check_range("height", height, 4, 26)  # fits in 31 bits together with those of the floor
        check_range("width", width, 4, 12)  # with padding, 4 bits per column fit in 63 bits
        check_range("time_limit", time_limit, 1, 2**31)
        if reward not in REWARDS:
            raise UserError(f"reward must be one of {', '.join(REWARDS)}, got {reward!r}")
        self.actions = ROTATIONS * width
        self.frame_shape = (PLANES + next_piece, height, width)
        self.height, self.width, self.bag = height, width, bag
        self.time_limit, self.truncate = time_limit, truncate
        self._shows_next = next_piece
        self.draws = 2 + next_piece  # for the piece to be drawn in this step, and for those of a new game
        self.state_ranges = {
            **dict.fromkeys(("piece", "next"), (0, len(PIECES) - 1)),
            "left": (0, (1 << len(PIECES)) - 1),
            "columns": (-1 << height, -1),  # all bits below the floor are set
            "lines": (0, 4 * time_limit),
            "clock": (0, time_limit),
            "return": (0, LINE_REWARDS[-1] * time_limit),
        }
        if next_piece:
            self.state_names = (*self.state_names, "next")
        self._cell_columns, self._cell_rows, self._blocked = (table.to(self.device) for table in placements(width))
        self._pictures = piece_planes(height, width).to(self.device)  # uint8 [7, height * width]
        bags = range(1 << len(PIECES))
        members = [[piece for piece in range(len(PIECES)) if bag >> piece & 1] for bag in bags]
        self._sizes = self._constant([float(len(inside)) for inside in members])
        self._members = self._constant([inside + [0] * (len(PIECES) - len(inside)) for inside in members]).flatten()
        self._full_bag = self._constant([len(bags) - 1]).expand(lanes, 1)
        self._gains = self._constant(gains(reward, width))
        self._cell = float(self._gains[1] - self._gains[0]) / width
        self._shaping: Tensor | None = None  # float32 [3, 1]; None before the first `set_shaping`
        self._share = self._constant([0.0])  # of the costs in a step after which the game goes on: 1 - gamma
        self._rows = self._constant(range(height), torch.int32)[:, None]
        self._places = self._constant([4 * column for column in range(width + PADDING)])
        self._wall = self._constant([1 << 62])
        self._never = self._constant([False]).expand(lanes, 1)
        # As tensors, because Python numbers would be converted to tensors at every use.
        self._empty, self._board = (self._constant([bits], torch.int32) for bits in (-1 << height, (1 << height) - 1))
        self._bit, self._four = (self._constant([bits], torch.int32) for bits in (1, 15))
        self._to_bottom = self._constant([height - 1], torch.int32)
        self._limit, self._one, self._zero = (self._constant([number]) for number in (time_limit, 1, 0))
        self._kinds = self._constant([float(len(PIECES))])
        # columns: int32 [lanes, width + 3]; the others but the return: int64 [lanes, 1]
        self._columns = self._empty.repeat(lanes, width + PADDING)
        self._piece, self._left, self._lines, self._clock = (self._constant([0]).repeat(lanes, 1) for _ in range(4))
        self._next = self._constant([0]).repeat(lanes, 1)  # stays 0 if the next piece is not drawn beforehand
        self._return = self._constant([0.0]).repeat(lanes, 1)
        self._masks = torch.zeros((lanes, self.actions), dtype=torch.bool, device=self.device)
        self._bind()
        self.reset()

    @property
    def scores(self) -> Tensor:
        """Lines of the current episodes so far, int64 [lanes]."""
        return self._lines[:, 0].clone()

    def reset(self) -> Tensor:
        draw = self._draw(self.draws)
        board = torch.zeros(
            (self.lanes, self.frame_shape[0], self.height * self.width), dtype=torch.uint8, device=self.device
        )
        piece, upcoming = (self._take(draw[:, nth : nth + 1], self._left)[0] for nth in range(2))
        now = (self._columns, piece, upcoming, self._left, self._lines, self._clock, self._return)
        packed = torch.zeros((self.lanes, 1), dtype=torch.int64, device=self.device)
        return self._begin(~self._never, draw, now, packed, board)

    def _step_compiled(self, actions: Tensor, draw: Tensor) -> TensorStep:
        arrays = new_arrays(self.lanes, self.actions, self.frame_shape)
        measures = torch.empty((0 if self._shaping is None else self.lanes, 3))
        legal = None if self._shaping is None else self._masks.gather(1, actions.unsqueeze(1))
        chosen = actions.contiguous().numpy()
        if not self._kernel(chosen, draw.numpy(), arrays, measures.numpy()):
            raise IndexError("an action of Tetris is not between 0 and 4 * width - 1")
        step = as_step(arrays, self.frame_shape)
        if legal is not None:
            ends = step.terminated.unsqueeze(1)
            step.rewards.copy_(self._shape(step.rewards.unsqueeze(1), measures, legal, ends)[:, 0])
        return step

    def _step_tensors(self, actions: Tensor, draw: Tensor) -> TensorStep:
        legal = self._masks.gather(1, actions.unsqueeze(1))
        columns, lines = clear_lines(
            self._place(torch.add(actions, self._piece[:, 0], alpha=self.actions)), self._board, self._bit
        )
        drawn, left = self._take(draw[:, :1], self._left)
        piece = self._next.clone() if self._shows_next else drawn
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
            rewards = self._shape(rewards, self._count(columns), legal, terminated)
        score = self._lines + lines

        planes = self.frame_shape[0]
        final = torch.zeros((self.lanes, planes, self.height * self.width), dtype=torch.uint8, device=self.device)
        seen = torch.stack((columns, -(columns & -columns)), 1)[:, :, : self.width]  # from the first filled row down
        seen = (seen.unsqueeze(2) >> self._rows).bitwise_and_(self._bit).neg_()  # 0 or -1, which is 255 in uint8
        final[:, :2] = seen.view(self.lanes, 2, -1)
        frames = self._begin(ended, draw, (columns, piece, drawn, left, score, clock, returns), packed, final)
        self._show(final, piece, drawn, final_masks)
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
            from_start=~self._never[:, 0],
        )

    def set_shaping(self, weights: Sequence[float], gamma: float) -> None:
        """Subtract from each reward the weighted height, holes and bumpiness that the board has after it: (1 - gamma)
        times while the game goes on, and once when it terminates.

        For an agent whose discount factor is gamma that is the same as to subtract the increase at each step
        (potential-based shaping, Ng et al. 1999): values differ by what the board before costs, whatever the action.
        But this way a reward depends on no board before, so that afterstates can be learned.

        weights: weight of a unit of each, relative to the reward for one cell of a cleared line; zeros for the plain
        reward. Height is the sum of all columns' heights; a hole is an empty cell below a filled one; bumpiness is the
        sum of height differences of neighbouring columns.
        """
        costs = torch.tensor([[-weight * self._cell] for weight in weights])
        self._share.fill_(1.0 - gamma)
        if self._shaping is None:
            self._shaping = costs.to(self.device)
        else:
            self._shaping.copy_(costs)

    def next_piece(self, lane: int) -> int | None:
        """The index in `PIECES` of the piece after the current one; None if it is not drawn beforehand."""
        return int(self._next[lane]) if self._shows_next else None

    def columns(self, lane: int) -> list[int]:
        """The columns of a lane's board: bit y is row y from the top, and bits below the floor are set."""
        columns: list[int] = self._columns[lane, : self.width].tolist()
        return columns

    def piece(self, lane: int) -> int:
        """The piece that a lane's next action places."""
        return int(self._piece[lane, 0])

    def lines(self, lane: int) -> int:
        """Lines of a lane's episode so far."""
        return int(self._lines[lane, 0])

    def _place(self, placements: Tensor) -> Tensor:
        """The columns with the current pieces added. placements: piece * actions + action, int64 [lanes]."""
        column = self._cell_columns.index_select(0, placements)
        row = self._cell_rows.index_select(0, placements)
        return put(self._columns, column, row, self._bit, self._to_bottom)

    def _shape(self, rewards: Tensor, measures: Tensor, legal: Tensor, terminated: Tensor) -> Tensor:
        """Shaped rewards [lanes, 1]. measures: height, holes and bumpiness after the step, float32 [lanes, 3]; legal,
        terminated: bool [lanes, 1]."""
        assert self._shaping is not None
        return rewards + measures @ self._shaping * legal * torch.where(terminated, 1.0, self._share)

    def _bind(self) -> None:
        if not self.compiled:
            return
        held = (self._columns, self._piece, self._next, self._left, self._lines, self._clock, self._return, self._masks)
        state = TetrisState(*(tensor.numpy() for tensor in held))
        rules = TetrisRules(
            cell_columns=self._cell_columns.numpy(),
            cell_rows=self._cell_rows.numpy(),
            blocked=self._blocked.numpy(),
            pictures=self._pictures.numpy(),
            sizes=self._sizes.numpy(),
            members=self._members.view(len(self._sizes), -1).numpy(),
            gains=self._gains.numpy(),
            height=self.height,
            width=self.width,
            bag=self.bag,
            shows_next=self._shows_next,
            time_limit=self.time_limit,
            truncate=self.truncate,
        )
        self._kernel = bind_last(step_tetris, state, rules)

    def _count(self, columns: Tensor) -> Tensor:
        """Height, holes and bumpiness, float32 [lanes, 3]."""
        columns = columns[:, : self.width]
        cells = torch.stack((columns, -(columns & -columns)), 1).unsqueeze(2)  # from the first filled row down
        filled, heights = ((cells >> self._rows) & self._bit).sum(2).unbind(1)  # int64 [lanes, width]
        height = heights.sum(1)
        bumps = (heights[:, 1:] - heights[:, :-1]).abs().sum(1)
        return torch.stack((height, height - filled.sum(1), bumps), 1).float()

    def _take(self, draw: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """Draw the next pieces: pieces, and the pieces left in the bags as bits; int64 [lanes, 1] each."""
        if not self.bag:
            return (draw * self._kinds).long(), left
        left = torch.where(left == self._zero, self._full_bag, left)
        nth = (draw * self._sizes.take(left)).long()
        piece = self._members.take(torch.add(nth, left, alpha=len(PIECES)))
        return piece, left ^ (self._one << piece)

    def _legal(self, piece: Tensor, packed: Tensor) -> Tensor:
        """Legal actions, bool [lanes, actions]. packed: the boards' first four rows, packed as in `placements`."""
        return (self._blocked.index_select(0, piece[:, 0]) & (packed | self._wall)).bool().logical_not_()

    def _show(self, planes: Tensor, piece: Tensor, upcoming: Tensor, masks: Tensor) -> None:
        """Draw the pieces and the legal actions in their planes of uint8 [lanes, planes, height * width]."""
        planes[:, PIECE] = self._pictures.index_select(0, piece[:, 0])
        planes[:, MASKS, : self.actions] = masks.view(torch.uint8).neg()
        if self._shows_next:
            planes[:, NEXT] = self._pictures.index_select(0, upcoming[:, 0])

    def _begin(self, ended: Tensor, draw: Tensor, now: tuple[Tensor, ...], packed: Tensor, planes: Tensor) -> Tensor:
        """Begin an episode where one has `ended` [lanes, 1] and store `now` elsewhere; returns all observations.

        now: columns, piece, next piece, left, lines, clock, return. packed: the first four rows. planes: uint8 [lanes,
        planes, cells], in which only those of the board are drawn.
        """
        columns, piece, upcoming, left, lines, clock, returns = now
        if self.bag:
            new_piece, new_left = self._take(draw[:, 1:2], self._full_bag)
            torch.where(ended, new_piece, piece, out=self._piece)
            if self._shows_next:
                new_next, new_left = self._take(draw[:, 2:], new_left)
                torch.where(ended, new_next, upcoming, out=self._next)
            torch.where(ended, new_left, left, out=self._left)
        else:  # drawn independently, so a new episode may begin with them as well
            self._piece.copy_(piece)
            if self._shows_next:
                self._next.copy_(upcoming)
        continues = (~ended).view(torch.uint8)
        torch.where(ended, self._empty, columns, out=self._columns)
        torch.mul(lines, continues, out=self._lines)
        torch.mul(clock, continues, out=self._clock)
        torch.mul(returns, continues, out=self._return)
        self._masks.copy_(self._legal(self._piece, packed * continues))
        frames = planes * continues.unsqueeze(2)
        self._show(frames, self._piece, self._next, self._masks)
        return frames.view(self.lanes, *self.frame_shape)


def gains(reward: str, width: int) -> Sequence[float]:
    """The reward of a placement that clears 0 to 4 lines. reward: one of `REWARDS`."""
    if reward == "jumanji":
        return LINE_REWARDS
    return [1.0 + width * lines ** (1 if reward == "cells" else 2) for lines in range(5)]


def put(columns: Tensor, column: Tensor, row: Tensor, bit: Tensor, to_bottom: Tensor) -> Tensor:
    """Drop pieces into boards: the columns int32 [batch, width + 3] with the cells added.

    column, row: of the cells, int64 and int32 [batch, 4], from `placements`. bit: 1. to_bottom: height - 1.
    """
    taken = torch.bitwise_right_shift(columns.gather(1, column), row)
    taken = taken[:, :2] | taken[:, 2:]
    taken = taken[:, :1] | taken[:, 1:]  # bit y is set if the box can't be at row y
    first = taken & -taken
    lowest = torch.bitwise_left_shift(first & bit, to_bottom)
    place = torch.bitwise_right_shift(first, bit) | lowest  # like Jumanji, put a piece that fits nowhere at the bottom
    return torch.zeros_like(columns).scatter_add_(1, column, torch.bitwise_left_shift(place, row)).bitwise_or_(columns)


def clear_lines(columns: Tensor, board: Tensor, bit: Tensor) -> tuple[Tensor, Tensor]:
    """Remove full lines: the new columns int32 [batch, width + 3], and the number of lines, int64 [batch, 1].

    board: the bits of all rows. bit: 1.
    """
    full = columns[:, :-PADDING]
    while (count := full.shape[1]) > 1:  # the halves overlap if the count is odd
        half = (count + 1) // 2
        full = full[:, :half] & full[:, count - half :]
    full = full & board
    lines = []
    for _ in range(4):  # from the top; does nothing if there is no full line
        line = full & -full
        full = full ^ line
        # move the rows above the line down, then remove the line
        columns = columns + (columns & (line - bit).clamp_(min=0)) - (columns & line)
        lines.append(line)
    return columns, torch.cat(lines, 1).bool().sum(1, keepdim=True)


def boxes() -> Tensor:
    """The cells of the pieces, 0 or 1, int64 [7, rotations, 4, 4]."""
    return torch.tensor(
        [[[[cell == "#" for cell in row] for row in box.split("|")] for box in turns] for turns in PIECES]
    ).long()


def placements(width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tables of all placements: columns, rows and blocking bits.

    The columns of a piece's cells, int64 [7 * actions, 4]; their rows in the box, int32 [7 * actions, 4]; and bits,
    int64 [7, actions]: bit 4 x + y is set if cell (x, y) must be free, bit 62 if the piece is not inside the board. As
    in Jumanji, the cells above those of the piece must be free as well, so that it can drop in from above.
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
