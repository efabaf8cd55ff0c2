"""Instructions of the CPU that decide how networks are computed."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path


def has_native_bf16() -> bool:
    """Whether the CPU has bfloat16 instructions; without them bfloat16 is emulated."""
    return not _flags().isdisjoint(("avx512_bf16", "amx_bf16"))


def has_amx() -> bool:
    """Whether the CPU multiplies bfloat16 matrices in tiles (Intel AMX)."""
    return "amx_bf16" in _flags()


@functools.cache
def _flags() -> frozenset[str]:
    """The CPU's feature flags; empty where Linux does not report them."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines():
            if line.startswith("flags"):
                return frozenset(line.split())
    return frozenset()
