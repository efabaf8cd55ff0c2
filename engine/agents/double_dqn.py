"""Double DQN (van Hasselt et al. 2016, arXiv:1509.06461) with n-step targets and importance weights.

The core of the algorithm is in `_targets` and `_loss`: target = R + discount * Q_target(s', argmax_a Q_online(s', a))
over the actions that are legal in s', and the loss of what the network tells of returns (`engine.agents.values`).
Without `double_q`, the target network chooses the action too (Mnih et al. 2015); with `munchausen`, nobody does
(`engine.agents.munchausen`). With `advantage_learning`, the target is lower by that share of max_b Q_online(s, b) -
Q_online(s, a), so that the Q-values of a state differ more (Bellemare et al. 2016, arXiv:1512.04860, who take both from
the target network).

A batch is split into shares. An update sums their gradients, clips the norm to 10 (Wang et al. 2016) and takes a step
of the optimiser. Shares are computed in parallel by threads on CPUs, or one after the other if memory is short; the
split does not change the batch's mean loss. Targets need only the next states, so another thread can compute them
meanwhile, which changes no bit.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.agents.exploration import greedy
from engine.agents.graphed_steps import GraphedSteps
from engine.agents.layout import as_input, autocast, flattened, parts_of, placed
from engine.agents.munchausen import Munchausen
from engine.agents.networks import Normalized, OfRawNumbers, buffers_of, for_learning, inner_of, set_gamma
from engine.agents.noisy import draw_noise, noisy_layers, view_of
from engine.agents.optimisers import SLOTS, Adam
from engine.agents.spectral import spectral_layers
from engine.agents.values import loss_of, of_actions, values_of, values_of_actions
from engine.agents.vector_passes import VectorPasses
from engine.buffers.device.storage import Array, TensorBatch
from engine.buffers.frames import Batch
from engine.runtime.devices import Precision, is_out_of_memory, release_memory
from engine.runtime.stopwatch import SHARES, stopwatch

MAX_GRADIENT_NORM = 10.0
GAP_PACE = 0.001
"""How much faster than before action gaps may grow at each update, if a larger share of them is to be lost: a share s
makes them 1 / (1 - s) times as large. From 0.5 to 0.95 they grow tenfold, within about 2,300 updates."""

Share = tuple[slice, Callable[[], Tensor]]
"""Samples of a batch, and what returns their targets float32 [samples, numbers]; see `DoubleDQN.begin`."""


@dataclass(frozen=True)
class Losses:
    """Results of one update, or means over several."""

    loss: float  # importance-weighted mean loss
    q_mean: float  # mean Q-value of the actions taken


@dataclass(frozen=True)
class UpdateResult(Losses):
    """Results of one update, with those of each sample."""

    td_errors: Array  # float32 [batch], absolute; on the host or the device, like the batch


@stopwatch("forward")  # where the device has not computed it yet
def result_of(batch: Batch | TensorBatch, found: Tensor) -> UpdateResult:
    """The result of an update from `DoubleDQN.gradients`, float32 [3, batch]. Waits for the device."""
    if isinstance(batch, TensorBatch):
        loss_mean, q_mean = found[:2].mean(1).tolist()
        return UpdateResult(loss_mean, q_mean, found[2])
    loss, q, td_errors = found.cpu().numpy()
    return UpdateResult(float(loss.mean()), float(q.mean()), td_errors)


def _scaled(network: nn.Module, obs: Tensor) -> NDArray[np.float32]:
    """Observations on the host as a `VectorQNetwork` in a network takes them."""
    return (network.scaled(obs) if isinstance(network, Normalized) else obs).numpy()


class DoubleDQN:
    """A Double-DQN agent: online and target network, optimiser, and the methods `act` and `update`.

    Args:
        network: the online network.
        target: the target network, of the same architecture. It is initialised with the online network's weights.
        device: where both networks are computed.
        learning_rate: of the optimiser.
        precision: dtype of the forward passes; float32, or another one for mixed precision.
        sync_every, tau: after every `sync_every` updates the target moves by the factor `tau` towards the online
            network. 1 is a hard copy (Mnih et al. 2015); less is a moving average (Lillicrap et al. 2016,
            arXiv:1509.02971).
        policy_tau: if not 0, `policy` is a network of its own, which every update moves by this factor towards the
            online network (Polyak averaging); a slower one than the target plays more consistently.
        double_q: whether the online network chooses the action whose value the target network gives.
        munchausen: the terms that Munchausen returns add, if they are used; without `double_q` and illegal actions.
        advantage_learning: share of the action gap that targets lose, less than 1; 0 with illegal actions. A smaller
            one may be set later, and a larger one, which is then approached update by update (`GAP_PACE`).
        optimizer: its class.
        threads: number of threads that split a batch (CPU only).
        targets_ahead: whether another thread computes targets even if `threads` is 1 (CPU only).
        accumulate: number of parts of a batch that are computed one after the other, to save memory. It is doubled when
            memory runs out; then `on_out_of_memory` is called with the new number.
        owner: whether this agent's buffers are those of all agents that learn together.
        seed: of the noise with which noisy networks learn on a CPU.
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
        policy_tau: float = 0.0,
        double_q: bool = True,
        munchausen: Munchausen | None = None,
        advantage_learning: float = 0.0,
        optimizer: type[Adam] = Adam,
        threads: int = 1,
        targets_ahead: bool = False,
        accumulate: int = 1,
        on_out_of_memory: Callable[[int], None] = lambda accumulate: None,
        owner: bool = True,
        seed: int = 0,
    ) -> None:
        self.device = device
        self.precision: Precision = precision
        self.accumulate = accumulate
        self.updates = 0
        self.online = placed(network, device)
        self._learning = for_learning(self.online)
        self.target = placed(target, device).requires_grad_(False).eval()
        self._acting, self._choosing = view_of(self.online), view_of(self.online)
        self._valuing = view_of(self.target)
        self._is_noisy, self._seed = bool(noisy_layers(self.online)), seed
        self._loss_of_values = loss_of(self.online)
        is_target = policy_tau == tau and sync_every == 1
        self._average = copy.deepcopy(self.target) if policy_tau and not is_target else None
        self._sync_every, self._tau, self._double_q = sync_every, tau, double_q
        self._munchausen = munchausen
        self._policy_tau = policy_tau
        # A tensor, because a CUDA graph would keep the old value of a number.
        self._gap_share, self._gap_goal = (
            torch.tensor(advantage_learning, dtype=torch.float32, device=device) for _ in range(2)
        )
        self._on_out_of_memory = on_out_of_memory
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        self._parameters: list[Tensor] = list(self.online.parameters())
        networks = [each for each in (self.online, self.target, self._average) if each is not None]
        self._weights, *self._averages = (flattened(list(each.parameters())) for each in networks)
        self._weights.grad = torch.zeros_like(self._weights)
        self._gradients = parts_of(self._weights.grad, self._parameters)
        self.optimizer = optimizer([self._weights], learning_rate=learning_rate)
        self._owner = owner
        self._spectral = [spectral_layers(each) for each in networks]
        self._directions = [[each for layer in layers for each in layer.buffers()] for layers in self._spectral]
        theirs = {id(each) for directions in self._directions for each in directions}
        self._buffers = [[each for each in buffers_of(network) if id(each) not in theirs] for network in networks]
        self.buffers = [each for buffers in (*self._buffers[1:], self._buffers[0]) for each in buffers]
        """Of all networks, the online network's last, without those of spectral layers, which follow the weights."""
        self._observes = any(isinstance(each, Normalized) for each in self.online.modules())
        if any(id(buffer) not in theirs for buffer in buffers_of(inner_of(self.online))):
            threads, targets_ahead = 1, False  # passes with gradients may change them
        self._compiled: dict[nn.Module, VectorPasses] = {}
        if VectorPasses.fit(self.online) and device.type == "cpu" and precision == "float32":
            flat = (self._weights, *self._averages)
            self._compiled = {each: VectorPasses(each, its) for each, its in zip(networks, flat, strict=True)}
        self._threads = threads if device.type == "cpu" else 1
        torch_threads = torch.get_num_threads()
        self._pool = (
            ThreadPoolExecutor(
                self._threads, thread_name_prefix="learn", initializer=lambda: torch.set_num_threads(torch_threads)
            )
            if device.type == "cpu" and (threads > 1 or targets_ahead)
            else None
        )
        self._graphed = GraphedSteps(self) if device.type == "cuda" else None
        self.target.load_state_dict(self.online.state_dict())
        self.load_policy(self.online.state_dict())

    @property
    def policy(self) -> nn.Module:
        """The network for evaluation and saved policies: an average of the online network, which plays more
        consistently. Without `policy_tau`, or if the target moves alike, that is the target if it is a moving average
        (tau < 1), else the online network."""
        if self._average is not None:
            return self._average
        return self.target if self._tau < 1 else self.online

    def load_policy(self, weights: dict[str, Tensor]) -> None:
        """Load the weights of `policy` if it is a network of its own."""
        if self._average is not None:
            self._average.load_state_dict(weights)

    @property
    def learning_rate(self) -> float:
        return self.optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self.optimizer.learning_rate = value

    @property
    def advantage_learning(self) -> float:
        """The share of the action gap that was set last."""
        return self._gap_goal.item()

    @advantage_learning.setter
    def advantage_learning(self, value: float) -> None:
        self._gap_goal.fill_(value)

    @property
    def gap_share(self) -> float:
        """The share of the action gap that targets lose now: `advantage_learning`, or on its way there."""
        return self._gap_share.item()

    @gap_share.setter
    def gap_share(self, value: float) -> None:
        self._gap_share.fill_(value)

    def set_gamma(self, gamma: float) -> None:
        """Set the discount factor of networks for afterstates."""
        for network in {self.online, self.target, self.policy}:
            set_gamma(network, gamma)

    @torch.no_grad()
    def observe(self, frames: Array) -> None:
        """Take played frames [n, *frame_shape] into what `OfRawNumbers` know, if this agent is the owner."""
        if self._owner and isinstance(self.online, OfRawNumbers) and self._observes:
            self.online.observe(torch.as_tensor(frames, device=self.device))
            for buffers in self._buffers[1:]:
                torch._foreach_copy_(buffers, self._buffers[0])

    def q_values(self, obs: Array) -> Tensor:
        """Q-values [lanes, actions] of observations [lanes, stack, ...]; on the host."""
        if self._graphed is not None:
            return self._graphed.q_values(torch.as_tensor(obs))
        return self.online_q(torch.as_tensor(obs, device=self.device)).cpu()

    @torch.no_grad()
    def online_q(self, obs: Tensor) -> Tensor:
        """`q_values` on the agent's device, of observations on it."""
        images = self._input(obs)
        if self._is_noisy:
            draw_noise(self._acting)
        with autocast(self.device.type, self.precision):
            return self._values(self._acting, images).mean(2)

    def _values(self, network: nn.Module, obs: Tensor) -> Tensor:
        """Values [batch, actions, numbers], without gradients."""
        if self._compiled:
            return self._compiled[network].values(_scaled(network, obs))[..., None]
        return values_of(network, obs)

    def act(self, obs: Array, masks: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Greedy actions [lanes] for observations [lanes, stack, ...] among the legal ones [lanes, actions]."""
        return greedy(self.q_values(obs), masks)

    @torch.no_grad()
    def play(self, obs: Array, masks: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Greedy actions of `policy`, as for `act`. In float32, as when the saved policy is played later."""
        return greedy(self.policy(torch.as_tensor(obs, device=self.device)), masks)

    def common_weights(self, weights: Array, scales: Array) -> Array:
        """Importance weights [batch] relative to the largest of a batch of which other processes may have parts.

        `weights` are relative to the largest of this part; `scales` [batch] are what they were divided by.
        """
        return weights

    @property
    def computes_ahead(self) -> bool:
        """Return whether `begin` has threads that compute targets."""
        return self._pool is not None

    def begin(self, batch: Batch | TensorBatch) -> list[Share]:
        """Split the batch for the next update, and start computing targets in other threads, if there are some;
        otherwise each share's are computed when they are asked for. Until that update, only act."""
        if self._is_noisy:  # the same for all shares, and if memory runs out
            self._draw_noise()
        size = len(batch.actions)
        borders = np.linspace(0, size, min(size, self._threads * self.accumulate) + 1).astype(int)
        samples = [slice(*pair) for pair in itertools.pairwise(borders)]
        if self._pool is None:
            return [(each, partial(self._targets, batch, each)) for each in samples]
        return [(each, self._pool.submit(self._targets, batch, each).result) for each in samples]

    def _draw_noise(self) -> None:
        """For the next update: on a CPU the same whatever threads do, so that a resumed run equals an uninterrupted
        one. On other devices seeding can't be part of a graph."""
        generator = None
        if self.device.type == "cpu":
            (seed,) = np.random.SeedSequence((self._seed, self.updates)).generate_state(1)
            generator = torch.Generator().manual_seed(int(seed))
        for network in (self._learning, self._choosing, self._valuing):
            draw_noise(network, generator)

    def update(self, batch: Batch | TensorBatch, weights: Array, shares: list[Share] | None = None) -> UpdateResult:
        """One optimiser step on n-step transitions with importance weights float32 [batch]. shares: of `begin`.

        If memory runs out, `accumulate` is doubled and the update repeated. Raises the error of PyTorch or Python if it
        runs out even with single samples.
        """
        while True:
            try:
                if self._graphed is not None and not isinstance(batch, TensorBatch):
                    gradients, found = self._graphed.gradients(batch, weights)
                else:
                    gradients, found = self.gradients(batch, weights, shares)
            except (RuntimeError, MemoryError) as error:
                self.split_after(error, len(weights))
                shares = None  # they are too large
            else:
                self.apply(gradients)
                return result_of(batch, found)

    def split_after(self, error: RuntimeError | MemoryError, batch_size: int) -> None:
        """Double `accumulate` if an update failed because memory ran out; raise the error again if that can't help."""
        if not is_out_of_memory(error) or not self._split(batch_size):
            raise error

    def _split(self, batch_size: int) -> bool:
        """Double `accumulate`, so that an update needs less memory. Returns False if its parts are single samples."""
        if self.accumulate * self._threads >= batch_size:
            return False
        self.accumulate *= 2
        if self._graphed is not None:
            self._graphed.forget_updates()  # graphs hold the memory of the larger parts
        release_memory(self.device)
        self._on_out_of_memory(self.accumulate)
        return True

    @stopwatch.wait(SHARES)
    def gradients(
        self, batch: Batch | TensorBatch, weights: Array, shares: list[Share] | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Gradients of the batch's mean loss, a tensor for each parameter, or one for all that are compiled; scaled in
        float16. Changes no weights. shares: of `begin`.

        Also returns, as float32 [3, batch] on the agent's device, each sample's weighted loss, Q-value and absolute TD
        error. Does not wait for the device.
        """
        shares = shares or self.begin(batch)
        gradients: list[Tensor] = []
        found: list[Tensor] = []
        each = self._pool.map if self._pool is not None and self._threads > 1 else map
        for part_gradients, part_found in each(lambda share: self._share_gradients(batch, weights, share), shares):
            if gradients:
                torch._foreach_add_(gradients, part_gradients)
            else:
                gradients = part_gradients
            found.append(part_found)
        return gradients, torch.cat(found, 1)

    @property
    def moves_target(self) -> bool:
        """Return whether the next update moves the target network."""
        return (self.updates + 1) % self._sync_every == 0

    def apply(self, gradients: list[Tensor]) -> None:
        """Take an optimiser step with the result of `gradients`."""
        if self._graphed is not None and self._graphed.holds(gradients):
            self._graphed.step(move_target=self.moves_target)
        else:
            self.step(gradients, move_target=self.moves_target)
        self.updates += 1

    @stopwatch("optimise")
    def step(self, gradients: list[Tensor], *, move_target: bool) -> None:
        """`apply` without counting. Changes only the contents of tensors, and does not wait for the device."""
        whole = self._weights.grad
        assert whole is not None
        torch._foreach_copy_(self._gradients if gradients[0].shape != whole.shape else [whole], gradients)
        optimizer: Any = self.optimizer  # the scaler's type annotations ask for more than it uses
        self._scaler.unscale_(optimizer)
        whole.mul_((MAX_GRADIENT_NORM / (torch.linalg.vector_norm(whole) + 1e-6)).clamp_(max=1))
        self._scaler.step(optimizer)
        self._scaler.update()
        for layer in self._spectral[0]:
            layer.advance()
        self._move_averages(target=move_target)

    def _share_gradients(self, batch: Batch | TensorBatch, weights: Array, share: Share) -> tuple[list[Tensor], Tensor]:
        """The share's contribution to the gradients, and its part [3, share] of what `gradients` returns."""
        if self._compiled:
            return self._compiled_gradients(batch, weights, share)
        loss, found = self._loss(batch, weights, share)
        with stopwatch("backward"):
            return list(torch.autograd.grad(self._scaler.scale(loss), self._parameters)), found

    @stopwatch("backward")  # and forward
    def _compiled_gradients(
        self, batch: Batch | TensorBatch, weights: Array, share: Share
    ) -> tuple[list[Tensor], Tensor]:
        """`_share_gradients`, all of them in one tensor."""
        samples, targets = share
        obs = _scaled(self.online, self._of(batch.obs, samples))
        actions, importance = (self._of(each, samples).numpy() for each in (batch.actions, weights))
        with stopwatch.wait("forward"):
            target = targets()[:, 0].numpy()
        passes = self._compiled[self.online]
        return passes.gradients(obs, actions, target, importance, self._gap_share.item(), len(weights))

    def _input(self, obs: Tensor) -> Tensor:
        return as_input(self.online, obs, getattr(torch, self.precision))

    def _of(self, array: Array, samples: slice) -> Tensor:
        """The samples' part of an array of a batch, on the agent's device."""
        return torch.as_tensor(array[samples], device=self.device)

    @stopwatch("forward")
    @torch.no_grad()
    def _targets(self, batch: Batch | TensorBatch, samples: slice) -> Tensor:
        """Targets float32 [samples, numbers], without what `advantage_learning` takes off."""
        with stopwatch("transfer"):
            next_obs = self._input(self._of(batch.next_obs, samples))
        returns = self._of(batch.returns, samples)
        with autocast(self.device.type, self.precision):
            values = self._values(self._valuing, next_obs)
            q = (self._values(self._choosing, next_obs) if self._double_q else values).mean(2)
            if batch.next_masks is not None:
                q = q.masked_fill(~self._of(batch.next_masks, samples), -torch.inf)
            if self._munchausen is None:
                next_values = of_actions(values, q.argmax(1))
            else:
                next_values = self._munchausen.state_values(values, q)
                q = self._values(self._valuing, self._input(self._of(batch.obs, samples))).mean(2)
                returns = returns + self._munchausen.reward(q, self._of(batch.actions, samples))
            return returns[:, None] + self._of(batch.discounts, samples)[:, None] * next_values

    @stopwatch("forward")
    def _loss(self, batch: Batch | TensorBatch, weights: Array, share: Share) -> tuple[Tensor, Tensor]:
        """A number with the gradients of the share's contribution to the mean loss, and its part [3, share] of what
        `gradients` returns."""
        samples, targets = share
        with stopwatch("transfer"):
            obs = self._input(self._of(batch.obs, samples))
        with autocast(self.device.type, self.precision):
            values, gaps = values_of_actions(self._learning, obs, self._of(batch.actions, samples))
        with stopwatch.wait("forward"):
            target = targets()
        with torch.no_grad():
            target = target - (self._gap_share * gaps)[..., None]
            losses, slopes = self._loss_of_values(values, target)
            importance = self._of(weights, samples)
            slopes = slopes * (importance / (len(weights) * len(values)))[..., None]
            q = values.mean(2)
            found = torch.stack((losses * importance, q, (q - target.mean(1)).abs())).mean(1)
        return (values * slopes).sum(), found

    @stopwatch("synchronise")
    @torch.no_grad()
    def _move_averages(self, *, target: bool) -> None:
        rates = (self._tau if target else 0.0, self._policy_tau)
        for average, rate, layers, directions in zip(
            self._averages, rates, self._spectral[1:], self._directions[1:], strict=False
        ):
            if rate:
                average.lerp_(self._weights, rate)
            if rate == 1 and directions:
                torch._foreach_copy_(directions, self._directions[0])
            elif rate:
                for layer in layers:
                    layer.advance()
        if self._buffers[0]:
            for buffers in self._buffers[1 if target else 2 :]:
                torch._foreach_copy_(buffers, self._buffers[0])
        self._gap_share.copy_(torch.minimum(self._gap_goal, 1 - (1 - self._gap_share) / (1 + GAP_PACE)))

    def tensors(self) -> list[Tensor]:
        """All tensors that learning changes, in a fixed order: weights, target's and policy's, the share of the action
        gap, optimiser state, `buffers`."""
        directions = [each for of_network in self._directions for each in of_network]
        return [
            self._weights,
            *self._averages,
            self._gap_share,
            *self.optimizer.state[0].values(),
            *directions,
            *self.buffers,
        ]

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state for a checkpoint, with flat names: `<parameter index>.<name>`."""
        (held,) = self.optimizer.state
        slots = [
            [held["step"]] * len(self._parameters),
            *(parts_of(held[each], self._parameters) for each in SLOTS[1:]),
        ]
        state = enumerate(zip(*slots, strict=True))
        return {f"{index}.{name}": value for index, parts in state for name, value in zip(SLOTS, parts, strict=True)}

    def load_optimizer_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Load the result of `optimizer_tensors`; it is empty in old checkpoints from before the first update. Raises
        `ValueError` if it is that of another optimiser."""
        held = self.optimizer_tensors()
        shapes = ({key: tensor.shape for key, tensor in each.items()} for each in (tensors, held))
        if tensors and next(shapes) != next(shapes):
            raise ValueError("the optimiser's state must have the shapes of the network's weights")
        for key, value in tensors.items():
            held[key].copy_(value)

    def scaler_state(self) -> dict[str, Any]:
        """The state of float16's gradient scaler for a checkpoint (JSON); empty for other precisions."""
        return dict(self._scaler.state_dict())

    def load_scaler_state(self, state: dict[str, Any]) -> None:
        if state:
            self._scaler.load_state_dict(state)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
