"""Weights from elsewhere: the learner's, which its actors share with one writer, many readers and no lock; and those of
a policy file, also for a network with more actions.

Shared weights have two slots, written in turns. A reader copies the newest slot and then checks that the writer has not
begun to overwrite it. A writer that dies while writing leaves the newest slot intact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from engine.agents.networks import buffers_of
from engine.buffers.memory import HostMemory
from engine.runs.checkpoints import CheckpointError
from engine.runtime.files import read_bounded
from engine.runtime.processes import fence
from engine.runtime.stopwatch import stopwatch


class SharedWeights:
    """What `vector_of` gives of a network (`size` float32 numbers), with the number of updates that led to it."""

    def __init__(self, size: int, memory: HostMemory) -> None:
        arrays = memory.arrays(
            {"slots": ((2, size), np.float32), "updates": ((2,), np.int64), "versions": ((2,), np.int64)}
        )
        self._slots, self._updates = arrays["slots"], arrays["updates"]
        self._versions = arrays["versions"]  # last version begun, last version complete
        self._loaded = 0

    @stopwatch("synchronise")
    @torch.no_grad()
    def publish(self, network: nn.Module, updates: int) -> None:
        """Publish a network's parameters and buffers."""
        version = int(self._versions[1]) + 1
        self._versions[0] = version
        fence()
        self._slots[version % 2] = vector_of(network)
        self._updates[version % 2] = updates
        fence()
        self._versions[1] = version

    @stopwatch("synchronise")
    def pull(self, network: nn.Module) -> int | None:
        """Load the newest ones and return their number of updates; None if there are no newer ones."""
        while (version := int(self._versions[1])) != self._loaded:
            fence()
            vector, updates = self._slots[version % 2].copy(), int(self._updates[version % 2])
            fence()
            if int(self._versions[0]) <= version + 1:
                load_vector(network, vector)
                self._loaded = version
                return updates
        return None


def vector_of(network: nn.Module) -> NDArray[np.float32]:
    """All parameters and buffers of a network in one array, each in row-major order, however it lies in memory."""
    array: NDArray[np.float32] = torch.cat([each.detach().flatten().float() for each in _state(network)]).cpu().numpy()
    return array


@torch.no_grad()
def load_vector(network: nn.Module, vector: NDArray[np.float32]) -> None:
    """Load the result of `vector_of`."""
    state = _state(network)
    for tensor, part in zip(
        state, torch.split(torch.from_numpy(vector), [each.numel() for each in state]), strict=True
    ):
        tensor.copy_(part.view_as(tensor))


def vector_size(network: nn.Module) -> int:
    """Numbers in the result of `vector_of`."""
    return sum(tensor.numel() for tensor in _state(network))


def _state(network: nn.Module) -> list[Tensor]:
    return [*network.parameters(), *buffers_of(network)]


_MAX_BYTES = 2**30


def policy_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a policy file.

    Raises `CheckpointError` if it is damaged, or if a number is NaN or infinite: the network would not choose actions,
    but play the same one for ever.
    """
    try:
        weights = load(read_bounded(path, _MAX_BYTES, links=True))
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read ({error.strerror or error})") from None
    except SafetensorError as error:  # such as a file that is cut off
        raise CheckpointError(f"{path}: damaged ({str(error).splitlines()[0]})") from None
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise CheckpointError(f"{path}: damaged ({name} has numbers that are NaN or infinite)")
    return weights


def load_weights(network: nn.Module, weights: dict[str, Tensor], policy: Path) -> None:
    """Load the weights of a policy file. Raises `CheckpointError` if they are another network's than it says."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:  # its first line tells only the class
        raise CheckpointError(f"{policy}: damaged ({str(error).splitlines()[1].strip()})") from None


_LOWERED = 0.5
"""By how much the Q-value of a new action is lower at first than that of the most similar action, so that the network
plays almost as the policy does until it has learned what the action is worth."""


@runtime_checkable
class KnowsSimilarActions(Protocol):
    """A game in which a policy may have fewer actions than a run that begins with its weights."""

    def most_similar_action(self, action: str, known: Sequence[str]) -> str | None:
        """Return the action of a policy with whose weights a new action of a run begins; None for the mean of all."""


def for_actions(
    weights: Mapping[str, Tensor],
    known: Sequence[str],
    wanted: Sequence[str],
    most_similar: Callable[[str, Sequence[str]], str | None] | None,
) -> dict[str, Tensor]:
    """The weights of a dueling network with the actions `known`, for one with the actions `wanted`.

    Every known action must be wanted. A new one begins with the weights of the most similar known action, or with the
    mean of all where there is none.
    """
    parts = [name.rpartition("advantage.") for name in weights if "advantage." in name]
    start, last = "".join(parts[0][:2]), max(int(name.split(".")[0]) for _, _, name in parts)
    new = most_similar or (lambda action, known: None)
    similar = [action if action in known else new(action, known) for action in wanted]
    lowered = torch.tensor([0.0 if action in known else _LOWERED for action in wanted])

    def rows(values: Tensor) -> Tensor:  # of each action there are as many rows as it has quantiles
        each = values.view(len(known), -1, *values.shape[1:])
        return torch.stack([each.mean(0) if like is None else each[known.index(like)] for like in similar]).flatten(
            0, 1
        )

    prefix = f"{start}{last}."
    changed = {name: rows(values) for name, values in weights.items() if name.startswith(prefix)}
    bias = changed[f"{prefix}bias"]
    changed[f"{prefix}bias"] = bias - lowered.repeat_interleave(len(bias) // len(wanted))
    return {**weights, **changed}
