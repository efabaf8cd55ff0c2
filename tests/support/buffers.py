"""Replay buffers in tests."""

from __future__ import annotations

import numpy as np

from engine.buffers import FrameStorage


def all_pairs(storage: FrameStorage) -> tuple[np.ndarray, np.ndarray]:
    """Every lane with every number that an entry of it has or could have."""
    most = int(storage.written.max()) + 3
    lanes, entries = np.meshgrid(np.arange(storage.lanes), np.arange(most), indexing="ij")
    return lanes.ravel(), entries.ravel()
