"""What batched games in tensors have in common: the step they give, and pictures of them for people.

A step never waits for the device: no tensor's value decides what Python does, and every shape is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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
    rewards: Tensor  # float32 [lanes], as they are learned
    terminated: Tensor  # bool [lanes]: nothing follows
    truncated: Tensor  # bool [lanes], cut by the time limit: the value of what would follow counts
    masks: Tensor  # bool [lanes, actions], legal actions in `frames`
    final_masks: Tensor  # bool [lanes, actions], legal actions in `final_frames`
    returns: Tensor  # float32 [lanes], sum of the episode's rewards so far, before any shaping
    lengths: Tensor  # int64 [lanes], environment steps of the episode so far
    score: Tensor  # int64 [lanes], fruits or lines of the episode so far


class TensorLanes:
    """Lanes of one game in tensors on a device: their random numbers, and what is saved of them.

    kept: names of the attributes, less the first underscore, that the next steps depend on; overwritten in place.
    """

    kept: ClassVar[tuple[str, ...]]
    _masks: Tensor

    def __init__(self, lanes: int, device: torch.device | str, seed: int) -> None:
        check_range("lanes", lanes, 1, 2**20)
        self.lanes, self.device = lanes, torch.device(device)
        self._random = torch.Generator(self.device).manual_seed(seed)

    @property
    def masks(self) -> Tensor:
        """Legal actions in the latest observations, bool [lanes, actions]."""
        return self._masks.clone()

    def reseed(self, seed: int) -> None:
        """Let everything random from now on be that of the seed."""
        self._random.manual_seed(seed)

    def state(self) -> dict[str, Tensor]:
        """Everything that the next steps depend on, copied."""
        return {name: getattr(self, f"_{name}").clone() for name in self.kept} | {"random": self._random.get_state()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from the `state()` of as many lanes with the same options. On another kind of device than that one's,
        which has other random numbers, these go on as they were."""
        for name in self.kept:
            getattr(self, f"_{name}").copy_(state[name])
        random = state["random"].cpu()
        if random.shape == self._random.get_state().shape:
            self._random.set_state(random)

    def _draw(self, numbers: int) -> Tensor:
        """Random float32 [lanes, numbers] from 0 to below 1."""
        return torch.rand((self.lanes, numbers), generator=self._random, device=self.device)

    def _constant(self, values: Sequence[object], dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)


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
