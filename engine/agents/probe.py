"""What this machine computes fastest with, found by doing a few updates on made-up transitions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine.agents.double_dqn import DoubleDQN, Precision, is_shortage, release_memory, synchronise
from engine.buffers import Batch

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
