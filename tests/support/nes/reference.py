"""One console of the installed nes-py, the oracle of these tests."""

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.console.cartridge import installed_mario
from engine.console.nes_py import power_on

needs_nes_py_8 = pytest.mark.skipif(
    sys.version_info >= (3, 13),
    reason="our console follows 8.2.1; 9.0 pushes the status byte in another order, takes instruction 0xDF otherwise, "
    "and reads and draws other things when a program touches the picture's registers at any time",
)


class NesPy:
    """ram: uint8 [2048], live."""

    def __init__(self, rom: Path | None = None) -> None:
        self._core = power_on(rom or installed_mario())
        self.ram = self._core.ram_buffer()
        self._screen = self._core.screen_buffer()

    def step(self, buttons: int) -> None:
        """One frame."""
        self._core.frame_advance(buttons)

    def screen(self) -> NDArray[np.uint8]:
        """RGB uint8 [240, 256, 3], a copy."""
        return self._screen.copy()

    def close(self) -> None:
        self._core.close()
