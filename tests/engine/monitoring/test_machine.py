"""The machine sampler: memory of runs and containers, GPUs that do not report every value, and the GPUs visible to
CUDA."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from ctypes.util import find_library
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from engine.monitoring.machine import SystemSampler, gpu_of, visible_gpus
from tests.support.memory import container
from tests.support.program import children_of, wait_until


class Nvml:
    """A fake NVML of a machine with four GPUs."""

    class NVMLError(Exception):
        pass

    def __init__(self, *unsupported: str) -> None:
        self._unsupported = unsupported

    def nvmlDeviceGetCount(self) -> int:
        return 4

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "MIG-7":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{'abca'[handle]}{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self._answer("name", "H200")

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return self._answer("utilisation_percent", SimpleNamespace(gpu=61))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return self._answer("memory", SimpleNamespace(used=3, total=8))

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return self._answer("temperature_c", 64)

    def _answer(self, what: str, answer: Any) -> Any:
        if what in self._unsupported:
            raise self.NVMLError("Not Supported")
        return answer


@pytest.mark.parametrize("what", ["utilisation_percent", "memory", "temperature_c", "name"])
def test_a_value_that_a_gpu_does_not_report_hides_no_other_value(what: str) -> None:
    told, all_told = gpu_of(Nvml(what), 0), gpu_of(Nvml(), 0)
    for field in all_told.__struct_fields__:
        if not field.startswith(what):
            assert getattr(told, field) == getattr(all_told, field)
        else:
            assert getattr(told, field) == ("NVIDIA GPU" if what == "name" else None)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("2", [2]),
        ("3, 1", [3, 1]),
        ("", []),
        ("-1", []),
        ("1,9,2", [1]),
        ("GPU-b1,0", [1, 0]),
        ("GPU-c", [2]),
        ("GPU-a", []),  # two begin like this
        ("MIG-7", ["MIG-7"]),
    ],
)
def test_gpus_are_those_that_cuda_sees(visible: str | None, expected: list[Any]) -> None:
    assert visible_gpus(Nvml(), visible) == expected


_SHARING = """
import mmap, os, signal, sys
shared = mmap.mmap(-1, int(sys.argv[1]))
def touch():
    for page in range(0, len(shared), mmap.PAGESIZE):
        shared[page] = 1
touch()
for _ in range(3):
    if os.fork() == 0:
        touch()
        print("ready", flush=True)
        signal.pause()
signal.pause()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not tell what is shared")
@pytest.mark.process
def test_memory_that_processes_share_counts_once() -> None:
    size = 256 * 2**20
    command = [sys.executable, "-c", _SHARING, str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, closing(SystemSampler(process.pid)) as sampler:
        try:
            assert process.stdout is not None
            for _ in range(3):
                process.stdout.readline()
            held = wait_until(lambda: held if (held := sampler.sample()).run_memory_bytes >= size else None, "shares")
            first = psutil.Process(process.pid)
            processes = [first, *first.children()]
            assert held.processes == len(processes) == 4
            assert sum(each.memory_info().rss for each in processes) > 4 * size
            assert held.run_memory_bytes < 1.5 * size
        finally:
            for each in children_of(psutil.Process(process.pid)):
                each.kill()
            process.kill()


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has NVIDIA's driver")
def test_a_machine_without_a_driver_says_so() -> None:
    with closing(SystemSampler()) as sampler:
        assert sampler.sample().gpu_note == "no NVIDIA driver on this machine"


def test_the_memory_of_a_container_is_all_that_there_is(tmp_path: Path) -> None:
    full = container(tmp_path, limit=200 * 2**20, used=150 * 2**20, cached=30 * 2**20)
    with closing(SystemSampler(cgroup=full)) as sampler:
        system = sampler.sample()
    assert (system.memory_total_bytes, system.memory_used_bytes) == (200 * 2**20, 120 * 2**20)
