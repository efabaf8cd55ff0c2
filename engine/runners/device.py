"""The device on which a run learns."""

from __future__ import annotations

import torch

from engine.errors import UserError


def resolve_device(name: str) -> torch.device:
    """The device by its name; `auto` is CUDA, MPS or the CPU, in this order of preference.

    Raises `UserError` if the machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device: {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("--device: mps: this machine has no MPS device")
    return device
