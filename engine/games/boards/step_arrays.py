"""The results of a compiled step, as arrays that its kernel writes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class StepArrays(NamedTuple):
    """The fields of `engine.games.boards.tensor_lanes.TensorStep`, in its order. The cells of frames have one axis."""

    frames: NDArray[np.uint8]  # [lanes, planes, cells]
    final_frames: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    final_masks: NDArray[np.bool_]
    returns: NDArray[np.float32]
    lengths: NDArray[np.int64]
    score: NDArray[np.int64]
    from_start: NDArray[np.bool_]


def new_arrays(lanes: int, actions: int, frame_shape: tuple[int, int, int]) -> StepArrays:
    """Arrays for one step, of which the kernel has to write every element."""
    planes, height, width = frame_shape
    return StepArrays(
        frames=np.empty((lanes, planes, height * width), np.uint8),
        final_frames=np.empty((lanes, planes, height * width), np.uint8),
        rewards=np.empty(lanes, np.float32),
        terminated=np.empty(lanes, np.bool_),
        truncated=np.empty(lanes, np.bool_),
        masks=np.empty((lanes, actions), np.bool_),
        final_masks=np.empty((lanes, actions), np.bool_),
        returns=np.empty(lanes, np.float32),
        lengths=np.empty(lanes, np.int64),
        score=np.empty(lanes, np.int64),
        from_start=np.empty(lanes, np.bool_),
    )
