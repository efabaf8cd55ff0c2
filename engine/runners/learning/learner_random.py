"""The random numbers of a learner."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import torch

from engine.runs.checkpoint_state import CheckpointState


class LearnerRandom:
    """Draws batches, on a `host` or a CUDA `device`. Also seeds PyTorch itself, which draws initial weights."""

    def __init__(self, seed: int, device: torch.device) -> None:
        torch.manual_seed(seed)
        self.host = np.random.default_rng(seed)
        self.device = torch.Generator(device).manual_seed(seed) if device.type == "cuda" else None

    def state(self) -> dict[str, Any]:
        """The fields of `CheckpointState`."""
        return {
            "random": self.host.bit_generator.state,
            "torch_random": _digits(torch.get_rng_state()),
            "device_random": None if self.device is None else _digits(self.device.get_state()),
        }

    def load_state(self, state: CheckpointState) -> None:
        self.host.bit_generator.state = msgspec.to_builtins(state.random)
        torch.set_rng_state(_state(state.torch_random))
        if self.device is not None and state.device_random is not None:
            self.device.set_state(_state(state.device_random))


def _digits(state: torch.Tensor) -> str:
    """The state of a generator of PyTorch in hexadecimal digits."""
    return state.numpy().tobytes().hex()


def _state(digits: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(bytes.fromhex(digits), np.uint8).copy())
