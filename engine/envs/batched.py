"""What batched games in tensors have in common: the step they give, and pictures of them for people.

A step never waits for the device: no tensor's value decides what Python does, and every shape is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import UserError

CELL = 12
"""Side of a cell in pictures for people, pixels."""


@dataclass(frozen=True)
class TensorStep:
    """What one environment step of all lanes gave; the tensors are the caller's to keep.

    A lane that ended shows its next episode's first observation in `frames` and `masks`, and the ended episode's last
    one in `final_frames` and `final_masks`; elsewhere both are the same. Everything else is of the ended episode.
    """

    frames: Tensor  # uint8 [lanes, planes, height, width]
    final_frames: Tensor  # uint8 [lanes, planes, height, width]
    rewards: Tensor  # float32 [lanes]
    terminated: Tensor  # bool [lanes]: nothing follows
    truncated: Tensor  # bool [lanes], cut by the time limit: the value of what would follow counts
    masks: Tensor  # bool [lanes, actions], legal actions in `frames`
    final_masks: Tensor  # bool [lanes, actions], legal actions in `final_frames`
    returns: Tensor  # float32 [lanes], sum of the episode's rewards so far
    lengths: Tensor  # int64 [lanes], environment steps of the episode so far
    score: Tensor  # int64 [lanes], fruits or lines of the episode so far


def make_generator(device: torch.device, seed: int) -> torch.Generator:
    """Random numbers on a device."""
    return torch.Generator(device).manual_seed(seed)


def draw_cells(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Squares with a dark rim for cells of uint8 [height, width, 3]: uint8 [height * CELL, width * CELL, 3]."""
    picture = colours.repeat(CELL, axis=0).repeat(CELL, axis=1)
    rows, columns = np.indices(picture.shape[:2]) % CELL
    picture[(rows == 0) | (columns == 0)] //= 2
    return picture


def check_range(option: str, value: int, least: int, most: int) -> None:
    """Raises `UserError` if an option is out of its range."""
    if not least <= value <= most:
        raise UserError(f"{option}: {value} is not accepted; accepted: {least} to {most}")
