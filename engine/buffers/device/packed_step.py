"""One environment step in one block of device memory.

A step from the host is packed into pinned memory and reaches the device in a single copy, for which the host does not
wait. The tensors lie at the same addresses for every step, so that a CUDA graph can read them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.envs.lanes import PlayedStep

_ITEM = 8
"""Bytes to which every field is aligned."""


class PackedStep:
    """The fields of a `PlayedStep` as tensors on `device`; later steps overwrite them.

    Args:
        mask_actions: number of actions in masks; 0 for no masks.
    """

    frames: Tensor
    final_frames: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    masks: Tensor
    final_masks: Tensor

    def __init__(
        self,
        lanes: int,
        frame_shape: tuple[int, ...],
        frame_dtype: torch.dtype,
        mask_actions: int,
        device: torch.device,
    ) -> None:
        self._fields: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "actions": ((lanes,), torch.int64),
            "rewards": ((lanes,), torch.float32),
            "terminated": ((lanes,), torch.bool),
            "truncated": ((lanes,), torch.bool),
            "masks": ((lanes, mask_actions), torch.bool),
            "final_masks": ((lanes, mask_actions), torch.bool),
            "frames": ((lanes, *frame_shape), frame_dtype),  # last, because they may be on the device already
            "final_frames": ((lanes, *frame_shape), frame_dtype),
        }
        if not mask_actions:
            del self._fields["masks"], self._fields["final_masks"]
        size = sum(_padded(shape, dtype) for shape, dtype in self._fields.values())
        self._block = torch.zeros(size, dtype=torch.uint8, device=device)
        for name, tensor in self._views(self._block).items():
            setattr(self, name, tensor)

    def load(self, step: PlayedStep) -> None:
        """Copy a step, whose arrays may lie on the host or the device."""
        arrays = {name: getattr(step, name) for name in self._fields}
        there = {name: array for name, array in arrays.items() if isinstance(array, Tensor)}
        here = {name: array for name, array in arrays.items() if name not in there}
        if here:
            self._load_from_host(here)
        for name, tensor in there.items():
            getattr(self, name).copy_(tensor, non_blocking=True)

    def _load_from_host(self, arrays: dict[str, Any]) -> None:
        # PyTorch reuses pinned memory, but not before the copies from it are done.
        block = torch.empty(len(self._block), dtype=torch.uint8, pin_memory=self._block.device.type == "cuda")
        end = 0
        for name, tensor in self._views(block).items():
            if name in arrays:
                given = True if arrays[name] is None else arrays[name]  # without masks, all actions are legal
                np.copyto(tensor.numpy(), given, casting="same_kind")
                end = int(tensor.storage_offset()) * tensor.itemsize + tensor.nbytes
        self._block[:end].copy_(block[:end], non_blocking=True)  # fields in between that are on the device come later

    def _views(self, block: Tensor) -> dict[str, Tensor]:
        views, start = {}, 0
        for name, (shape, dtype) in self._fields.items():
            size = math.prod(shape) * dtype.itemsize
            views[name] = block[start : start + size].view(dtype).view(shape)
            start += _padded(shape, dtype)
        return views


def _padded(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes of a field, with those that align the next one."""
    return -(-math.prod(shape) * dtype.itemsize // _ITEM) * _ITEM
