"""A Q-network for Snake that sees the board from the head, and how soon each move lets the snake reach each cell.

Without the second, a network learns to run for the fruit but not which moves cut the snake off from its way out, which
depends on the whole board. A cell of the body is free again once the body has left it: the k-th cell from the tail
after k moves, one later if the next move eats. So a breadth-first search from the cell of the next move, in the order
of time, finds how early the snake can be where, and whether it would cut itself off. Detours that wait until the body
has left are not searched.

The search is compiled on CPUs and for CUDA. On other devices, and in exported graphs, it is made of tensor operations
whose shapes do not depend on data. All find the same.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.dueling import PLAIN, Head, dueling, stream, through
from engine.console.compiler.kernels import kernel
from engine.games.snake.options import BODY, FRUIT, HEAD, ORDER, TAIL
from engine.games.snake.rules import MOVES, neighbours
from engine.runtime.devices import CudaKernel


class Arrivals(torch.nn.Module):
    """The search on boards of one size.

    Called with observations uint8 [batch, 5, height, width] of `SnakeLanes`, it returns int32 [batch, 4, cells]: the
    number of the move with which the head first arrives if it takes this direction now; 0 for never.
    """

    compiled = True  # see `engine.extras.export.export_onnx`
    beside: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.register_buffer("beside", neighbours(height, width).int(), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        frames, device = frames.flatten(2), frames.device
        if not self.compiled or not (device.type == "cpu" or CUDA_SEARCH.runs_on(device)):
            return arrivals(frames, self.beside)
        frames = frames.contiguous()
        games, _, cells = frames.shape
        found = torch.empty((games, len(MOVES), cells), dtype=torch.int32, device=device)
        if device.type == "cpu":
            search(frames.numpy(), self.beside.numpy(), found.numpy())
        else:
            CUDA_SEARCH((games, len(MOVES)), _THREADS, (frames, self.beside, found, cells), shared=4 * cells)
        return found


@kernel("uint8[3], int32[2], int32[3]")
def search(frames: NDArray[np.uint8], beside: NDArray[np.int32], found: NDArray[np.int32]) -> None:
    """Write the arrivals of frames [batch, 5, cells] to `found`. beside: of `neighbours`."""
    cells = frames.shape[2]
    queue = np.empty(cells, np.int32)
    leaves = np.empty(cells, np.int32)  # number of moves after which the body has left a cell
    for game in range(len(frames)):
        length, head = 0, 0
        for cell in range(cells):
            length += frames[game, ORDER, cell] > 0
            if frames[game, HEAD, cell] > 0:
                head = cell
        for cell in range(cells):
            leaves[cell] = frames[game, ORDER, cell] * length // 255
            if frames[game, BODY, cell] > 0 and leaves[cell] == 0:
                leaves[cell] = 2 * cells  # outside of a small board in a large frame
        for move in range(found.shape[1]):
            times = found[game, move]
            for cell in range(cells):
                times[cell] = 0
            first = beside[head, move]
            if first == cells or leaves[first] > 1:
                continue
            later = 1 if frames[game, FRUIT, first] > 0 else 0
            times[first] = 1
            queue[0] = first
            done, known = 0, 1
            while done < known:
                cell = queue[done]
                done += 1
                now = times[cell] + 1
                for direction in range(found.shape[1]):
                    onward = beside[cell, direction]
                    if onward == cells or times[onward] > 0:
                        continue
                    if leaves[onward] == 0 or leaves[onward] + later <= now:
                        times[onward] = now
                        queue[known] = onward
                        known += 1


_THREADS = 128
CUDA_SEARCH = CudaKernel(
    "search",
    """
// A block of threads for each game and move: all cells in step, one move after the other, until no cell is new.
// frames [games, 5, cells], beside [cells, 4], found [games, 4, cells]
extern "C" __global__ void search(const unsigned char* frames, const int* beside, int* found, int cells)
{
    extern __shared__ int leaves[];  // number of moves after which the body has left a cell
    __shared__ int length, head;
    const unsigned char* frame = frames + 5 * cells * (size_t)blockIdx.x;
    const unsigned char *body = frame, *heads = frame + cells, *fruit = frame + 3 * cells, *order = frame + 4 * cells;
    int* times = found + (4 * (size_t)blockIdx.x + blockIdx.y) * cells;
    if (threadIdx.x == 0)
        length = head = 0;
    __syncthreads();
    for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
        times[cell] = 0;
        if (order[cell] > 0)
            atomicAdd(&length, 1);
        if (heads[cell] > 0)
            head = cell;
    }
    __syncthreads();
    for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
        leaves[cell] = order[cell] * length / 255;
        if (body[cell] > 0 && leaves[cell] == 0)
            leaves[cell] = 2 * cells;  // outside of a small board in a large frame
    }
    __syncthreads();
    const int first = beside[4 * head + blockIdx.y];
    if (first == cells || leaves[first] > 1)
        return;
    const int later = fruit[first] > 0;
    if (threadIdx.x == 0)
        times[first] = 1;
    for (int now = 2; now <= cells; ++now) {
        __syncthreads();
        int is_new = 0;
        for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
            if (times[cell] > 0 || (leaves[cell] > 0 && leaves[cell] + later > now))
                continue;
            for (int direction = 0; direction < 4; ++direction) {
                const int other = beside[4 * cell + direction];
                if (other < cells && times[other] == now - 1) {
                    times[cell] = now;
                    is_new = 1;
                    break;
                }
            }
        }
        if (!__syncthreads_or(is_new))
            return;
    }
}
""",
)


def arrivals(frames: Tensor, beside: Tensor) -> Tensor:
    """The arrivals int32 [batch, 4, cells] of frames uint8 [batch, 5, cells], by tensor operations."""
    cells, beside = frames.shape[2], beside.long()
    order = frames[:, ORDER].int()
    leaves = order * (order > 0).sum(1, keepdim=True) // 255
    leaves = torch.where((frames[:, BODY] > 0) & (leaves == 0), 2 * cells, leaves)
    head = frames[:, HEAD].argmax(1)
    first = torch.nn.functional.one_hot(beside[head], cells + 1)[:, :, :cells] > 0  # [batch, 4, cells]
    now = first & (leaves <= 1)[:, None]
    eats = (now & (frames[:, FRUIT] > 0)[:, None]).any(2, keepdim=True)
    left = leaves[:, None] + (eats & (leaves > 0)[:, None])
    times = now.int()
    for time in range(2, cells + 1):
        around = torch.nn.functional.pad(now, (0, 1))[:, :, beside].any(3)
        now = around & (times == 0) & (left <= time)
        times = times + now * time
    return times.int()


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
        head: what the streams tell.
    """

    views: Tensor
    beside: Tensor
    moves: Tensor

    def __init__(self, frame_shape: tuple[int, ...], filters: int = 32, hidden: int = 256, head: Head = PLAIN) -> None:
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
        self.value, self.advantage = (stream(inputs, hidden, out, norm=True, head=head) for out in (1, _DIRECTIONS))

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
        values = dueling(through(self.value, features), through(self.advantage, features))
        turned = (torch.arange(_DIRECTIONS, device=obs.device) - heading[:, None]) * sign[:, None] % _DIRECTIONS
        return values.gather(1, turned if values.dim() == 2 else turned[..., None].expand_as(values))

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


def make_paths(stack: int, frame_shape: tuple[int, ...], actions: int, head: Head = PLAIN) -> PathsQNetwork:
    """See `engine.config.game.Game.own_networks`."""
    return PathsQNetwork(frame_shape, head=head)
