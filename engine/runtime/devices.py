"""PyTorch's devices: their precision, how they run out of memory, and waiting for them."""

from __future__ import annotations

from typing import Literal

import torch

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
    """Whether an error means that the device or the host ran out of memory."""
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
