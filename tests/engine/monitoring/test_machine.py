"""The machine sampler: GPUs that do not report every value, and the GPUs visible to CUDA."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.monitoring.machine import gpu_of, visible_gpus


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
