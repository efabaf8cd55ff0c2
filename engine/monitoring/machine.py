"""Samples CPU, memory and NVIDIA GPUs: the host about once a second, other machines of a run in a process there."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from engine.monitoring.memory_budget import memory
from engine.protocol.messages import GPU, Machine, System
from engine.runtime.processes import killed_with_parent
from engine.runtime.threads import CGROUP

_REST_S = 1.0
_REST_PER_WORK = 100.0
"""Measuring shared memory takes at most a hundredth of a core."""
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU


class SystemSampler:
    """Samples the machine and the processes of one run: process `pid`, by default this one, and all its descendants."""

    def __init__(self, pid: int | None = None, cgroup: Path = CGROUP) -> None:
        self._first = psutil.Process(pid)
        self._known: dict[int, psutil.Process] = {}
        self._gpus, self._shares, self._cgroup = _GPUs(), _Shares(), cgroup
        psutil.cpu_percent(percpu=True)  # the first call only starts the interval

    def sample(self) -> System:
        """Take a sample. CPU usage is averaged over the time since the last call."""
        cpu = 0.0
        held = 0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                cpu += process.cpu_percent()
                held += own_bytes(process) + self._shares.of(process.pid)
        self._shares.keep(self._known)
        available, total = memory(self._cgroup)
        gpus, note = self._gpus.sample()
        return System(
            cpu_percent=psutil.cpu_percent(percpu=True),
            memory_used_bytes=total - available,
            memory_total_bytes=total,
            run_cpu_percent=cpu,
            run_memory_bytes=held,
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
        self._shares.close()


def own_bytes(process: psutil.Process) -> int:
    """Resident memory that a process shares with no other. On systems that don't tell, all that is resident."""
    info = process.memory_info()
    return int(info.rss - getattr(info, "shared", 0))


class _Shares:
    """The part of shared memory that counts for each process: what several map is divided among them, as in Linux's
    proportional set size. 0 where the system does not tell.

    The kernel walks through all pages for it (75 ms per GB on two busy cores), so a thread measures, and then rests.
    """

    def __init__(self) -> None:
        self._measured: dict[int, int] = {}
        self._wanted: tuple[psutil.Process, ...] = ()
        self._closed = threading.Event()
        threading.Thread(target=self._work, daemon=True, name="memory").start()

    def of(self, pid: int) -> int:
        """Bytes; 0 until it is measured."""
        return self._measured.get(pid, 0)

    def keep(self, processes: Mapping[int, psutil.Process]) -> None:
        """Measure these processes from now on, and no others."""
        self._wanted = tuple(processes.values())
        for pid in self._measured.keys() - processes:
            self._measured.pop(pid, None)

    def close(self) -> None:
        self._closed.set()

    def _work(self) -> None:
        rest_s = _REST_S
        while not self._closed.wait(rest_s):
            began = time.monotonic()
            for process in self._wanted:
                with contextlib.suppress(OSError, ValueError, psutil.Error):
                    self._measured[process.pid] = max(0, _proportional_bytes(process.pid) - own_bytes(process))
            rest_s = max(_REST_S, _REST_PER_WORK * (time.monotonic() - began))


def _proportional_bytes(pid: int) -> int:
    """The proportional set size. Raises `OSError` if the process is gone, or if the system has no such number."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("Pss:")))


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
        except pynvml.NVMLError_LibraryNotFound:
            self._note = "no NVIDIA driver on this machine"
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


class NodeSampler:
    """Samples the machine that it is created on."""

    def __init__(self) -> None:
        killed_with_parent()
        self._sampler = SystemSampler()

    def sample(self) -> bytes:
        """A `Machine` as MessagePack. Usage is averaged over the time since the last call."""
        system = self._sampler.sample()
        return msgspec.msgpack.encode(
            Machine(
                name=socket.gethostname(),
                cores=len(system.cpu_percent),
                cpu_percent=sum(system.cpu_percent) / len(system.cpu_percent),
                memory_used_bytes=system.memory_used_bytes,
                memory_total_bytes=system.memory_total_bytes,
                gpus=system.gpus,
            )
        )
