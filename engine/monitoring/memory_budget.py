"""Available memory, and estimates of the memory that a run needs."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.config.fields import AUTO
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.config.runners import processes_here
from engine.errors import ScarceError, UserError
from engine.runtime.text import size_text
from engine.runtime.threads import CGROUP

_PROCESS_BYTES = 700 * 2**20
"""Memory of a runner process with torch and the compiled kernels, measured."""
_EXTRA_BYTES_ON_DEVICE = 5
"""Additional bytes per transition on a device, where actions and episode starts have wider types."""
_SAMPLE_BYTES = {"nature": 30, "small": 30, "grid": 220, "paths": 220, "columns": 220, "afterstates": 220}
_MOST_SAMPLE_BYTES = 400
"""Memory of an update per sample and byte of an observation, by network: measured; the most of any for others."""
_PAIR_BYTES = 24
"""Memory of a loss per sample and pair of quantiles, one of values and one of targets: six float32."""


_CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", ""),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_"),
)
"""Limit, use, statistics and the prefix of its own numbers in control groups of versions 2 and 1. Without a limit,
version 1 has a number larger than any memory."""


def available_bytes(cgroup: Path = CGROUP) -> int:
    """Bytes that a new program could allocate, limited by the machine's free memory and the container's limit."""
    return memory(cgroup)[0]


def memory(cgroup: Path = CGROUP) -> tuple[int, int]:
    """Bytes available and in total, of the machine or, if that has less, of the container."""
    machine = psutil.virtual_memory()
    for limit_file, used_file, stat_file, prefix in _CGROUP_FILES:
        with contextlib.suppress(OSError, ValueError, KeyError):
            limit = int((cgroup / limit_file).read_text("ascii"))  # or the word max
            used = int((cgroup / used_file).read_text("ascii"))
            stat = dict(line.split() for line in (cgroup / stat_file).read_text("ascii").splitlines())
            # The file cache is freed by the kernel on demand.
            cached = int(stat[f"{prefix}active_file"]) + int(stat[f"{prefix}inactive_file"])
            return min(machine.available, limit - used + cached), min(machine.total, limit)
    return machine.available, machine.total


def replay_bytes(transitions: int, spec: Spec) -> int:
    """Bytes of a replay in memory: frame, record, mask and priority of each transition."""
    return math.ceil(transitions * (spec.frame_bytes + 16 + spec.mask_actions + 8.6))


def mapped_bytes(transitions: int, spec: Spec) -> int:
    """Bytes of a replay on disk with `--replay-device files`: everything except the priorities."""
    return transitions * (spec.frame_bytes + 16 + spec.mask_actions)


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of a GPU's memory, as its driver and PyTorch's allocator count them."""

    free: int
    """Free for any program."""
    reserved: int
    """Reserved by this process's allocator."""
    allocated: int
    """The part of the reserved bytes that is in use."""

    @property
    def available(self) -> int:
        """Bytes that this process can still allocate."""
        return self.free + self.reserved - self.allocated


def fits_device(where: str, transitions: int, spec: Spec, memory: DeviceMemory) -> bool:
    """Return whether to store the replay on the GPU that learns from it.

    With `where` = `auto`, if it fits in half of the available memory. With `device`, always; raises `UserError` if it
    does not fit in the available memory.
    """
    needed = transitions * (replay_bytes(1, spec) + _EXTRA_BYTES_ON_DEVICE)
    if where == "auto":
        return needed <= memory.available / 2
    if needed > memory.available:
        raise UserError(
            f"--replay-device: {transitions:,} transitions take {size_text(needed, binary=True)}, and "
            f"{size_text(memory.available, binary=True)} of the GPU's memory are free; "
            "accepted: auto, host, or a smaller --buffer-size"
        )
    return True


def _required_bytes(config: RunConfig, *, with_replay: bool) -> tuple[int, int]:
    """Bytes of this machine's memory per transition of the run, and for everything except the replay."""
    spec = config.spec
    each = replay_bytes(1, spec) if with_replay else 9  # priorities stay in memory
    sample = spec.stack * spec.frame_bytes * _SAMPLE_BYTES.get(config.network_name, _MOST_SAMPLE_BYTES)
    sample += _PAIR_BYTES * (config.quantiles or 0) ** 2
    batch = config.batch_size * sample // config.accumulate
    here = processes_here(config.processes)
    each = math.ceil(each * here / config.processes)  # ranks on other machines have their own part of the replay
    apart = config.runner_info.learner is not None
    learners = 1 if apart else here
    actors_elsewhere = config.ray not in ("none", "local")
    processes = 1 if actors_elsewhere else here + apart
    return each, _PROCESS_BYTES * processes + batch * learners


def estimate_bytes(config: RunConfig) -> tuple[int, int]:
    """Estimated bytes that a run needs in total, and for its replay alone, wherever the replay is stored."""
    _, rest = _required_bytes(config, with_replay=False)
    replay = replay_bytes(config.buffer_size, config.spec)
    return rest + replay, replay


class TooLittleMemory(ScarceError):
    """What a run needs, in memory or for a replay in files, is not free."""


def check_memory(config: RunConfig, *, with_replay: bool) -> None:
    """Raise `TooLittleMemory` if the run needs more host memory than is available.

    `with_replay`: whether the replay is in host memory; otherwise only its priorities are.
    """
    each, rest = _required_bytes(config, with_replay=with_replay)
    available = available_bytes()
    if rest + each * config.buffer_size <= available:
        return
    fits = (available - rest) // each
    if fits < max(config.burnin, config.batch_size):
        needed, free = size_text(rest, binary=True), size_text(available, binary=True)
        fewer = "fewer processes" if config.processes > 1 else ""
        if config.batch_size == AUTO:  # none of the memory is its
            advice = f"; accepted: {fewer}" if fewer else ""
            raise TooLittleMemory(f"the run needs about {needed} besides the replay, and {free} are free{advice}")
        raise TooLittleMemory(
            f"--batch-size: {config.batch_size} needs about {needed} in addition to the replay, and {free} of memory "
            f"are free; accepted: a smaller one, or a larger --accumulate{f', or {fewer}' if fewer else ''}"
        )
    taken, free = (size_text(amount, binary=True) for amount in (each * config.buffer_size, available - rest))
    raise TooLittleMemory(
        f"--buffer-size: {config.buffer_size:,} transitions take {taken}, and about {free} of memory are free; "
        f"accepted: up to {fits:,}" + (", or --replay-device files" if with_replay else "")
    )
