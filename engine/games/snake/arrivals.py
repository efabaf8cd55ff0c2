"""When a snake could reach each cell, for each of its next moves.

A cell of the body is free again once the body has left it: the k-th cell from the tail after k moves, one later if the
next move eats. So a breadth-first search from the cell of the next move, in the order of time, finds how early the
snake can be where, and whether it would cut itself off. Detours that wait until the body has left are not searched.

The search is compiled on CPUs and for CUDA. On other devices, and in exported graphs, it is made of tensor operations
whose shapes do not depend on data. All find the same.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.compiler.kernels import kernel
from engine.games.snake.planes import BODY, FRUIT, HEAD, ORDER
from engine.games.snake.rules import MOVES, neighbours
from engine.runtime.cuda_kernel import CudaKernel


class Arrivals(torch.nn.Module):
    """The search on boards of one size.

    Called with observations uint8 [batch, 5, height, width] of `SnakeLanes`, it returns int32 [batch, 4, cells]: the
    number of the move with which the head first arrives if it takes this direction now; 0 for never.
    """

    compiled = True  # see `engine.commands.export_onnx`
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
