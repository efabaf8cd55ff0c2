"""The protocol of batched consoles: N lanes with one game each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from engine.console.view import View

SCREEN_SHAPE = (240, 256, 3)
FRAMES_PER_S = 60.0988  # NTSC
RAM_BYTES = 2048


class Emulator(Protocol):
    """N consoles with the same cartridge. Deterministic: the same inputs from power-on give the same bytes."""

    lanes: int
    ram: NDArray[np.uint8]
    """Work RAM after the last frame [lanes, 2048]; write to it only with `poke`."""

    def step(self, buttons: NDArray[np.uint8], frames: int = 1, active: NDArray[np.bool_] | None = None) -> None:
        """Run `frames` frames in the active lanes (bool [lanes], default all).

        buttons: joypad bytes that are held, uint8 [lanes]; right 0x80, left 0x40, down 0x20, up 0x10, start 0x08,
            select 0x04, B 0x02, A 0x01.
        """

    def poke(self, lane: int, address: int, value: int) -> None:
        """Write a byte of work RAM."""

    def screen(self, lane: int) -> NDArray[np.uint8]:
        """A copy of the last frame in RGB, uint8 [240, 256, 3]."""

    def picture(self, view: View, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        """Write the last frames of the active lanes, reduced by `view`, to `out`, uint8 [lanes, height, width]."""

    def save(self, lane: int) -> bytes:
        """The state of a lane, which can be loaded into any lane of any batch of the same kind of console."""

    def load(self, lane: int, state: bytes) -> None:
        """Load a saved state. The screen is undefined until the next `step`."""

    def close(self) -> None:
        """Release the consoles; the object can't be used afterwards."""


_E = TypeVar("_E", bound=Emulator)


def with_states(make: Callable[..., _E], arguments: Sequence[Any], states: Sequence[bytes]) -> _E:
    """An emulator whose lanes have these saved states: a copy of another one, for `copy` and `pickle`."""
    emulator = make(*arguments)
    for lane, state in enumerate(states):
        emulator.load(lane, state)
    return emulator
