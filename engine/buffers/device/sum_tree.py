"""A sum tree on a torch device: the same nodes as `SumTree`, computed level by level with operations of fixed shape.

So that the host never waits for the device, requests always have their maximum length. Invalid elements are written to
a spare node behind the last leaf, which belongs to no parent.

On CUDA, a kernel of its own replaces the hundred operations of each request.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.buffers.sum_tree import WIDTH, level_starts
from engine.runtime.devices import CudaKernel

_THREADS = 128
_BLOCK = 1024
"""Threads that set leaves: a single block, whose threads can wait for each other after every level."""
_MOST_SET = 16 * _BLOCK
"""Leaves set by one block; tensor operations, which use the whole device, are faster with more."""


class DeviceSumTree:
    """Non-negative float64 priorities of `size` leaves, initially zero. The device must support float64 (not MPS)."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self._starts: list[int] = level_starts(size).tolist()
        self._nodes = torch.zeros(self._starts[-1] + 1, dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)  # leaves above zero
        self._cuda = CUDA_FIND.runs_on(device) and CUDA_SET.runs_on(device)
        if self._cuda:
            self._level_starts = torch.tensor(self._starts, device=device)
            self._last = torch.zeros(size, dtype=torch.int32, device=device)
            """For `CUDA_SET`; 0 between requests."""

    @property
    def total(self) -> Tensor:
        """Sum of all priorities, float64 scalar."""
        return self._nodes[0]

    @property
    def leaves(self) -> Tensor:
        """Priorities float64 [size]; read-only."""
        return self._nodes[self._starts[-2] :][: self.size]

    def __getitem__(self, leaves: Tensor) -> Tensor:
        return self._nodes[self._starts[-2] + leaves]

    def set(self, leaves: Tensor, priorities: Tensor, valid: Tensor) -> None:
        """Set priorities [n] of leaves [n] where `valid` [n]; if a leaf occurs twice, the last valid value counts."""
        if self._cuda and len(leaves) <= _MOST_SET:
            assert (leaves.dtype, priorities.dtype, valid.dtype) == (torch.int64, torch.float64, torch.bool)
            leaves, priorities, valid = leaves.contiguous(), priorities.contiguous(), valid.contiguous()
            arguments = (leaves, priorities, valid, self._last, self.count, len(leaves))
            CUDA_SET((1, 1), _BLOCK, (self._nodes, self._level_starts, len(self._starts) - 1, *arguments))
            return
        spare = self._starts[-1]
        places = torch.where(valid, self._starts[-2] + leaves, spare)
        places, order = places.sort(stable=True)  # makes equal places adjacent; the last one counts
        is_last = torch.ones_like(valid)
        is_last[:-1] = places[1:] != places[:-1]
        priorities = priorities[order]
        counts = is_last & (places != spare)
        self.count += (counts & (priorities > 0)).sum() - (counts & (self._nodes[places] > 0)).sum()
        self._nodes[torch.where(counts, places, spare)] = priorities
        # The spare place is given the parents of leaf 0: summing those again changes nothing.
        index = torch.where(counts, places - self._starts[-2], 0)
        children = torch.arange(WIDTH, device=index.device)
        for level in range(len(self._starts) - 3, -1, -1):
            index = index // WIDTH
            groups = self._nodes[self._starts[level + 1] + index[:, None] * WIDTH + children]
            self._nodes[self._starts[level] + index] = groups.sum(1)

    def find(self, prefixes: Tensor) -> Tensor:
        """For each of `prefixes` [n] in [0, total): the leaf at which the running sum of priorities exceeds it."""
        found = torch.zeros_like(prefixes, dtype=torch.int64)
        if self._cuda:
            levels, count = len(self._starts) - 1, len(prefixes)
            assert prefixes.dtype == torch.float64 and count
            arguments = (self._nodes, self._level_starts, levels, prefixes.contiguous(), found, count)
            CUDA_FIND((-(-count // _THREADS), 1), _THREADS, arguments)
            return found
        children = torch.arange(WIDTH, device=found.device)
        for start in self._starts[1:-1]:
            weights = self._nodes[start + found[:, None] * WIDTH + children]
            running = weights.cumsum(1)
            heavy = weights > 0  # never choose a zero, even if rounding puts the prefix past all others
            passed = heavy & (prefixes[:, None] < running)
            last = (heavy * (children + 1)).argmax(1)
            chosen = torch.where(passed.any(1), passed.byte().argmax(1), last)
            before = running.gather(1, (chosen - 1).clamp(min=0)[:, None]).squeeze(1) * (chosen > 0)
            prefixes = prefixes - before
            found = found * WIDTH + chosen
        return found


CUDA_FIND = CudaKernel(
    "find",
    f"""
// `DeviceSumTree.find`: a thread for each prefix.
extern "C" __global__ void find(
    const double* nodes, const long long* starts, int levels, const double* prefixes, long long* found, int count)
{{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    double prefix = prefixes[i];
    long long node = 0;
    for (int level = 1; level < levels; ++level) {{
        const double* group = nodes + starts[level] + {WIDTH} * node;
        double weights[{WIDTH}];
        for (int child = 0; child < {WIDTH}; ++child)  // loads that don't wait for each other
            weights[child] = group[child];
        double running = 0, before = 0;
        int chosen = 0;
        bool done = false;
        for (int child = 0; child < {WIDTH}; ++child) {{
            if (done || !(weights[child] > 0))
                continue;
            chosen = child;
            before = running;
            running += weights[child];
            done = prefix < running;
        }}
        prefix -= before;
        node = {WIDTH} * node + chosen;
    }}
    found[i] = node;
}}
""",
)

CUDA_SET = CudaKernel(
    "set",
    f"""
__device__ double sum4(const double* nodes)
{{
    return (nodes[0] + nodes[1]) + (nodes[2] + nodes[3]);
}}

// `DeviceSumTree.set` in one block. `last`, int [leaves], tells which of equal leaves comes last: 1 + its place.
extern "C" __global__ void set(
    double* nodes, const long long* starts, int levels, const long long* leaves, const double* priorities,
    const bool* valid, int* last, long long* count, int requests)
{{
    __shared__ int more;
    if (threadIdx.x == 0)
        more = 0;
    for (int i = threadIdx.x; i < requests; i += blockDim.x)
        if (valid[i])
            atomicMax(&last[leaves[i]], i + 1);
    __syncthreads();
    for (int i = threadIdx.x; i < requests; i += blockDim.x)
        if (valid[i] && last[leaves[i]] == i + 1) {{
            double* node = nodes + starts[levels - 1] + leaves[i];
            atomicAdd(&more, (priorities[i] > 0) - (*node > 0));
            *node = priorities[i];
        }}
    __syncthreads();
    for (int i = threadIdx.x; i < requests; i += blockDim.x)
        if (valid[i])
            last[leaves[i]] = 0;
    long long children = 1;  // leaves below a node
    for (int level = levels - 2; level >= 0; --level) {{
        children *= {WIDTH};
        for (int i = threadIdx.x; i < requests; i += blockDim.x)
            if (valid[i]) {{
                const long long node = leaves[i] / children;
                const double* group = nodes + starts[level + 1] + {WIDTH} * node;
                nodes[starts[level] + node] = (sum4(group) + sum4(group + 4)) + (sum4(group + 8) + sum4(group + 12));
            }}
        __syncthreads();
    }}
    if (threadIdx.x == 0)
        *count += more;
}}
""",
)
