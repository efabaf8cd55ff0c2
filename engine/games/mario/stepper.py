"""What steps Mario's lanes under the rules: compiled (`compiled_stepper`), or one emulator call at a time
(`reference_stepper`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class StepOutcome:
    """Arrays that a stepper fills in a step, with a row for each lane."""

    frames: NDArray[np.uint8]
    final_frames: NDArray[np.uint8]
    ended: NDArray[np.int64]  # [lanes, 2]: terminated, truncated
    held: NDArray[np.uint8]  # [lanes], joypad bytes of the step: with sticky actions maybe those of the previous step
    episode: NDArray[np.int64]  # [lanes, 3]: return, length, furthest x
    info: NDArray[np.int64]  # [lanes, 10]


class Stepper(Protocol):
    """Steps all lanes of a console according to the rules."""

    start_choices: NDArray[np.int64]
    """Indices of start states [lanes, n]; a lane's next episode draws one of its row, all with the same probability."""

    def reset(self, frames: NDArray[np.uint8], which: NDArray[np.bool_]) -> None:
        """Begin an episode in the lanes where `which` [lanes] is set, and write their first frames to `frames`."""

    def step(self, buttons: NDArray[np.uint8], outcome: StepOutcome) -> None:
        """Hold the joypad bytes `buttons` [lanes] for one environment step and fill `outcome`."""

    def set_start(self, start: int, state: bytes) -> None:
        """Add the start state number `start`, or replace it. Raises `ValueError` if the console can't load it."""
