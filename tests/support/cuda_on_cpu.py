"""Runs kernels in CUDA C++ on the CPU, one block after the other with a single thread each.

That shows whether they compute the right thing. What threads do to each other, only a GPU can show.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from engine.runtime.devices import CudaKernel

_HEADER = """
#include <cstddef>
#define __global__
#define __device__
#define __shared__ static
#define __syncthreads()
#define __syncthreads_or(found) (found)
struct Place { int x, y, z; };
extern "C" { Place blockIdx, threadIdx, blockDim = {1, 1, 1}; }
static void atomicAdd(int* place, int more) { *place += more; }
static void atomicMax(int* place, int other) { if (other > *place) *place = other; }
"""
_SHARED_ITEMS = 1 << 16


class _Place(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in "xyz"]


@functools.cache
def _library(source: str) -> ctypes.CDLL:
    source = _HEADER + re.sub(r"extern __shared__ (\w+) (\w+)\[\]", rf"static \1 \2[{_SHARED_ITEMS}]", source)
    folder = Path(tempfile.mkdtemp())
    program = folder / f"{hashlib.sha256(source.encode()).hexdigest()}.so"
    (folder / "kernel.cpp").write_text(source)
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", "-o", program, folder / "kernel.cpp"], check=True)
    return ctypes.CDLL(str(program))


def run_on_cpu(
    kernel: CudaKernel, blocks: tuple[int, int], threads: int, arguments: Sequence[Tensor | int], shared: int = 0
) -> None:
    """`CudaKernel.__call__` with tensors of the CPU."""
    library = _library(kernel.source)
    place = _Place.in_dll(library, "blockIdx")
    values = [
        ctypes.c_void_p(each.data_ptr()) if isinstance(each, Tensor) else ctypes.c_int(each) for each in arguments
    ]
    if "__syncthreads" not in kernel.source:  # each thread is on its own
        blocks = (blocks[0] * threads, blocks[1])
    for place.x, place.y in itertools.product(*map(range, blocks)):
        getattr(library, kernel.name)(*values)
