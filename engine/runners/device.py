"""The device on which a run, or one of its ranks, learns."""

from __future__ import annotations

import dataclasses

import torch

from engine.config.run_config import RunConfig
from engine.config.torchrun import torchrun_rank
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


def config_of_rank(config: RunConfig, index: int) -> RunConfig:
    """The configuration with the device of one rank. Raises `UserError` if there are too few devices."""
    launched = torchrun_rank()
    here = (index, config.num_processes) if launched is None else (launched.local_index, launched.local_ranks)
    return dataclasses.replace(config, device=device_of_rank(config.device, resolve_device(config.device), *here))


def device_of_rank(asked: str, resolved: torch.device, index: int, ranks: int) -> str:
    """The device of one rank: its own GPU, counted from the requested one, or the CPU.

    Args:
        asked: `--device`.
        resolved: what `--device` means on this machine.

    Raises `UserError` if there are fewer GPUs than ranks, or if gradients can't be averaged on the device.
    """
    if resolved.type == "mps":
        if asked == "auto":
            return "cpu"
        raise UserError("--device: mps: PyTorch can't average gradients there; --runner ddp accepts: auto, cpu, cuda")
    if resolved.type != "cuda":
        return asked
    first, there = resolved.index or 0, torch.cuda.device_count()
    if first + ranks > there:
        most = there - first
        raise UserError(
            f"--num-processes: {ranks} ranks need a GPU each, and this machine has {most} from cuda:{first} on; "
            f"accepted: 1 to {most}, or --device cpu"
        )
    return f"cuda:{first + index}"
