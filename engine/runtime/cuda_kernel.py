"""Kernels in CUDA C++, for what tensor operations would need hundreds of launches.

PyTorch compiles them with NVRTC, which it brings along, when they are first called; that takes a fraction of a second.
Each stands beside tensor operations that compute the same and are used wherever it can't be compiled.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_LOG = logging.getLogger(__name__)
_Launch = Callable[..., None]


class CudaKernel:
    """The function `name` of `source`, declared with `extern "C" __global__`."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def runs_on(self, device: torch.device) -> bool:
        """Whether it can be launched on the device. False except on CUDA, and there before PyTorch 2.8."""
        return device.type == "cuda" and _compiled(self.name, self.source, device) is not None

    def __call__(
        self, blocks: tuple[int, int], threads: int, arguments: Sequence[Tensor | int], shared: int = 0
    ) -> None:
        """Launch it on the current stream, with `shared` bytes of dynamic shared memory in each block.

        Tensors are passed as pointers to their first element, which the kernel must address itself; numbers as `int`.
        The first argument is a tensor on the device.
        """
        first = arguments[0]
        assert isinstance(first, Tensor)
        launch = _compiled(self.name, self.source, first.device)
        assert launch is not None
        with torch.cuda.device(first.device):
            launch(grid=(*blocks, 1), block=(threads, 1, 1), args=list(arguments), shared_mem=shared)


@functools.cache
def _compiled(name: str, source: str, device: torch.device) -> _Launch | None:
    try:  # the function is private to PyTorch, and may change
        with torch.cuda.device(device):
            launch: _Launch = torch.cuda._compile_kernel(source, name)
    except (AssertionError, AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        _LOG.warning("the CUDA kernel %s can't be compiled, so slower operations replace it (%s)", name, error)
        return None
    return launch
