"""Chooses precision and batch size by timing a few updates on random data on this machine.

Two precisions that are about equally fast would be chosen by chance. So a decision stays in the user's cache, and two
runs with equal options on one machine learn alike. A file `$XDG_CACHE_HOME/mario-tui/precision/DIGEST.json` (or
`~/.cache`) holds one decision and what it was made for; it may be deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from engine.agents.double_dqn import DoubleDQN
from engine.agents.munchausen import munchausen_of
from engine.agents.networks import NETWORKS, make_networks
from engine.buffers.device.storage import Array, TensorBatch
from engine.buffers.frames import Batch
from engine.config.fields import AUTO
from engine.config.game import Spec
from engine.config.run_config import HEAD_OPTIONS, RunConfig
from engine.config.runners import BATCH_SIZES, Choices
from engine.runtime.devices import (
    WARM_UP,
    GraphedCall,
    Precision,
    gpu_precision,
    is_out_of_memory,
    release_memory,
    synchronise,
)
from engine.runtime.files import private_folder, write_if_possible
from engine.runtime.formats import read_json
from engine.runtime.threads import processor_name

_MAX_BYTES = 2**16


class _Held(msgspec.Struct):
    """What a file of the cache decides."""

    precision: Precision


def remembered(shapes: dict[str, Any], measure: Callable[[], Precision]) -> Precision:
    """The precision chosen earlier for this processor, version of PyTorch and `shapes` (JSON); `measure` if there is
    none. A cache that can't be read or written is no reason to fail."""
    made_for = {"measured": "processor time", "processor": processor_name(), "torch": torch.__version__, **shapes}
    digest = hashlib.sha256(json.dumps(made_for, sort_keys=True).encode()).hexdigest()[:16]
    file = private_folder("CACHE", "precision") / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError):
        return read_json(file, _Held, _MAX_BYTES).precision
    precision = measure()
    write_if_possible(file, json.dumps({"precision": precision, **made_for}, indent=1).encode())
    return precision


_MIN_SPEEDUP = 1.1
"""Factor by which a larger batch, or bfloat16, must be faster: smaller differences are within the noise on a busy
machine."""
_UPDATES = 3

_PRECISIONS: tuple[Precision, Precision] = ("float32", "bfloat16")

Build = Callable[[Precision], DoubleDQN]


def random_batch(size: int, spec: Spec) -> Batch:
    """`size` transitions with random frames and actions, without rewards."""
    random = np.random.default_rng(0)
    obs, next_obs = random.integers(0, 256, (2, size, spec.stack, *spec.frame_shape), np.uint8).astype(spec.frame_dtype)
    zeros = np.zeros(size, np.float32)
    return Batch(obs, random.integers(0, spec.actions, size), zeros, next_obs, zeros)


def faster_precision(build: Build, batch: Batch) -> Precision:
    """bfloat16 if CPU updates take at least 10 % less processor time with it than in float32. Time on the wall would
    decide wrongly beside busy programs. Both are timed in turns, because the processor's speed changes."""
    in_turns = zip(
        *(_update_times(build(precision), batch, of_processor=True) for precision in _PRECISIONS), strict=True
    )
    single, half = (min(seconds) for seconds in zip(*itertools.islice(in_turns, 2 * _UPDATES), strict=True))
    return "bfloat16" if _MIN_SPEEDUP * half < single else "float32"


def tune_batch_size(agent: DoubleDQN, make_batch: Callable[[int], Batch], limit: int) -> int:
    """The batch size to use, at most `limit`. The agent's weights change.

    Tries `BATCH_SIZES` in ascending order while each learns at least 10 % more samples per second than the one before
    it and fits in memory.
    """
    best = min(BATCH_SIZES[0], limit)
    best_rate = samples_per_s(agent, make_batch(best))
    for size in BATCH_SIZES[1:]:
        if size > limit:
            break
        try:
            rate = samples_per_s(agent, make_batch(size))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            release_memory(agent.device)
            break
        if rate < _MIN_SPEEDUP * best_rate:
            break
        best, best_rate = size, rate
    return best


def samples_per_s(agent: DoubleDQN, batch: Batch) -> float:
    """Samples learned per second, by the fastest of a few updates. The agent's weights change."""
    return len(batch.actions) / min(itertools.islice(_update_times(agent, batch), _UPDATES))


