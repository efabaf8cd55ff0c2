"""Stacks the last frames of each lane into observations, newest last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.envs.lanes import Frames


class FrameStack:
    """The last frames of every lane; `obs` is [lanes, stack, *frame_shape], of the frames' dtype."""

    def __init__(self, frames: Frames, stack: int) -> None:
        self._stack = stack
        self.obs: Frames = frames[:, None] if stack == 1 else np.repeat(frames[:, None], stack, axis=1)

    def push(self, frames: Frames, ended: NDArray[np.bool_]) -> None:
        """Add frames [lanes, *frame_shape]. Where an episode `ended` (bool [lanes]), the frame is the first of the next
        one and fills the whole stack."""
        if self._stack == 1:
            self.obs = frames[:, None]
            return
        self.obs = np.concatenate((self.obs[:, 1:], frames[:, None]), axis=1)
        self.obs[ended] = frames[ended][:, None]
