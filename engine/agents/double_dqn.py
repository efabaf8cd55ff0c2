"""Double DQN (van Hasselt et al. 2016, arXiv:1509.06461) with n-step targets and importance weights.

The whole algorithm is in `_share`: target = R + discount * Q_target(s', argmax_a Q_online(s', a)) over the actions that
are legal in s', Huber loss. An update sums the gradients of a batch's shares, clips their norm to 10 (Wang et al. 2016)
and takes a step of Adam. Shares are computed side by side by threads on CPUs, or one after the other where memory is
short; a batch means the same however it is shared.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.adam import SLOTS, Adam
from engine.buffers import Batch
from engine.buffers.device.storage import Array, TensorBatch
from engine.errors import UserError
from engine.runtime.stopwatch import SHARES, stages

Precision = Literal["float32", "bfloat16", "float16"]
MAX_GRADIENT_NORM = 10.0


@dataclass(frozen=True)
class Losses:
    """What an update found."""

    loss: float  # importance-weighted mean Huber loss
    q_mean: float  # mean Q-value of the actions taken
    td_errors: Array  # float32 [batch], absolute; where the batch was: on the host or the device


def greedy(q: Tensor, masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Actions [lanes] of the largest Q-values [lanes, actions] among the legal ones [lanes, actions]."""
    return legal(q, masks).argmax(1).cpu().numpy()


def legal(q: Tensor, masks: NDArray[np.bool_] | None) -> Tensor:
    """Q-values [lanes, actions] with -inf in place of those of illegal actions."""
    return q if masks is None else q.masked_fill(~torch.from_numpy(masks).to(q.device), -torch.inf)


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


def gpu_precision(device: torch.device) -> Precision:
    """Mixed precision of a GPU: bfloat16, or float16 before Ampere; float32 on MPS."""
    if device.type != "cuda":
        return "float32"
    with torch.cuda.device(device):  # PyTorch asks the current device
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


