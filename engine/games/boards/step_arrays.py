"""The results of a compiled step, as arrays that its kernel writes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.compiler.kernels import Array1, Array2, Array3


class StepArrays(NamedTuple):
    """The fields of `engine.games.boards.tensor_lanes.TensorStep`, in its order. The cells of frames have one axis."""

    frames: Array3[np.uint8]  # [lanes, planes, cells]
    final_frames: Array3[np.uint8]
    rewards: Array1[np.float32]
    terminated: Array1[np.bool_]
    truncated: Array1[np.bool_]
    masks: Array2[np.bool_]
    final_masks: Array2[np.bool_]
    returns: Array1[np.float32]
    lengths: Array1[np.int64]
    score: Array1[np.int64]
    from_start: Array1[np.bool_]


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
