"""The precision in which networks are computed, and the memory layout of weights and observations that suits it."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from engine.runtime.devices import Precision
from engine.runtime.processor import has_amx


def autocast(device_type: str, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """The context for a forward pass in this precision.

    autocast's weight cache is off: before PyTorch 2.10 it kept weights that were cast in the pass without gradients,
    and the following pass got no gradients through them (pytorch/pytorch#112583). Each pass uses a weight once, so the
    cache would save nothing.
    """
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device_type, dtype=getattr(torch, precision), cache_enabled=False)


def placed(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on its device. The tensor cores of CUDA convolve with the channels last."""
    network = network.to(device)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True  # a resumed run shall equal one that was not interrupted
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def as_input(obs: Tensor, dtype: torch.dtype, *, trains: bool) -> Tensor:
    """Observations for a network: uint8 ones as `dtype`, in the memory layout that makes a pass fast; others as they
    are, since `dtype` may not hold them exactly. `trains`: also a backward pass.

    On CPUs, screens [batch, stack, height, width] get the channels last where that pays: in float32 for training, where
    the backward pass of the first convolution then takes a third of the time; in bfloat16 for every pass, but only with
    AMX, where an update takes 0.85 times as long. On CUDA the networks convert them.
    """
    if obs.is_floating_point() or obs.device.type == "cuda":
        return obs
    obs = obs.to(dtype)
    if obs.device.type != "cpu" or obs.dim() != 4 or not (trains if dtype == torch.float32 else has_amx()):
        return obs
    return obs.contiguous(memory_format=torch.channels_last)


def in_layout_of(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient in the memory layout of its parameter, which fused optimisers need."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
