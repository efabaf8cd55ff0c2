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


def _needs(
    config: RunConfig, frame_shape: tuple[int, ...], stack: int, mask_actions: int, *, with_replay: bool
) -> tuple[int, int]:
    """Bytes of a transition in memory, and of everything but the replay."""
    each = replay_bytes(1, frame_shape, mask_actions) if with_replay else 9  # priorities stay in memory
    batch = config.batch_size * stack * math.prod(frame_shape) * _SAMPLE_BYTES[config.game] // config.accumulate
    learners = 1 if config.runner == "apex" else config.processes
    return each, _PROGRAM_BYTES * (config.processes + (config.runner == "apex")) + batch * learners


def seen_by(config: RunConfig) -> tuple[tuple[int, ...], int, int]:
    """Shape of a frame, frames in an observation and actions in a mask, from the options alone: as the game's own
    `Spec` says (`tests/test_form.py`), without building it."""
    if config.game == "mario":
        height, width = (int(side) for side in config.observation.split("x"))
        return (height, width), 4, 0
    width, height = (int(side) for side in (config.board or "").split("x"))
    return ((4, height, width), 1, 4 * width) if config.game == "tetris" else ((5, height, width), 1, 0)


def estimate_bytes(config: RunConfig) -> tuple[int, int]:
    """About how much memory a run will take, and how much of it is its replay; wherever the replay lies."""
    frame_shape, stack, mask_actions = seen_by(config)
    _, rest = _needs(config, frame_shape, stack, mask_actions, with_replay=False)
    replay = replay_bytes(config.buffer_size, frame_shape, mask_actions)
    return rest + replay, replay


def check_memory(
    config: RunConfig, frame_shape: tuple[int, ...], stack: int, mask_actions: int, *, with_replay: bool
) -> None:
    """Raises `UserError` if what the run will take in host memory is more than there is."""
    each, rest = _needs(config, frame_shape, stack, mask_actions, with_replay=with_replay)
    available = available_bytes()
    if rest + each * config.buffer_size <= available:
        return
    fits = (available - rest) // each
    gib = 2**30
    if fits < max(config.burnin, config.batch_size):
        raise UserError(
            f"--batch-size: {config.batch_size} needs about {rest / gib:.1f} GiB beside the replay, and "
            f"{available / gib:.1f} GiB of memory are free; accepted: a smaller one, or a larger --accumulate"
            + (", or fewer processes" if config.processes > 1 else "")
        )
    raise UserError(
        f"--buffer-size: {config.buffer_size:,} transitions take {each * config.buffer_size / gib:,.1f} GiB, and about "
        f"{(available - rest) / gib:.1f} GiB of memory are free; accepted: up to {fits:,}, or --use-mmap-buffer"
    )
