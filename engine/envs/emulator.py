"""The batched console: N lanes, one game each, whatever emulates them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

SCREEN_SHAPE = (240, 256, 3)
GRAY_SHAPE = (50, 60)
"""The agent's picture: rows 32 to 231 (no status bar) and columns 8 to 247, 4x4 area means."""

RAM_BYTES = 2048

# nes-py's bit order of the joypad
RIGHT, LEFT, DOWN, UP, START, SELECT, B, A = 0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01


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

    def gray(self, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        """Write the agent's picture of the active lanes into `out`, uint8 [lanes, 50, 60]."""

    def save(self, lane: int) -> bytes:
        """A lane's state, for `load` into any lane of any batch of the same console."""

    def load(self, lane: int, state: bytes) -> None:
        """Continue from a saved state. The screen is that of the last frame run until the next `step`."""

    def close(self) -> None:
        """Free the consoles; the object can't be used afterwards."""
