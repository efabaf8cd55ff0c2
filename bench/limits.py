"""How near an update comes to what the machine can do: time and floor of its operations, for bench.updates --limit.

The floor of an operation is the larger of two times: its multiplications and additions at the rate of the machine's
best matrix product, and the bytes of its inputs and outputs at the rate of a copy of as many bytes (the roofline of
Williams et al. 2009, https://doi.org/10.1145/1498765.1498785). The rates are measured with the shapes and the precision
of the update itself. Operations are those that PyTorch dispatches, on one thread; times are the processor's.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_LEAST_BYTES = 1 << 18
"""Copies of less measure PyTorch's dispatcher."""
_LEAST_SHARE = 0.01
"""Of the time: rarer kinds of operation share a row."""


@dataclass
class Operation:
    """All calls of a kind of operation with the same shapes, in one update."""

    calls: int = 0
    seconds: float = 0.0
    flops: int = 0
    """Multiplications and additions of all calls; 0 where there are hardly any."""
    bytes: int = 0
    """Of inputs and outputs of all calls."""

    @property
    def copied(self) -> int:
        """Bytes of a copy that moves as much as a call, rounded up to a power of two."""
        return max(_LEAST_BYTES, 1 << (self.bytes // self.calls).bit_length())


class Recorder(TorchDispatchMode):
    """Measures each operation while it is active; `operations` by their names and the shapes of their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = defaultdict[tuple[str, str], Operation](Operation)
        self.products = set[tuple[int, int, int, torch.dtype]]()
        """Shapes and dtypes of matrix products as large as those that were computed: rows, inner, columns."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.thread_time()
        result = func(*args, **(kwargs or {}))
        spent = time.thread_time() - begin
        inputs = list(_tensors(args))
        shapes = " ".join("x".join(map(str, tensor.shape)) for tensor in inputs[:2] if tensor.dim())
        found = self.operations[func.overloadpacket.__name__, shapes]
        # Views take no time, and move nothing.
        moved = 0 if func.is_view else sum(tensor.nbytes for tensor in (*inputs, *_tensors(result)))
        found.calls += 1
        found.seconds += spent
        found.bytes += moved
        if func.overloadpacket in flop_registry:
            count = flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
            found.flops += count
            if product := _product(func.overloadpacket, inputs, result):
                self.products.add(product)
        return result


def _tensors(values: Any) -> Iterator[Tensor]:
    return (value for value in tree_leaves(values) if isinstance(value, Tensor))


def _product(operation: Any, inputs: Sequence[Tensor], result: Any) -> tuple[int, int, int, torch.dtype] | None:
    """The matrix product that a convolution or a linear layer forward amounts to."""
    aten = torch.ops.aten
    if operation is aten.convolution:
        weight = inputs[1]
        return result.numel() // weight.shape[0], weight[0].numel(), weight.shape[0], weight.dtype
    if operation in (aten.addmm, aten.mm):
        left, right = inputs[-2:]
        return left.shape[0], left.shape[1], right.shape[1], left.dtype
    return None


def _best_rate(work: Callable[[], Any], amount: float, seconds: float = 0.2) -> float:
    """Of short turns the best: other programs only ever make it slower."""
    times = list[float]()
    work()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 5:
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return amount / min(times)


def product_rate(products: set[tuple[int, int, int, torch.dtype]]) -> float:
    """Multiplications and additions per second of the best of these matrix products."""
    rates = list[float]()
    for rows, inner, columns, dtype in products:
        left, right = torch.rand(rows, inner).to(dtype), torch.rand(inner, columns).to(dtype)
        out = torch.empty(rows, columns, dtype=dtype)
        rates.append(_best_rate(lambda: torch.mm(left, right, out=out), 2.0 * rows * inner * columns))  # noqa: B023
    return max(rates)


def copy_rate(size: int) -> float:
    """Bytes per second, read and written, of a copy that moves `size` bytes."""
    source, goal = (torch.empty(size // 2, dtype=torch.uint8) for _ in range(2))
    return _best_rate(lambda: goal.copy_(source), size)


@dataclass(frozen=True)
class Limit:
    """What an update takes, and what it would take at the machine's rates."""

    name: str
    seconds: float
    operations: dict[tuple[str, str], Operation]
    flops_per_s: float
    copies: dict[int, float]
    """Bytes per second of a copy of as many bytes."""

    def floor(self, operation: Operation) -> float:
        """Seconds that all calls of an operation would take."""
        return max(operation.flops / self.flops_per_s, operation.bytes / self.copies[operation.copied])


def measure_limit(name: str, update: Callable[[], Any], rounds: int = 9) -> Limit:
    """Medians of `rounds` updates; the operations' times are of others, in which each is timed."""
    torch.set_num_threads(1)
    update()
    spent, recorded = list[float](), list[Recorder]()
    for _ in range(rounds):
        begin = time.thread_time()
        update()
        spent.append(time.thread_time() - begin)
        recorder = Recorder()
        with recorder:
            update()
        recorded.append(recorder)
    operations = dict(recorded[-1].operations)
    for key, operation in operations.items():
        operation.seconds = statistics.median(each.operations[key].seconds for each in recorded)
    copies = {size: copy_rate(size) for size in {each.copied for each in operations.values()}}
    return Limit(name, statistics.median(spent), operations, product_rate(recorded[-1].products), copies)


def limit_table(limit: Limit) -> Table:
    found = Table(
        title=f"{limit.name}: best matrix product {limit.flops_per_s / 1e9:,.0f} GFLOP/s, "
        f"copies {min(limit.copies.values()) / 1e9:,.0f} to {max(limit.copies.values()) / 1e9:,.0f} GB/s, one thread",
    )
    found.add_column("operation and its first inputs", no_wrap=True)
    for column in ("calls", "time, ms", "floor, ms", "floor / time"):
        found.add_column(column, justify="right", no_wrap=True)
    rest, rest_floor = Operation(), 0.0
    for (name, shapes), each in sorted(limit.operations.items(), key=lambda item: -item[1].seconds):
        floor = limit.floor(each)
        if each.seconds >= _LEAST_SHARE * limit.seconds:
            found.add_row(f"{name} {shapes}", str(each.calls), *_cells(each.seconds, floor))
        else:
            rest.calls, rest.seconds, rest_floor = (
                rest.calls + each.calls,
                rest.seconds + each.seconds,
                rest_floor + floor,
            )
    found.add_row("all others", str(rest.calls), *_cells(rest.seconds, rest_floor))
    between = limit.seconds - sum(each.seconds for each in limit.operations.values())
    found.add_row("between them (and the batch)", "", f"{between * 1e3:,.2f}", "", "")
    found.add_section()
    found.add_row("update", "", *_cells(limit.seconds, sum(map(limit.floor, limit.operations.values()))))
    return found


def _cells(seconds: float, floor: float) -> tuple[str, str, str]:
    return f"{seconds * 1e3:,.2f}", f"{floor * 1e3:,.2f}", f"{floor / seconds:.2f}" if seconds else ""
