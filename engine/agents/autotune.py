"""Finds what this machine computes fastest with (precision, threads, batch size) by a few updates on random data."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.agents.double_dqn import DoubleDQN, Precision, gpu_precision, is_shortage, release_memory, synchronise
from engine.agents.networks import make_networks
from engine.buffers import Batch
from engine.config.run_config import AUTO, RunConfig
from engine.envs.vec_env import Spec

BATCH_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_WORTH = 1.1
"""A larger batch must be faster by this factor: less is within what measuring on a busy machine gives by chance."""
_UPDATES = 3
_BF16_FLAGS = ("avx512_bf16", "amx_bf16")

_PRECISIONS: tuple[Precision, Precision] = ("float32", "bfloat16")

Build = Callable[[Precision], DoubleDQN]


def made_up_batch(size: int, stack: int, frame_shape: tuple[int, ...], actions: int) -> Batch:
    """Transitions with random frames and without rewards."""
    random = np.random.default_rng(0)
    obs, next_obs = random.integers(0, 256, (2, size, stack, *frame_shape), np.uint8)
    zeros = np.zeros(size, np.float32)
    return Batch(obs, random.integers(0, actions, size), zeros, next_obs, zeros)


def faster_precision(build: Build, batch: Batch) -> Precision:
    """bfloat16 if updates on the CPU are faster with it than in float32.

    What the processor says of itself decides where the two are close, so that runs of one seed on one machine choose
    alike however busy it is.
    """
    single, half = (samples_per_s(build(precision), batch) for precision in _PRECISIONS)
    return "bfloat16" if half > single * (0.8 if multiplies_bf16() else 1.5) else "float32"


def multiplies_bf16() -> bool:
    """Whether the processor has instructions for bfloat16; elsewhere it is emulated."""
    with contextlib.suppress(OSError):
        return any(flag in Path("/proc/cpuinfo").read_text("ascii", "replace") for flag in _BF16_FLAGS)
    return False


def largest_batch_that_pays(agent: DoubleDQN, make_batch: Callable[[int], Batch], most: int) -> int:
    """Of `BATCH_SIZES`, the last that learns more samples a second than the one before it, by a tenth, and fits.

    At most `most`, also where no size is as small.
    """
    best = min(BATCH_SIZES[0], most)
    best_rate = samples_per_s(agent, make_batch(best))
    for size in BATCH_SIZES[1:]:
        if size > most:
            break
        try:
            rate = samples_per_s(agent, make_batch(size))
        except (RuntimeError, MemoryError) as error:
            if not is_shortage(error):
                raise
            release_memory(agent.device)
            break
        if rate < _WORTH * best_rate:
            break
        best, best_rate = size, rate
    return best


def samples_per_s(agent: DoubleDQN, batch: Batch) -> float:
    """Samples learned a second by the fastest of a few updates; the agent's weights change."""
    size = len(batch.actions)
    weights = np.ones(size, np.float32)
    seconds = []
    for _ in range(1 + _UPDATES):  # the first one is for the libraries to choose their kernels
        begin = time.perf_counter()
        agent.apply(agent.gradients(batch, weights)[0])
        synchronise(agent.device)
        seconds.append(time.perf_counter() - begin)
    return size / min(seconds[1:])


@dataclass(frozen=True)
class Choices:
    """Kept in checkpoints; `device` is the kind that they were made for."""

    device: str
    precision: Precision
    batch_size: int
    threads: int

    def state(self) -> dict[str, Any]:
        return asdict(self)


def choose(
    config: RunConfig,
    spec: Spec,
    device: torch.device,
    threads: int,
    kept: dict[str, Any] | None,
    tell: Callable[[str], None],
) -> Choices:
    """The choices of a new run, or those `kept` in its checkpoint as far as the device still is the same."""

    def build(precision: Precision) -> DoubleDQN:
        return DoubleDQN(
            *make_networks(config, spec), device=device, learning_rate=1e-5, precision=precision, threads=threads
        )

    if kept is None or kept["device"] != device.type:
        kept = {}
    precision: Precision = "float32"
    if config.amp and "precision" in kept:
        precision = kept["precision"]
    elif config.amp and device.type == "cpu":
        size = config.batch_size if config.batch_size != AUTO else 256
        precision = faster_precision(build, _batch(spec, size))
    elif config.amp:
        precision = gpu_precision(device)
    batch_size = config.batch_size
    if batch_size == AUTO and "batch_size" in kept:
        batch_size = min(kept["batch_size"], config.largest_batch)
    elif batch_size == AUTO:
        batch_size = largest_batch_that_pays(build(precision), lambda size: _batch(spec, size), config.largest_batch)
        tell(f"batches of {batch_size} transitions: the largest that pays here")
    return Choices(device.type, precision, batch_size, kept.get("threads", threads))


def still_valid(choices: Mapping[str, Any], before: RunConfig, config: RunConfig) -> dict[str, Any]:
    """Those of a checkpoint's choices that were made for the options which a resumed run has, too."""
    valid = dict(choices)
    if config.amp != before.amp:
        del valid["precision"]
    if before.batch_size != AUTO:
        del valid["batch_size"]
    if (config.runner, config.processes) != (before.runner, before.processes):
        del valid["threads"]
    return valid


def _batch(spec: Spec, size: int) -> Any:
    return made_up_batch(size, spec.stack, spec.frame_shape, spec.actions)
