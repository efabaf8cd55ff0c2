"""Observations of several pictures, newest last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STACK = 4
"""Pictures in an observation (Mnih et al. 2015)."""


class FrameStack:
    """The last frames of every lane; `obs` is uint8 [lanes, stack, *frame_shape]."""

    def __init__(self, frames: NDArray[np.uint8], stack: int = STACK) -> None:
        self.obs = np.repeat(frames[:, None], stack, axis=1)

    def push(self, frames: NDArray[np.uint8], ended: NDArray[np.bool_]) -> None:
        """Take new frames [lanes, *frame_shape]; where an episode `ended`, the frame is a new one's first."""
        self.obs = np.concatenate((self.obs[:, 1:], frames[:, None]), axis=1)
        self.obs[ended] = frames[ended][:, None]
