"""Players of the batched games in tests: their actions keep games going for a while, and some are illegal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mostly_legal(rng: np.random.Generator, masks: NDArray[np.bool_], illegal: float) -> NDArray[np.int64]:
    """Random actions [lanes], legal except for a share of `illegal`; masks: bool [lanes, actions]."""
    wishes = rng.random(masks.shape) + (masks & (rng.random((len(masks), 1)) >= illegal))
    return wishes.argmax(1)


def towards_fruit(
    rng: np.random.Generator, frames: NDArray[np.uint8], masks: NDArray[np.bool_], illegal: float
) -> NDArray[np.int64]:
    """Actions for Snake (up, right, down, left); every second lane moves straight towards the fruit."""
    head, fruit = (np.argwhere(plane)[:, 1:] for plane in (frames[:, 1], frames[:, 3]))
    down, right = (fruit - head).T
    nearer = np.stack((down < 0, right > 0, down > 0, right < 0), 1) & masks
    greedy = np.where(nearer.any(1), nearer.argmax(1), mostly_legal(rng, masks, 0.0))
    at_random = mostly_legal(rng, masks, illegal)
    return np.where(np.arange(len(head)) % 2 == 0, greedy, at_random)


def steady_drops(rng: np.random.Generator, frames: NDArray[np.uint8], masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Actions for Tetris; every second lane places pieces where columns are low, so that it clears lines."""
    width = frames.shape[3]
    heights = (frames[:, 1] > 0).sum(1)  # [lanes, width]
    where = np.tile(heights + heights[:, np.minimum(np.arange(width) + 1, width - 1)], 4)
    low = np.where(masks, -where + rng.random(masks.shape), -1e9).argmax(1)
    return np.where(np.arange(len(masks)) % 2 == 0, low, mostly_legal(rng, masks, 0.02))
