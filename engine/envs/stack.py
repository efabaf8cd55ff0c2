"""Observations of several pictures, newest last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STACK = 4
"""Pictures in an observation (Mnih et al. 2015)."""


class FrameStack:
    """The last pictures of every lane; `obs` is uint8 [lanes, stack, height, width]."""

    def __init__(self, frames: NDArray[np.uint8]) -> None:
        self.obs = np.repeat(frames[:, None], STACK, axis=1)

    def push(self, frames: NDArray[np.uint8], ended: NDArray[np.bool_]) -> None:
        """Take new pictures [lanes, height, width]; where an episode `ended`, the picture is a new one's first."""
        self.obs = np.concatenate((self.obs[:, 1:], frames[:, None]), axis=1)
        self.obs[ended] = frames[ended][:, None]
