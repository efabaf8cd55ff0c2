"""A policy file as a network, and as actions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn

from engine.agents import make_network
from engine.agents.double_dqn import greedy
from engine.agents.networks import NETWORKS
from engine.envs.vec_env import Frames
from engine.runs import checkpoints

Act = Callable[[Frames, NDArray[np.bool_] | None], NDArray[np.int64]]
"""Actions [lanes] for observations uint8 [lanes, stack, *frame_shape] among the legal ones, bool [lanes, actions]."""


def load_policy(path: Path) -> nn.Module:
    """The network of a policy file. Raises `CheckpointError` if this version has no such network."""
    said = checkpoints.policy_metadata(path)
    head, _, name = said["network"].partition("-")
    if head != "dueling" or name not in NETWORKS:
        known = ", ".join(f"dueling-{name}" for name in NETWORKS)
        raise checkpoints.CheckpointError(f"{path}: network {said['network']!r}; this version knows: {known}")
    network = make_network(name, said["stack"], tuple(said["frame_shape"]), said["outputs"])
    network.load_state_dict(load_file(path))
    return network.eval()


def greedy_act(network: nn.Module) -> Act:
    """What plays a network greedily on the CPU."""

    @torch.no_grad()
    def act(obs: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        return greedy(network(torch.from_numpy(obs)), masks)

    return act
