"""Samples CPU, memory and NVIDIA GPUs; the host does so about once a second."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import psutil

from engine.protocol.machine import GPU, System

_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU


class SystemSampler:
    """Samples the machine and the processes of one run: process `pid`, by default this one, and all its descendants."""

    def __init__(self, pid: int | None = None) -> None:
        self._first = psutil.Process(pid)
        self._known: dict[int, psutil.Process] = {}
        self._gpus = _GPUs()
        psutil.cpu_percent(percpu=True)  # the first call only starts the interval

    def sample(self) -> System:
        """Take a sample. CPU usage is averaged over the time since the last call."""
        cpu = 0.0
        resident = 0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                cpu += process.cpu_percent()
                resident += process.memory_info().rss
        memory = psutil.virtual_memory()
        gpus, note = self._gpus.sample()
        return System(
            cpu_percent=psutil.cpu_percent(percpu=True),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            run_cpu_percent=cpu,
            run_memory_bytes=resident,
            processes=len(self._known),
            gpus=gpus,
            gpu_note=note,
        )

    def _processes(self) -> list[psutil.Process]:
        """The run's processes, as the same `Process` objects each time: `cpu_percent` keeps its interval in them."""
        with contextlib.suppress(psutil.Error):
            alive = {process.pid: process for process in (self._first, *self._first.children(recursive=True))}
            self._known = {pid: self._known.get(pid, process) for pid, process in alive.items()}
        return list(self._known.values())

    def close(self) -> None:
        self._gpus.close()


class _GPUs:
    """The GPUs visible to CUDA, in its order, if the machine has NVML."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._note = ""
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = visible_gpus(pynvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
            if not self._handles:
                here = pynvml.nvmlDeviceGetCount()
                self._note = "CUDA_VISIBLE_DEVICES hides every GPU" if here else "no NVIDIA GPU on this machine"
        except ImportError:
            self._note = "NVML is not installed (nvidia-ml-py)"
        except Exception as error:  # pynvml creates its error classes at run time; all mean that no GPU can be read
            self._note = f"no NVIDIA GPU: {error}"

    def sample(self) -> tuple[list[GPU], str]:
        return [gpu_of(self._nvml, handle) for handle in self._handles], self._note

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()


def visible_gpus(nvml: Any, visible: str | None) -> list[Any]:
    """Handles of the GPUs visible to CUDA, in its order.

    Args:
        nvml: the module pynvml, initialised.
        visible: value of `CUDA_VISIBLE_DEVICES`: indices, UUIDs or unique prefixes of them, separated by commas. None:
            all.
    """
    every = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if visible is None:
        return every
    found = []
    for name in (part.strip() for part in visible.split(",")):
        if name.isdecimal():
            named = every[int(name) : int(name) + 1]
        elif name.startswith("MIG-"):
            with contextlib.suppress(nvml.NVMLError):
                found.append(nvml.nvmlDeviceGetHandleByUUID(name))
            continue
        else:
            named = [handle for handle in every if name and nvml.nvmlDeviceGetUUID(handle).startswith(name)]
        if len(named) != 1:
            break  # like CUDA, ignore everything after an unknown name
        found += named
    return found


def gpu_of(nvml: Any, handle: Any) -> GPU:
    """The current values of a GPU; None for values that it does not support."""

    def ask(query: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return query(handle, *arguments)
        except nvml.NVMLError:
            return None

    name, use = ask(nvml.nvmlDeviceGetName), ask(nvml.nvmlDeviceGetUtilizationRates)
    memory, temperature = ask(nvml.nvmlDeviceGetMemoryInfo), ask(nvml.nvmlDeviceGetTemperature, _CORE_SENSOR)
    return GPU(
        name=name or "NVIDIA GPU",
        utilisation_percent=None if use is None else float(use.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_c=None if temperature is None else float(temperature),
    )
