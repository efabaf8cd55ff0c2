"""What is decided once for a run by looking at the machine, and then kept: it decides how results are rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from engine.agents import DoubleDQN, make_network
from engine.agents.double_dqn import Precision, gpu_precision
from engine.agents.probe import faster_precision, largest_batch_that_pays, made_up_batch
from engine.config import AUTO, RunConfig
from engine.envs.step import Spec

_NETWORK_OF_BOARDS = {"snake": "grid", "tetris": "columns"}


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


def network_of(config: RunConfig) -> str:
    """The name of a run's network, one of `engine.agents.networks.NETWORKS`."""
    return _NETWORK_OF_BOARDS.get(config.game, config.network)


def make_networks(config: RunConfig, spec: Spec) -> tuple[nn.Module, nn.Module]:
    """Online and target network of a run."""
    name = network_of(config)
    online, target = (make_network(name, spec.stack, spec.frame_shape, spec.actions) for _ in range(2))
    return online, target


def _batch(spec: Spec, size: int) -> Any:
    return made_up_batch(size, spec.stack, spec.frame_shape, spec.actions)
