"""PyTorch's devices: their precision, how they run out of memory, and what runs faster on CUDA: graphs and kernels."""

from __future__ import annotations

import functools
import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["float32", "bfloat16", "float16"]


def gpu_precision(device: torch.device) -> Precision:
    """Precision for mixed-precision training on a GPU: bfloat16 on CUDA, float16 before Ampere; float32 on MPS."""
    if device.type != "cuda":
        return "float32"
    with torch.cuda.device(device):  # PyTorch queries the current device
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "alloc_failed")
"""Parts of PyTorch's error messages, in lower case, that mean out of memory: from CUDA and MPS, the CPU allocator,
cuBLAS and cuDNN. Only CUDA's caching allocator raises a specific exception class."""


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Return whether an error means that the device or the host ran out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return any(part in text for part in _OUT_OF_MEMORY)


def release_memory(device: torch.device) -> None:
    """Return memory cached by PyTorch to the device."""
    if device.type == "cuda":
        with torch.cuda.device(device):  # empties the cache of the current device
            torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


WARM_UP = 3
"""Calls before the recording: libraries choose kernels and allocate workspaces in the first ones."""
_RECORDING = threading.Lock()
"""Only one graph of a process can be recorded at a time, and a lane's thread may record as well."""


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


class GraphedCall:
    """Calls `function`; on CUDA its fourth call records a graph, which is then used instead.

    An update of a small network is some 400 kernels of a few microseconds each, and launching them takes longer than
    computing them. A CUDA graph launches all of them together
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).

    `function` takes and returns nothing. It reads and writes tensors that always lie at the same addresses, never waits
    for the device, and changes nothing else: Python code in it does not run again once the graph is used. On other
    devices, and if recording fails, it is simply called.

    Args:
        generators: random generators of the device that `function` uses.
        log: receives a line if recording fails; a warning by default.
    """

    def __init__(
        self,
        function: Callable[[], None],
        device: torch.device,
        *,
        generators: Sequence[torch.Generator] = (),
        log: Callable[[str], None] = _warn,
    ) -> None:
        self._function, self._device, self._generators, self._log = function, device, generators, log
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def recorded(self) -> bool:
        """Return whether calls launch a graph."""
        return self._graph is not None

    def __call__(self) -> None:
        """Raises what `function` raises."""
        if self._graph is not None:
            self._graph.replay()
        elif self._stream is None:
            self._function()
        elif self._calls < WARM_UP:
            self._calls += 1
            self._call_on(self._stream)
        else:
            self._record(self._stream)
            self()

    def _call_on(self, stream: torch.cuda.Stream) -> None:
        """Call the function on another stream than the default one, which can't be recorded."""
        before = torch.cuda.current_stream(self._device)
        stream.wait_stream(before)
        try:
            with torch.cuda.stream(stream):
                self._function()
        finally:
            before.wait_stream(stream)

    def _record(self, stream: torch.cuda.Stream) -> None:
        """Record the function without computing anything. After a failure it is called from now on."""
        before = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        # What PyTorch allocates for its generators while recording must not be bound to inference mode.
        with _RECORDING, torch.cuda.device(self._device), torch.inference_mode(False):
            try:
                for generator in self._generators:
                    graph.register_generator_state(generator)
                # Other threads may use the device meanwhile: lanes step on it, frames are copied to it.
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    self._function()
            except RuntimeError as error:
                torch.cuda.set_stream(before)  # a recording that can't be ended leaves its own stream behind
                before.wait_stream(stream)
                for generator in self._generators:  # and, before PyTorch 2.13, generators that believe in it
                    generator.graphsafe_set_state(generator.clone_state())
                self._stream = None
                self._log(f"CUDA graphs can't be used here, so every operation is launched alone ({_first(error)})")
            else:
                self._graph = graph


def _first(error: BaseException) -> str:
    """The first line of the error that caused the others."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_LOG = logging.getLogger(__name__)
_Launch = Callable[..., None]


class CudaKernel:
    """The function `name` of `source` in CUDA C++, declared with `extern "C" __global__`.

    For what tensor operations would need hundreds of launches. PyTorch compiles it with NVRTC, which it brings along,
    when it is first called; that takes a fraction of a second. Beside each stand tensor operations that compute the
    same and are used wherever it can't be compiled.
    """

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def runs_on(self, device: torch.device) -> bool:
        """Return whether it can be launched on the device. False except on CUDA, and there before PyTorch 2.8."""
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
