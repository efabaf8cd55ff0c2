"""The precision in which networks are computed, and the memory layout of weights and observations that suits it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.console.compiler.kernels import kernel, prefetch
from engine.runtime.devices import Precision


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


def as_input(network: nn.Module, obs: Tensor, dtype: torch.dtype) -> Tensor:
    """Observations for a network. If it says with `takes_floats` that floats from 0 to 255 are the same to it as uint8,
    uint8 becomes `dtype`, except on CUDA, where the network converts it. All others stay as they are.

    Stacks of four screens [batch, 4, height, width] get the layout of `for_convolutions` at once, in a quarter of the
    time that PyTorch takes.
    """
    if obs.dtype != torch.uint8 or obs.device.type == "cuda" or not getattr(network, "takes_floats", False):
        return obs
    if obs.dim() == 4 and obs.shape[1] == _STACK and _channels_last_pays(obs.device, dtype):
        obs = _channels_last(obs)
    return obs.to(dtype)


def for_convolutions(images: Tensor) -> Tensor:
    """Images [batch, channels, height, width] of floats, on CPUs with the channels last in memory where that pays."""
    if _channels_last_pays(images.device, images.dtype):
        return images.contiguous(memory_format=torch.channels_last)
    return images


def _channels_last_pays(device: torch.device, dtype: torch.dtype) -> bool:
    """In every pass but one in float32 without gradients.

    Measured on an AMD EPYC without AMX, with 256 stacks of four screens: a pass without gradients takes 0.7 to 0.8
    times as long in bfloat16, and 0.9 to 1.2 times in float32; one with gradients 0.92 to 0.96 and 0.66 to 0.73 times.
    """
    return device.type == "cpu" and (dtype != torch.float32 or torch.is_grad_enabled())


def _channels_last(screens: Tensor) -> Tensor:
    """uint8 [batch, 4, height, width] as bfloat16, which holds them exactly, with the channels last in memory."""
    batch, _, height, width = screens.shape
    found = torch.empty((batch, height, width, _STACK), dtype=torch.bfloat16)
    _interleave(screens.flatten(2).contiguous().numpy(), found.view(batch, -1).view(torch.int64).numpy())
    return found.permute(0, 3, 1, 2)


_STACK = 4
_TILE = 1024  # pixels whose numbers stay in the first cache
_LINE = 64  # bytes
_UPPER = -1 << 16


@kernel("uint8[3], int64[2]")
def _interleave(screens: NDArray[np.uint8], words: NDArray[np.int64]) -> None:
    """Write to `words` [batch, pixels] the four numbers bfloat16 of each pixel of `screens` [batch, 4, pixels], the
    first lowest. A bfloat16 is the upper half of a float32."""
    numbers = np.empty(_STACK * _TILE, np.float32)
    bits, given = numbers.view(np.int32), screens.reshape(-1)
    for sample in range(len(screens)):
        for first in range(0, words.shape[1], _TILE):
            pixels = min(_TILE, words.shape[1] - first)
            for screen in range(_STACK):
                next_sample = ((sample + 1) * _STACK + screen) * words.shape[1] + first
                for ahead in range(0, pixels, _LINE):
                    prefetch(given, next_sample + ahead)
                for pixel in range(pixels):
                    numbers[screen * _TILE + pixel] = screens[sample, screen, first + pixel]
            for pixel in range(pixels):
                words[sample, first + pixel] = (
                    bits[pixel] >> 16
                    | bits[_TILE + pixel] & _UPPER
                    | (bits[2 * _TILE + pixel] & _UPPER) << 16
                    | (bits[3 * _TILE + pixel] & _UPPER) << 32
                )


def in_layout_of(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient in the memory layout of its parameter, which fused optimisers need."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


_LINE_NUMBERS = _LINE // 4  # of float32


@torch.no_grad()
def flattened(parameters: Sequence[Tensor]) -> Tensor:
    """Move the parameters of a network into one tensor [numbers], and return it: an operation on it costs less than one
    on each of them."""
    lines = sum(-(-parameter.numel() // _LINE_NUMBERS) for parameter in parameters)
    flat = parameters[0].new_zeros(lines * _LINE_NUMBERS)
    for parameter, part in zip(parameters, parts_of(flat, parameters), strict=True):
        parameter.data = part.copy_(parameter)
    return flat


def parts_of(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Views of a tensor like `flattened` gives, in the shapes and layouts of the parameters. Each begins at a cache
    line, as tensors of their own do: sums of products may depend on that."""
    parts, begin = list[Tensor](), 0
    for parameter in parameters:
        parts.append(flat.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride(), begin))
        begin += -(-parameter.numel() // _LINE_NUMBERS) * _LINE_NUMBERS
    return parts
