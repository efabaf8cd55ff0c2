"""The processor: its name, the instructions that decide how networks are computed, and the time that programs took."""

from __future__ import annotations

import contextlib
import functools
import platform
from pathlib import Path

import psutil


def processor_name() -> str:
    """The processor's model, or its architecture where Linux does not report one."""
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def has_native_bf16() -> bool:
    """Whether the CPU has bfloat16 instructions; without them bfloat16 is emulated."""
    return not _flags().isdisjoint(("avx512_bf16", "amx_bf16"))


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time so far of a process and of those that it has started, as far as they have not ended."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                total += times.user + times.system
    return total


@functools.cache
def _flags() -> frozenset[str]:
    """The CPU's feature flags; empty where Linux does not report them."""
    return next((frozenset(line.split()) for line in _cpuinfo() if line.startswith("flags")), frozenset())


@functools.cache
def _cpuinfo() -> list[str]:
    with contextlib.suppress(OSError):
        return Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines()
    return []
