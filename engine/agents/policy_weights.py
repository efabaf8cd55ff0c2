"""Reads and loads the weights of a policy file."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from engine.runs.checkpoints import CheckpointError
from engine.runtime.files import read_bounded

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
