"""The boards that placements of Tetris leave, as a network sees them: compiled, for CPUs.

`put` and `clear_lines` in `engine.games.tetris.rules` do the same with tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.dueling import dueling, in_float32, through
from engine.agents.networks import Afterstates, as_planes
from engine.console.compiler.kernels import kernel
from engine.errors import UserError
from engine.games.tetris.kernel import clear, drop
from engine.games.tetris.options import FILLED, MASKS, NEXT, PIECE
from engine.games.tetris.rules import MIRRORED, PADDING, PIECES, boxes, clear_lines, placements, put


@kernel("int32[2], int64[1], int64[1], int64[2], int32[2], float32[4], int64[1]")
def draw_afterboards(
    columns: NDArray[np.int32],
    games: NDArray[np.int64],
    placements: NDArray[np.int64],
    cell_columns: NDArray[np.int64],
    cell_rows: NDArray[np.int32],
    planes: NDArray[np.float32],
    lines: NDArray[np.int64],
) -> None:
    """Draw the boards after `placements` [boards] in `games` [boards], and count the lines that they clear.

    Args:
        columns: of the games before, [games, width + PADDING], as in `TetrisLanes`.
        cell_columns, cell_rows: of the cells of all placements, [7 * actions, 4], from `placements`.
        planes: written, [boards, 2, height, width], 0 or 1: the filled cells, and the cells at or below the highest
            filled one of their column.
        lines: written, [boards].
    """
    _, _, height, width = planes.shape
    after = np.empty(columns.shape[1], np.int32)
    for number in range(len(planes)):
        for column in range(after.size):
            after[column] = columns[games[number], column]
        drop(after, cell_columns, cell_rows, placements[number], height)
        lines[number] = clear(after, height, width)
        for column in range(width):
            bits = after[column]
            reached = -(bits & -bits)
            for row in range(height):
                planes[number, 0, row, column] = bits >> row & 1
                planes[number, 1, row, column] = reached >> row & 1


BOX = 4  # side of the box of a piece
_FLAT = 2  # number of layers after which the features have the shape [batch, channels, width]


class BoardValue(nn.Module):
    """The value of boards, float32 [batch], from planes [batch, 2, height, width] of 0 and 1, bool or float.

    The first layer sees whole columns with one neighbour on either side. If the next piece is known, it is added to
    the features of every column.
    """

    def __init__(self, height: int, width: int, channels: int = 32, hidden: int = 64, *, next_piece: bool) -> None:
        super().__init__()
        self.piece = nn.Embedding(len(PIECES), channels) if next_piece else None
        self.layers = nn.Sequential(
            nn.Conv2d(2, channels, (height, 3), padding=(0, 1)), nn.Flatten(2), nn.ReLU(inplace=True),
            nn.Conv1d(channels, channels, 3, padding=1), nn.ReLU(inplace=True),
            nn.Flatten(), nn.Linear(channels * width, hidden), nn.ReLU(inplace=True),
        )  # fmt: skip
        self.last = nn.Linear(hidden, 1)

    def forward(self, planes: Tensor, piece: Tensor | None) -> Tensor:
        """piece: the next one of each board, int64 [batch], if it is known."""
        columns = self.layers[:_FLAT](planes.to(self.last.weight.dtype))
        if self.piece is not None:
            columns = columns + self.piece(piece)[:, :, None]
        features = self.layers[_FLAT:](columns)
        return in_float32(self.last, features).squeeze(1)


class AfterstateQNetwork(Afterstates):
    """Q-values float32 [batch, actions] from observations [batch, 1, planes, height, width] of `TetrisLanes`; 0 for
    illegal actions. If they show the next piece, boards are valued together with it.

    With costs, Q(s, a) = r(s, a) - cost(board after a) + gamma * V(board after a): values begin with what boards cost,
    which is as good as potential-based shaping (Wiewiora 2003, arXiv:1106.5267).

    Its rewards and costs are those of `set_rewards`. They are saved with the weights, because a policy is played with
    them; but only a network without rewards loads them, so that a run learns its own, whatever policy or checkpoint it
    begins with. Weights that were learned with costs are refused without them: the values contain them.

    Args:
        frame_shape: (4 or, with the next piece, 5; height, width).
    """

    compiled = True  # see `engine.extras.export.export_onnx`
    gains: Tensor  # float32 [5]
    costs: Tensor  # float32 [3]
    _cell_columns: Tensor
    _cell_rows: Tensor
    _first_equal: Tensor
    _mirrored: Tensor
    _bits: Tensor
    _codes: Tensor
    _one: Tensor
    _to_bottom: Tensor
    _board: Tensor

    def __init__(self, frame_shape: tuple[int, ...]) -> None:
        super().__init__()
        planes, self._height, self._width = frame_shape
        self._actions = 4 * self._width
        self._shows_next = planes > NEXT
        self.value = BoardValue(self._height, self._width, next_piece=self._shows_next)
        columns, rows, _ = placements(self._width)
        self.register_buffer("_cell_columns", columns, persistent=False)
        self.register_buffer("_cell_rows", rows, persistent=False)
        self.register_buffer("_first_equal", first_equal(self._width), persistent=False)
        self.register_buffer("_mirrored", torch.tensor(MIRRORED), persistent=False)
        self._has_rewards = self._has_costs = False
        self.register_buffer("gains", torch.zeros(5))
        self.register_buffer("costs", torch.zeros(3))
        self.register_buffer("_bits", 1 << torch.arange(self._height, dtype=torch.int32), persistent=False)
        for name, number in (("_one", 1), ("_to_bottom", self._height - 1), ("_board", (1 << self._height) - 1)):
            self.register_buffer(name, torch.tensor([number], dtype=torch.int32), persistent=False)
        self.register_buffer("_codes", boxes()[:, 0].flatten(1).float(), persistent=False)

    def set_rewards(self, gains: Sequence[float], gamma: float, costs: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        """gains: reward of a placement that clears 0 to 4 lines, as the agent sees it. gamma: discount factor. costs:
        of a unit of a board's height, holes and bumpiness."""
        self.gains.copy_(torch.tensor(gains))
        self.gamma.fill_(gamma)
        self.costs.copy_(torch.tensor(costs))
        self._has_rewards, self._has_costs = True, any(costs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """PyTorch's hook for loading the tensors of this module. Raises `UserError` for weights with costs that
        are not its own."""
        costs = state_dict.get(f"{prefix}costs")
        # A tensor on the meta device has no values: it may hold costs.
        has_costs = costs is not None and (costs.is_meta or bool(costs.any()))
        if not self._has_rewards:
            self._has_costs = has_costs
        elif (
            costs is not None and has_costs and not (costs.is_meta or torch.allclose(costs.to(self.costs), self.costs))
        ):
            raise UserError(
                "--curriculum and --reward must be those with which the weights were learned: their values count on "
                "what boards cost"
            )
        kept = ("gains", "gamma", "costs") if self._has_rewards else ()
        state_dict = {**state_dict, **{f"{prefix}{name}": getattr(self, name) for name in kept}}
        super()._load_from_state_dict(state_dict, prefix, *others)

    def forward(self, obs: Tensor) -> Tensor:
        """See the class's docstring."""
        columns, piece, following, planes = self._read(obs)
        legal = planes[:, MASKS].flatten(1)[:, : self._actions] > 0
        canonical = self._first_equal[piece]
        batch = obs.shape[0]  # `len` would be a constant of a graph
        every = torch.arange(self._actions, device=obs.device)
        if not self._is_compiled(obs):  # a fixed number of boards, because a CUDA graph's shapes are fixed
            games = torch.arange(batch, device=obs.device)[:, None].expand(-1, self._actions).flatten()
            actions = every.expand(batch, -1).flatten()
        else:
            games, actions = (legal & (canonical == every)).nonzero(as_tuple=True)
        after, rewards = self._after(columns, games, piece[games], actions)
        found = rewards + self.gamma * self.value(after, None if following is None else following[games])
        q = found.new_zeros(batch, self._actions).index_put((games, actions), found)
        return q.gather(1, canonical) * legal

    def of_actions(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values float32 [2, batch] of one action int64 [batch] per observation: on the board, and on its mirror
        image, with the next piece mirrored as well."""
        columns, piece, following, _ = self._read(obs)
        after, rewards = self._after(columns, torch.arange(len(columns), device=obs.device), piece, actions)
        if following is not None:
            following = torch.cat((following, self._mirrored[following]))
        values = self.value(torch.cat((after, after.flip(-1))), following)
        return rewards + self.gamma * values.view(2, -1)

    def _is_compiled(self, given: Tensor) -> bool:
        return given.device.type == "cpu" and self.compiled

    def _read(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Columns as in `TetrisLanes`, int32 [batch, width + PADDING]; pieces and, if shown, the next ones, int64
        [batch]; and the planes."""
        planes = obs.flatten(1, -3)
        filled = ((planes[:, FILLED] > 0) * self._bits[:, None]).sum(1, dtype=torch.int32)
        columns = F.pad(filled, (0, PADDING)) | (-1 << self._height)
        following = self._piece_in(planes[:, NEXT]) if self._shows_next else None
        return columns, self._piece_in(planes[:, PIECE]), following, planes

    def _piece_in(self, plane: Tensor) -> Tensor:
        boxes = (plane[:, :BOX, :BOX] > 0).flatten(1).float()
        return (2 * boxes @ self._codes.T - self._codes.sum(1)).argmax(1)  # the least distance, squared

    def _after(self, columns: Tensor, games: Tensor, piece: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Board planes and rewards after one placement each, less the costs of the boards. games: row of `columns`;
        piece, actions: what is placed and where; all int64 [boards]."""
        planes, lines = self.place(columns, games, piece * self._actions + actions)
        rewards = self.gains[lines]
        return planes, rewards - (measure(planes) * self.costs).sum(1) if self._has_costs else rewards

    def place(self, columns: Tensor, games: Tensor, placed: Tensor) -> tuple[Tensor, Tensor]:
        """Board planes, as `BoardValue` sees them, and numbers of cleared lines after one placement each.

        Args:
            columns: int32 [games, width + PADDING], as in `TetrisLanes`.
            games: row of `columns`, int64 [boards].
            placed: piece * 4 * width + action, int64 [boards].
        """
        if self._is_compiled(columns):
            planes = torch.empty((len(games), 2, self._height, self._width))
            lines = torch.empty(len(games), dtype=torch.int64)
            given = (columns, games.contiguous(), placed, self._cell_columns, self._cell_rows)
            draw_afterboards(*(tensor.numpy() for tensor in (*given, planes, lines)))
            return planes, lines
        return self.place_on_device(columns, games, placed)

    def place_on_device(self, columns: Tensor, games: Tensor, placed: Tensor) -> tuple[Tensor, Tensor]:
        """`place` by tensor operations."""
        cells = (self._cell_columns[placed], self._cell_rows[placed])
        after, cleared = clear_lines(put(columns[games], *cells, self._one, self._to_bottom), self._board, self._one)
        after = after[:, : self._width]
        planes = torch.stack((after, -(after & -after)), 1)[:, :, None] & self._bits[:, None] != 0
        return planes, cleared[:, 0]


class ColumnsQNetwork(nn.Module):
    """For Tetris: shares weights between columns, because a piece fits one column as well as another.

    The first layer sees whole columns with two neighbours on either side. The piece, which the board shows in its
    corner, is added to the features of every column, so the advantage of a rotation and a column is computed in that
    column.

    Args:
        stack: 1.
        frame_shape: (planes, height, width) of `engine.games.tetris.rules`.
        actions: 4 * width.
        hidden: number of channels, and width of the value stream.
    """

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int, hidden: int = 128) -> None:
        super().__init__()
        planes, height, width = frame_shape
        self._width = width
        self.columns = nn.Conv2d(stack * planes, hidden, (height, 5), padding=(0, 2))
        self.piece = nn.Linear(BOX * BOX, hidden)
        self.mix = nn.Sequential(
            nn.ReLU(inplace=True), nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(inplace=True), nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(inplace=True),
        )  # fmt: skip
        self.advantage = nn.Conv1d(hidden, actions // width, 1)
        self.value = nn.Sequential(nn.Linear(hidden * width, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 1))

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] from observations [batch, stack, planes, height, width]."""
        x = as_planes(obs)
        piece = F.linear(x[:, PIECE, :BOX, :BOX].flatten(1), self.piece.weight / 255, self.piece.bias)
        columns = self.columns
        x = F.conv2d(x, columns.weight / 255, columns.bias, padding=columns.padding).squeeze(2) + piece[:, :, None]
        features = self.mix(x)  # [batch, hidden, width]
        value = through(self.value, features.flatten(1))
        return dueling(value, in_float32(self.advantage, features).flatten(1))


def measure(planes: Tensor) -> Tensor:
    """Height, holes and bumpiness of boards, as in `TetrisLanes.set_shaping`, float32 [batch, 3]. planes: as
    `BoardValue` sees them."""
    filled, heights = planes.sum(2, dtype=torch.float32).unbind(1)  # of each column
    height = heights.sum(1)
    return torch.stack((height, height - filled.sum(1), (heights[:, 1:] - heights[:, :-1]).abs().sum(1)), 1)


def first_equal(width: int) -> Tensor:
    """For each piece and action, the first action that places the same cells, int64 [7, 4 * width]."""
    table = []
    for turns in boxes():
        same = [next(i for i in range(4) if torch.equal(turns[i], box)) for box in turns]
        table.append([rotation * width + column for rotation in same for column in range(width)])
    return torch.tensor(table).view(len(PIECES), -1)


def make_afterstates(stack: int, frame_shape: tuple[int, ...], actions: int) -> AfterstateQNetwork:
    """See `engine.config.game.Game.own_networks`."""
    return AfterstateQNetwork(frame_shape)