class DoubleDQN:
    """Online and target network, optimiser, and the two things an agent does: `act` and `update`.

    Args:
        sync_every, tau: after every so many updates the target moves by `tau` towards the online network; 1 copies it
            (Mnih et al. 2015), less is a moving average (Lillicrap et al. 2016, arXiv:1509.02971).
        threads: threads that share a batch (CPU).
        accumulate: shares of a batch that are computed one after the other, to save memory. Doubled when memory runs
            out all the same; `on_shortage` is told the new number.
    """

    def __init__(
        self,
        network: nn.Module,
        target: nn.Module,
        *,
        device: torch.device,
        learning_rate: float,
        precision: Precision,
        sync_every: int = 1,
        tau: float = 0.002,
        threads: int = 1,
        accumulate: int = 1,
        on_shortage: Callable[[int], None] = lambda accumulate: None,
    ) -> None:
        self.device = device
        self.precision: Precision = precision
        self.accumulate = accumulate
        self.updates = 0
        self.online = network.to(device)
        self.target = target.to(device).requires_grad_(False)
        self._sync_every, self._tau = sync_every, tau
        self._on_shortage = on_shortage
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        self._parameters: list[Tensor] = list(self.online.parameters())
        self.optimizer = Adam(self._parameters, learning_rate=learning_rate)
        self._threads = threads if device.type == "cpu" else 1
        torch_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            self._threads, thread_name_prefix="learn", initializer=lambda: torch.set_num_threads(torch_threads)
        )
        self.target.load_state_dict(self.online.state_dict())

    @property
    def policy(self) -> nn.Module:
        """What to play with when it counts: a moving average plays more steadily than the online network."""
        return self.target if self._tau < 1 else self.online

    @property
    def learning_rate(self) -> float:
        return self.optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self.optimizer.learning_rate = value

    @torch.no_grad()
    def q_values(self, obs: Array) -> Tensor:
        """Q-values [lanes, actions] of uint8 observations [lanes, stack, ...]."""
        with self._autocast():
            q: Tensor = self.online(torch.as_tensor(obs, device=self.device))
            return q

    def act(self, obs: Array, masks: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Greedy actions [lanes] for uint8 observations [lanes, stack, ...] among the legal ones [lanes, actions]."""
        return greedy(self.q_values(obs), masks)

    @torch.no_grad()
    def play(self, obs: Array, masks: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """The policy's actions, in float32 as whoever plays it later: like `act`."""
        return greedy(self.policy(torch.as_tensor(obs, device=self.device)), masks)

    def update(self, batch: Batch | TensorBatch, weights: Array) -> Losses:
        """One optimiser step on n-step transitions with importance weights float32 [batch]."""
        while True:
            try:
                gradients, losses = self.gradients(batch, weights)
            except (RuntimeError, MemoryError) as error:
                if not is_shortage(error) or self.accumulate * self._threads >= len(weights):
                    raise
                self.accumulate *= 2
                release_memory(self.device)
                self._on_shortage(self.accumulate)
            else:
                self.apply(gradients)
                return losses

    @stages.wait(SHARES)
    def gradients(self, batch: Batch | TensorBatch, weights: Array) -> tuple[list[Tensor], Losses]:
        """Gradients of the batch's mean loss (in float16: scaled), a tensor for each parameter. Changes nothing."""
        shares = self._shares(len(weights))
        gradients: list[Tensor] = []
        losses = list[Tensor]()
        for part in self._pool.map(lambda share: self._share(batch, weights, share), shares):
            part_gradients, *rest = part
            if gradients:
                torch._foreach_add_(gradients, part_gradients)
            else:
                gradients = part_gradients
            losses.append(torch.stack(rest))
        return gradients, self._found(batch, losses)

    @stages("optimise")
    def apply(self, gradients: list[Tensor]) -> None:
        """An optimiser step with what `gradients` gave."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer: Any = self.optimizer  # of one the scaler needs less than its types say
        self._scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT_NORM)
        self._scaler.step(optimizer)
        self._scaler.update()
        self.updates += 1
        if self.updates % self._sync_every == 0:
            self._move_target()

    def _shares(self, size: int) -> list[slice]:
        """The parts of a batch that are computed side by side or one after the other."""
        borders = np.linspace(0, size, min(size, self._threads * self.accumulate) + 1).astype(int)
        return [slice(*pair) for pair in itertools.pairwise(borders)]

    @staticmethod
    def _found(batch: Batch | TensorBatch, parts: list[Tensor]) -> Losses:
        """What was found in the shares of a batch, [3, share] each: losses, Q-values, absolute TD errors."""
        found = torch.cat(parts, 1)
        if isinstance(batch, TensorBatch):
            loss_mean, q_mean = found[:2].mean(1).tolist()
            return Losses(loss_mean, q_mean, found[2])
        loss, q, td_errors = found.cpu().numpy()
        return Losses(float(loss.mean()), float(q.mean()), td_errors)

    def _share(
        self, batch: Batch | TensorBatch, weights: Array, share: slice
    ) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        """A share's part of the gradients of the batch's mean; loss, Q-value and absolute TD error of each sample."""
        loss, losses, q, td_errors = self._loss(batch, weights, share)
        with stages("backward"):
            gradients = list(torch.autograd.grad(self._scaler.scale(loss), self._parameters))
        return gradients, losses, q, td_errors

    @stages("forward")
    def _loss(self, batch: Batch | TensorBatch, weights: Array, share: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A share's part of the batch's mean loss; loss, Q-value and absolute TD error of each sample."""

        def tensor(array: Array) -> Tensor:
            return torch.as_tensor(array[share], device=self.device)

        dtype = getattr(torch, self.precision)
        with stages("transfer"):
            obs, next_obs = tensor(batch.obs).to(dtype), tensor(batch.next_obs).to(dtype)
        with self._autocast():
            with torch.no_grad():
                next_q = self.online(next_obs)
                if batch.next_masks is not None:
                    next_q = next_q.masked_fill(~tensor(batch.next_masks), -torch.inf)
                best = next_q.argmax(1, keepdim=True)
                next_value = self.target(next_obs).gather(1, best).squeeze(1)
                targets = tensor(batch.returns) + tensor(batch.discounts) * next_value
            q: Tensor = self.online(obs).gather(1, tensor(batch.actions)[:, None]).squeeze(1)
            losses = tensor(weights) * F.smooth_l1_loss(q, targets, reduction="none")
            loss = losses.sum() / len(weights)
        return loss, losses.detach(), q.detach(), (targets - q.detach()).abs()

    @stages("synchronise")
    @torch.no_grad()
    def _move_target(self) -> None:
        torch._foreach_lerp_(list(self.target.parameters()), self._parameters, self._tau)

    def tensors(self) -> list[Tensor]:
        """Every tensor that learning changes, in an order of its own: weights, target, the optimiser's state."""
        tensors = [*self._parameters, *self.target.parameters()]
        for held in self.optimizer.state:
            tensors += [held[name] for name in SLOTS]
        return tensors

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state as flat names, for a checkpoint: `<parameter index>.<name>`."""
        state = enumerate(self.optimizer.state)
        return {f"{index}.{name}": value for index, slots in state for name, value in slots.items()}

    def load_optimizer_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `optimizer_tensors` gave; older checkpoints from before the first update hold none."""
        for key, value in tensors.items():
            index, name = key.split(".")
            self.optimizer.state[int(index)][name].copy_(value)

    def scaler_state(self) -> dict[str, Any]:
        """What float16's gradient scale has become, for a checkpoint (JSON); empty in other precisions."""
        return dict(self._scaler.state_dict())

    def load_scaler_state(self, state: dict[str, Any]) -> None:
        if state:
            self._scaler.load_state_dict(state)

    def close(self) -> None:
        self._pool.shutdown()

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        """Mixed precision for a forward pass.

        Without autocast's weight cache: before PyTorch 2.10 it kept the casts of the pass without gradients, and the
        pass that follows got no gradients from them (pytorch/pytorch#112583). Each pass uses a weight once, so nothing
        is lost.
        """
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.precision), cache_enabled=False)


_SHORTAGES = ("out of memory", "can't allocate memory", "alloc_failed")
"""How PyTorch's errors say that memory ran out, in lower case: CUDA and MPS, the CPU's allocator, cuBLAS and cuDNN.
Only CUDA's caching allocator raises an exception of its own."""


def is_shortage(error: RuntimeError | MemoryError) -> bool:
    """Whether memory ran out, of the device or of this machine."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return any(shortage in text for shortage in _SHORTAGES)


def release_memory(device: torch.device) -> None:
    """Hand memory that PyTorch keeps for later back to the device."""
    if device.type == "cuda":
        with torch.cuda.device(device):  # the cache of the current device is emptied
            torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
