"""A Q-network for Snake that sees the board from the head, and how soon each move lets the snake reach each cell.

Without the second, a network learns to run for the fruit but not which moves cut the snake off from its way out, which
depends on the whole board (`engine.games.snake.arrivals`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.dueling import dueling, stream, through
from engine.games.snake.arrivals import Arrivals
from engine.games.snake.planes import FRUIT, HEAD, ORDER, TAIL
from engine.games.snake.rules import MOVES, neighbours

_DIRECTIONS = len(MOVES)
_SEEN = 8  # planes that the convolutions see
_NUMBERS = 3 * 3  # about the three moves that are not backwards


class PathsQNetwork(nn.Module):
    """Q-values float32 [batch, 4] from observations [batch, 1, 5, height, width] of `SnakeLanes`, dueling.

    The board is turned so that the snake moves up, and mirrored if the fruit is on the left, so what is learned in one
    position holds in all eight that are the same. For the moves ahead, to the right and to the left the network sees
    the earliest arrivals as planes, and as numbers the share of cells that can be reached, whether the tail is among
    them, and whether the move is legal.

    Args:
        frame_shape: (5, height, width).
        filters: of the first two convolutions; the third has twice as many.
        hidden: width of each of the two streams.
    """

    views: Tensor
    beside: Tensor
    moves: Tensor

    def __init__(self, frame_shape: tuple[int, ...], filters: int = 32, hidden: int = 256) -> None:
        super().__init__()
        _, height, width = frame_shape
        self._cells, self._width, self._side = height * width, width, max(height, width)
        self.arrivals = Arrivals(height, width)
        for name, table in (
            ("views", views(height, width)),
            ("beside", neighbours(height, width)),
            ("moves", torch.tensor(MOVES)),
        ):
            self.register_buffer(name, table, persistent=False)
        self.features = nn.Sequential(
            nn.Conv2d(_SEEN, filters, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(filters, filters, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(filters, 2 * filters, 3, stride=2, padding=1), nn.ReLU(inplace=True),
            nn.Flatten(),
        )  # fmt: skip
        inputs = 2 * filters * ((self._side + 1) // 2) ** 2 + _NUMBERS
        self.value, self.advantage = (stream(inputs, hidden, out, norm=True) for out in (1, _DIRECTIONS))

    def forward(self, obs: Tensor) -> Tensor:
        """See the class's docstring."""
        frames = obs.flatten(1, -3).to(torch.uint8)
        cells, times = frames.flatten(2), self.arrivals(frames)
        heading, mirrored = self._turn(cells)
        sign = 1 - 2 * mirrored
        seen = torch.stack((heading, (heading + sign) % _DIRECTIONS, (heading - sign) % _DIRECTIONS), 1)
        times = times.gather(1, seen[:, :, None].expand(-1, -1, self._cells)).float()  # ahead, right, left

        length = (cells[:, ORDER] > 0).sum(1, keepdim=True)
        order = cells[:, ORDER] * (length / (255 * self._cells))  # the share of cells from the tail up to this one
        soon = torch.where(times > 0, 1 - times / (2 * self._cells), 0.0)
        board = torch.cat((cells[:, :ORDER] / 255, order[:, None], soon), 1)
        view = self.views[heading, mirrored][:, None].expand(-1, _SEEN, -1)
        board = F.pad(board, (0, 1)).gather(2, view).view(-1, _SEEN, self._side, self._side)
        board = board.contiguous(memory_format=torch.channels_last)  # for a faster backward pass on CPUs

        reached = times > 0
        tail = (reached & (cells[:, TAIL] > 0)[:, None]).any(2)
        numbers = torch.cat((reached.float().mean(2), tail.float(), reached.any(2).float()), 1)
        features = torch.cat((self.features(board), numbers), 1)
        q = dueling(through(self.value, features), through(self.advantage, features))
        turned = (torch.arange(_DIRECTIONS, device=obs.device) - heading[:, None]) * sign[:, None]
        return q.gather(1, turned % _DIRECTIONS)

    def _turn(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """The direction in which each snake moves, and whether the fruit is on its left (1) or not (0): int64 [batch].

        The snake comes from the cell beside the head that the body entered last.
        """
        head, fruit = cells[:, HEAD].argmax(1), cells[:, FRUIT].argmax(1)
        order = F.pad(cells[:, ORDER].int(), (0, 1)).gather(1, self.beside[head])
        heading = (order.argmax(1) + 2) % _DIRECTIONS
        right = self.moves[(heading + 1) % _DIRECTIONS]
        rows, columns = (where(fruit) - where(head) for where in (self._row, self._column))
        return heading, (rows * right[:, 0] + columns * right[:, 1] < 0).long()

    def _row(self, cell: Tensor) -> Tensor:
        return cell.div(self._width, rounding_mode="floor")

    def _column(self, cell: Tensor) -> Tensor:
        return cell % self._width


def views(height: int, width: int) -> Tensor:
    """The cells in the order in which they are seen, int64 [directions, 2, side^2]: turned so that the direction is up,
    and then mirrored. Boards that are not square are filled up with number `height * width`."""
    side = max(height, width)
    cells = torch.arange(height * width).view(height, width)
    square = F.pad(cells, (0, side - width, 0, side - height), value=height * width)
    turned = [torch.rot90(square, turns) for turns in range(_DIRECTIONS)]
    return torch.stack([torch.stack((board, board.flip(1))).flatten(1) for board in turned])


def make_paths(stack: int, frame_shape: tuple[int, ...], actions: int) -> PathsQNetwork:
    """See `engine.config.game.Game.own_networks`."""
    return PathsQNetwork(frame_shape)