def _update_times(agent: DoubleDQN, batch: Batch, *, of_processor: bool = False) -> Iterator[float]:
    """Seconds, or those `of_processor`, that one update after another takes. The first ones, in which libraries choose
    kernels, are left out."""
    size, clock = len(batch.actions), time.process_time if of_processor else time.perf_counter
    if agent.device.type == "cpu":
        update: Callable[[], None] = partial(_update, agent, batch, np.ones(size, np.float32))
        warm_up = 1
    else:
        arrays = {name: array for name, array in vars(batch).items() if array is not None}
        there = TensorBatch(**{name: torch.as_tensor(array, device=agent.device) for name, array in arrays.items()})
        update = GraphedCall(partial(_update, agent, there, torch.ones(size, device=agent.device)), agent.device)
        warm_up = WARM_UP + 1
    for number in itertools.count():
        begin = clock()
        update()
        synchronise(agent.device)
        if number >= warm_up:
            yield clock() - begin


def _update(agent: DoubleDQN, batch: Batch | TensorBatch, weights: Array) -> None:
    agent.step(agent.gradients(batch, weights)[0], move_target=True)


def rounds_values(config: RunConfig, spec: Spec) -> bool:
    """Return whether mixed precision would round the Q-values of a run's network, or what a last layer adds to them, to
    bfloat16, where 100 equals 100.4. The networks of this program compute their last layers in float32."""
    network, _ = make_networks(config, spec)
    rounded: list[nn.Module] = []

    def look(module: nn.Module, _: Any, output: Any) -> None:
        is_last = isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] in (1, spec.actions)
        if is_last and output.dtype != torch.float32:
            rounded.append(module)

    for module in network.modules():
        module.register_forward_hook(look)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        network(torch.as_tensor(random_batch(2, spec).obs))
    return bool(rounded)


def choose(
    config: RunConfig,
    spec: Spec,
    device: torch.device,
    threads: int,
    saved: dict[str, Any] | None,
    log: Callable[[str], None],
) -> Choices:
    """Choices for a run. Those `saved` in its checkpoint are used again if the device type is still the same."""

    def build(precision: Precision) -> DoubleDQN:
        return DoubleDQN(
            *make_networks(config, spec),
            device=device,
            learning_rate=1e-5,
            precision=precision,
            double_q=config.double_q,
            munchausen=munchausen_of(config),
            advantage_learning=config.advantage_learning,
            threads=threads,
        )

    if saved is None or saved["device"] != device.type:
        saved = {}
    precision: Precision = "float32"
    # Of other numbers than bytes, bfloat16 takes 1000 and 1002 for the same.
    may_mix = config.amp and spec.frame_dtype == "uint8" and not spec.numbers
    if may_mix and config.network_name not in NETWORKS and rounds_values(config, spec):
        log(f"training in float32: mixed precision would round the Q-values of {config.network_name}")
        may_mix = False
    if may_mix and "precision" in saved:
        precision = saved["precision"]
    elif may_mix and device.type == "cpu":
        size = config.batch_size if config.batch_size != AUTO else 256
        shapes = {
            "network": config.network_name, "frame_shape": spec.frame_shape, "stack": spec.stack,
            "actions": spec.actions, "batch_size": size, "threads": [threads, torch.get_num_threads()],
            "double_q": config.double_q,
        }  # fmt: skip
        parts = {name: config.value(name) for name in (*HEAD_OPTIONS, "munchausen")}
        shapes |= {name: value for name, value in parts.items() if value}  # others were measured without
        precision = remembered(shapes, lambda: faster_precision(build, random_batch(size, spec)))
    elif may_mix:
        precision = gpu_precision(device)
    batch_size = config.batch_size
    if batch_size == AUTO and "batch_size" in saved:
        batch_size = min(saved["batch_size"], config.largest_batch)
    elif batch_size == AUTO:
        batch_size = tune_batch_size(build(precision), lambda size: random_batch(size, spec), config.largest_batch)
        log(f"batch size {batch_size}: the largest that pays off on this machine")
    return Choices(device.type, precision, batch_size, saved.get("threads", threads))


def still_valid(choices: Mapping[str, Any], before: RunConfig, config: RunConfig) -> dict[str, Any]:
    """The choices of a checkpoint that still apply when its run is resumed with the options `config`."""
    valid = dict(choices)
    if config.amp != before.amp:
        del valid["precision"]
    if before.batch_size != AUTO:
        del valid["batch_size"]
    if (config.runner, config.processes) != (before.runner, before.processes):
        del valid["threads"]
    return valid
