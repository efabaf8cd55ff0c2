"""Repeats a function on CUDA without launching its operations one by one.

An update of a small network is some 400 kernels of a few microseconds each, and launching them takes longer than
computing them. A CUDA graph records them once and launches all of them together.
https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence

import torch

WARM_UP = 3
"""Calls before the recording: libraries choose kernels and allocate workspaces in the first ones."""
_RECORDING = threading.Lock()
"""Only one graph of a process can be recorded at a time, and a lane's thread may record as well."""


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


class GraphedCall:
    """Calls `function`; on CUDA its fourth call records a graph, which is then used instead.

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
        """Whether calls launch a graph."""
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
