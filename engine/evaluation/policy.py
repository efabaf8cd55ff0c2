"""Loading the network of a policy file, and acting with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from engine.agents import make_network
from engine.agents.greedy import greedy
from engine.agents.policy_weights import load_weights, policy_weights
from engine.config.games import game_of
from engine.envs.lanes import Frames
from engine.runs import checkpoints

Act = Callable[[Frames, NDArray[np.bool_] | None], NDArray[np.int64]]
"""Actions [lanes] of some of the lanes, for their observations uint8 [lanes, stack, *frame_shape] among the legal ones,
bool [lanes, actions]."""


def load_policy(path: Path, network: str | None = None) -> nn.Module:
    """The network of a policy file, in evaluation mode on the CPU. `network`: its name, if not that of the metadata.

    Raises `CheckpointError` if the file is not a policy, is damaged, or needs a network that this version does not
    have.
    """
    metadata = checkpoints.policy_metadata(path)
    shape = (metadata["stack"], tuple(metadata["frame_shape"]), metadata["outputs"])
    made = make_network(network or metadata["network"], *shape, own=game_of(metadata["game"]).own_networks)
    load_weights(made, policy_weights(path), path)
    return made.eval()


def greedy_act(network: nn.Module) -> Act:
    """A function that chooses a network's greedy actions on the CPU."""

    @torch.no_grad()
    def act(obs: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        return greedy(network(torch.from_numpy(obs)), masks)

    return act
