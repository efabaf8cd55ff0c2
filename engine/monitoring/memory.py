"""How much memory there is, and what a run will take of it."""

from __future__ import annotations

import math
from pathlib import Path

import psutil

from engine.config import RunConfig
from engine.errors import UserError

_PROGRAM_BYTES = 700 * 2**20
"""A runner's process with torch and the compiled kernels, measured."""
_SAMPLE_BYTES = {"mario": 30, "snake": 220, "tetris": 220}
"""For each pixel of a sample while it is learned from, measured in float32."""
LITTLE_LEFT = 0.04
"""Share of the memory below which a run warns."""
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory that a new program could have: what the machine has free, and what the container allows."""
    available = psutil.virtual_memory().available
    try:
        limit = (_CGROUP / "memory.max").read_text("ascii").strip()
        used = int((_CGROUP / "memory.current").read_text("ascii"))
    except (OSError, ValueError):
        return available
    return available if limit == "max" else min(available, int(limit) - used)


def replay_bytes(transitions: int, frame_shape: tuple[int, ...], mask_actions: int) -> int:
    """Replay and its priorities: frame, record, mask and priority of each transition."""
    return math.ceil(transitions * (math.prod(frame_shape) + 16 + mask_actions + 8.6))


def check_memory(
    config: RunConfig, frame_shape: tuple[int, ...], stack: int, mask_actions: int, *, with_replay: bool
) -> None:
    """Raises `UserError` if what the run will take in host memory is more than there is."""
    each = replay_bytes(1, frame_shape, mask_actions) if with_replay else 9  # priorities stay in memory
    pixels = stack * math.prod(frame_shape)
    batch = config.batch_size * pixels * _SAMPLE_BYTES[config.game] // config.accumulate
    rest = _PROGRAM_BYTES + batch
    available = available_bytes()
    if rest + each * config.buffer_size <= available:
        return
    fits = (available - rest) // each
    gib = 2**30
    if fits < max(config.burnin, config.batch_size):
        raise UserError(
            f"--batch-size: {config.batch_size} needs about {rest / gib:.1f} GiB beside the replay, and "
            f"{available / gib:.1f} GiB of memory are free; accepted: a smaller one, or a larger --accumulate"
        )
    raise UserError(
        f"--buffer-size: {config.buffer_size:,} transitions take {each * config.buffer_size / gib:,.1f} GiB, and about "
        f"{(available - rest) / gib:.1f} GiB of memory are free; accepted: up to {fits:,}, or --use-mmap-buffer"
    )
