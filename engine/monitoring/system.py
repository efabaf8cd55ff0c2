"""Processor, memory and NVIDIA GPUs, sampled about once a second by the host."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil

from engine.messages import GPU, System


class SystemSampler:
    """Samples the machine and the processes of one run (the host and everything below it)."""

    def __init__(self) -> None:
        self._host = psutil.Process()
        self._known: dict[int, psutil.Process] = {}
        self._gpus = _GPUs()
        psutil.cpu_percent(percpu=True)  # the first call only starts the interval

    def sample(self) -> System:
        """CPU shares are over the time since the last call."""
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
        """The same `Process` objects each time: `cpu_percent` keeps its interval in them."""
        with contextlib.suppress(psutil.Error):
            alive = {process.pid: process for process in (self._host, *self._host.children(recursive=True))}
            self._known = {pid: self._known.get(pid, process) for pid, process in alive.items()}
        return list(self._known.values())

    def close(self) -> None:
        self._gpus.close()


class _GPUs:
    """NVML, if this machine has it."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._note = ""
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            if pynvml.nvmlDeviceGetCount() == 0:
                self._note = "no NVIDIA GPU on this machine"
        except ImportError:
            self._note = "NVML is not installed (nvidia-ml-py)"
        except Exception as error:  # pynvml makes its error classes at run time; each only means "no answer"
            self._note = "no NVIDIA GPU here: " + str(error)

    def sample(self) -> tuple[list[GPU], str]:
        if self._nvml is None:
            return [], self._note
        nvml = self._nvml
        gpus = []
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                temperature = None
                with contextlib.suppress(nvml.NVMLError):  # some virtual GPUs don't tell
                    temperature = float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
                gpus.append(
                    GPU(
                        name=nvml.nvmlDeviceGetName(handle),
                        utilisation_percent=float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                        memory_used_bytes=int(memory.used),
                        memory_total_bytes=int(memory.total),
                        temperature_c=temperature,
                    )
                )
        except nvml.NVMLError as error:
            return gpus, f"NVML: {error}"
        return gpus, self._note

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
