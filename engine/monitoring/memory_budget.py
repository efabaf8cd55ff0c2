"""How much memory there is, and what a run will take of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runtime.threads import CGROUP

_PROGRAM_BYTES = 700 * 2**20
"""A runner's process with torch and the compiled kernels, measured."""
_SAMPLE_BYTES = {"mario": 30, "snake": 220, "tetris": 220}
"""For each pixel of a sample while it is learned from, measured in float32."""
_WIDER_ON_DEVICE = 5
"""Bytes by which a transition's action and episode are wider on a device."""
_LITTLE_LEFT = 0.04
"""Share of the memory below which a run warns."""


def available_bytes(cgroup: Path = CGROUP) -> int:
    """Memory that a new program could have: what the machine has free, and what the container allows."""
    return _memory(cgroup)[0]


def is_short(cgroup: Path = CGROUP) -> bool:
    """Whether little is left of the memory that there is, on the machine or in the container."""
    available, total = _memory(cgroup)
    return available < _LITTLE_LEFT * total


def _memory(cgroup: Path) -> tuple[int, int]:
    """Bytes available, and in all: of the machine, or of its container (cgroup v2) where that has less."""
    machine = psutil.virtual_memory()
    try:
        limit = int((cgroup / "memory.max").read_text("ascii"))  # or the word max
        used = int((cgroup / "memory.current").read_text("ascii"))
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text("ascii").splitlines())
        cached = int(stat["active_file"]) + int(stat["inactive_file"])  # of files, given up when a program wants it
    except (OSError, ValueError, KeyError):
        return machine.available, machine.total
    return min(machine.available, limit - used + cached), min(machine.total, limit)


def replay_bytes(transitions: int, frame_shape: tuple[int, ...], mask_actions: int) -> int:
    """Replay and its priorities: frame, record, mask and priority of each transition."""
    return math.ceil(transitions * (math.prod(frame_shape) + 16 + mask_actions + 8.6))


def mapped_bytes(transitions: int, frame_shape: tuple[int, ...], stack: int, mask_actions: int) -> int:
    """What a replay takes on disk with `--use-mmap-buffer`: everything but the priorities."""
    return transitions * (math.prod(frame_shape) + 16 + mask_actions)


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of a GPU's memory, as its driver and PyTorch's allocator count them."""

    free: int
    """For any program."""
    reserved: int
    """Taken by this process's allocator, which hands it out again."""
    allocated: int
    """Of those, in use."""

    @property
    def available(self) -> int:
        """For this process."""
        return self.free + self.reserved - self.allocated


def fits_device(
    where: str, transitions: int, frame_shape: tuple[int, ...], mask_actions: int, memory: DeviceMemory
) -> bool:
    """Whether so many transitions are to be kept on the GPU that learns from them.

    With `auto` they are if half of the available memory is enough. With `device` they are, or `UserError` is raised.
    """
    needed = transitions * (replay_bytes(1, frame_shape, mask_actions) + _WIDER_ON_DEVICE)
    if where == "auto":
        return needed <= memory.available / 2
    if needed > memory.available:
        gib = 2**30
        raise UserError(
            f"--replay-device: {transitions:,} transitions take {needed / gib:.1f} GiB, and "
            f"{memory.available / gib:.1f} GiB of the GPU's memory are free; "
            "accepted: auto, host, or a smaller --buffer-size"
        )
    return True


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
    `Spec` says (`tests/mario_tui/screens/test_new_run.py`), without building it."""
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
        f"{(available - rest) / gib:.1f} GiB of memory are free; accepted: up to {fits:,}"
        + (", or --use-mmap-buffer" if with_replay else "")
    )
