"""The batched console: N lanes, one game each, whatever emulates them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from engine.envs.emulators.view import View

SCREEN_SHAPE = (240, 256, 3)
RAM_BYTES = 2048


class Emulator(Protocol):
    """N consoles with the same cartridge. Deterministic: the same inputs from power-on give the same bytes."""

    lanes: int
    ram: NDArray[np.uint8]
    """[lanes, 2048], as of the last frame; written through `poke` only."""

    def step(self, buttons: NDArray[np.uint8], frames: int = 1, active: NDArray[np.bool_] | None = None) -> None:
        """Run frames with held buttons (uint8 [lanes], bits above) in the active lanes (bool [lanes], default all)."""

    def poke(self, lane: int, address: int, value: int) -> None:
        """Write a byte of work RAM."""

    def screen(self, lane: int) -> NDArray[np.uint8]:
        """The last frame in RGB, uint8 [240, 256, 3], a copy."""

    def picture(self, view: View, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        """Write the active lanes' last frames as `view` has them to `out`, uint8 [lanes, height, width]."""

    def save(self, lane: int) -> bytes:
        """A lane's state, for `load` into any lane of any batch of the same console."""

    def load(self, lane: int, state: bytes) -> None:
        """Continue from a saved state. What the screen shows before the next `step` is the console's own matter."""

    def close(self) -> None:
        """Free the consoles; the object can't be used afterwards."""
