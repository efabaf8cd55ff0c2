"""Double DQN (van Hasselt et al. 2016, arXiv:1509.06461) with n-step targets and importance weights.

The whole algorithm is `update`: target = R + discount * Q_target(s', argmax_a Q_online(s', a)), Huber loss, gradient
norm clipped to 10 (Wang et al. 2016), AdamW without decay, hard copies into the target network.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engine.buffers import Batch
from engine.errors import UserError

Precision = Literal["float32", "bfloat16", "float16"]
MAX_GRADIENT_NORM = 10.0


@dataclass(frozen=True)
class Losses:
    """What an update found."""

    loss: float  # importance-weighted mean Huber loss
    q_mean: float  # mean Q-value of the actions taken
    td_errors: NDArray[np.float32]  # [batch], absolute


def resolve_device(name: str) -> torch.device:
    """`auto` takes CUDA, then MPS, then the CPU. Raises `UserError` if a named device is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device: {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("--device: mps: this machine has no MPS device")
    return device


def choose_precision(device: torch.device, amp: bool) -> Precision:
    """Mixed precision where the device computes faster with it: bfloat16, or float16 on GPUs before Ampere."""
    if not amp:
        return "float32"
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    return "bfloat16" if device.type == "cpu" and _cpu_has_bf16() else "float32"


class DoubleDQN:
    """Online and target network, optimiser, and the two things an agent does: `act` and `update`."""

    def __init__(
        self,
        network: nn.Module,
        target: nn.Module,
        *,
        device: torch.device,
        learning_rate: float,
        precision: Precision,
    ) -> None:
        self.device = device
        self.precision: Precision = precision
        self.online = network.to(device)
        self.target = target.to(device).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            self.online.parameters(), lr=learning_rate, eps=1e-5, weight_decay=0, fused=True
        )
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        self.sync_target()

    @torch.no_grad()
    def act(self, obs: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Greedy actions [lanes] for uint8 observations [lanes, stack, height, width]."""
        with self._autocast():
            q = self.online(torch.from_numpy(obs).to(self.device))
        return q.argmax(1).cpu().numpy()

    def update(self, batch: Batch, weights: NDArray[np.float32]) -> Losses:
        """One optimiser step on n-step transitions with importance weights [batch]."""
        obs, actions, returns, next_obs, discounts, importance = (
            torch.from_numpy(array).to(self.device)
            for array in (batch.obs, batch.actions, batch.returns, batch.next_obs, batch.discounts, weights)
        )
        with self._autocast():
            with torch.no_grad():
                best = self.online(next_obs).argmax(1, keepdim=True)
                targets = returns + discounts * self.target(next_obs).gather(1, best).squeeze(1)
            q: Tensor = self.online(obs).gather(1, actions[:, None]).squeeze(1)
            loss = (importance * F.smooth_l1_loss(q, targets, reduction="none")).mean()
        self.optimizer.zero_grad(set_to_none=True)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.online.parameters(), MAX_GRADIENT_NORM)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        td_errors = (targets - q.detach()).abs().float().cpu().numpy()
        return Losses(float(loss.detach()), float(q.detach().mean()), td_errors)

    def sync_target(self) -> None:
        """Copy the online network into the target network."""
        self.target.load_state_dict(self.online.state_dict())

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state as flat names, for a checkpoint: `<parameter index>.<name>`."""
        state = self.optimizer.state_dict()["state"]
        return {f"{index}.{name}": value for index, slots in state.items() for name, value in slots.items()}

    def load_optimizer_tensors(self, tensors: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            index, name = key.split(".")
            state.setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.precision))


def _cpu_has_bf16() -> bool:
    """Only CPUs with bfloat16 instructions gain from it; on others it is emulated and slower."""
    with contextlib.suppress(OSError):
        return any(name in Path("/proc/cpuinfo").read_text() for name in ("avx512_bf16", "amx_bf16"))
    return False
