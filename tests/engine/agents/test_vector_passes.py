"""The compiled passes of networks for vectors, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents import DoubleDQN
from engine.agents.layout import flattened, parts_of
from engine.agents.networks import Normalized, VectorQNetwork
from engine.agents.vector_passes import VectorPasses
from engine.buffers import Batch


@pytest.mark.parametrize(
    ("numbers", "hidden", "actions", "samples"),
    [(4, 128, 2, 64), (8, 32, 4, 16), (2, 30, 3, 50), (6, 13, 5, 1), (1, 4, 1, 3)],
)
def test_values_and_gradients_are_those_of_pytorch(numbers: int, hidden: int, actions: int, samples: int) -> None:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    network = VectorQNetwork(2, (numbers,), actions, hidden)
    parameters = list(network.parameters())
    passes = VectorPasses(network, flattened(parameters))
    obs = random.normal(size=(samples, 2, numbers)).astype(np.float32)
    taken = random.integers(0, actions, samples)
    targets, importance = (3 * random.random((2, samples), np.float32)) - 1
    every_q = network(torch.from_numpy(obs))
    torch.testing.assert_close(passes.values(obs), every_q.detach(), rtol=1e-4, atol=1e-5)

    gradients, found = passes.gradients(obs, taken, targets, importance, 0.3, 2 * samples)
    q = every_q.gather(1, torch.from_numpy(taken)[:, None]).squeeze(1)
    lowered = torch.from_numpy(targets) - 0.3 * (every_q.max(1).values - q).detach()
    losses = torch.from_numpy(importance) * F.smooth_l1_loss(q, lowered, reduction="none")
    expected = torch.autograd.grad(losses.sum() / (2 * samples), parameters)
    for ours, theirs in zip(parts_of(gradients[0], parameters), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)
    wanted = torch.stack((losses, q, (lowered - q).abs())).detach()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


class Wrapped(nn.Module):
    """The same network, which the agent does not know."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor) -> Tensor:
        q: Tensor = self.network(obs)
        return q


def agent_of(wrap: Any, *, normalized: bool = False, **options: Any) -> DoubleDQN:
    torch.manual_seed(0)
    networks = [wrap(VectorQNetwork(1, (4,), 3, 32)) for _ in range(2)]
    if normalized:
        networks = [Normalized(each, 4) for each in networks]
    options = {"tau": 0.1, "policy_tau": 0.05, **options}
    return DoubleDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision="float32", **options)


@pytest.mark.parametrize(
    "options", [{}, {"normalized": True}, {"threads": 2, "accumulate": 2}, {"double_q": False, "targets_ahead": True}]
)
def test_an_agent_learns_with_compiled_passes_what_it_learns_with_pytorch(options: dict[str, Any]) -> None:
    compiled, plain = agent_of(lambda network: network, **options), agent_of(Wrapped, **options)
    random = np.random.default_rng(0)
    for _ in range(5):
        obs, next_obs = random.normal(3, size=(2, 30, 1, 4)).astype(np.float32)
        for agent in (compiled, plain):
            agent.observe(obs[:, 0])
        returns, discounts, weights = random.random((3, 30), np.float32)
        batch = Batch(obs, random.integers(0, 3, 30), returns, next_obs, discounts)
        ours, theirs = (agent.update(batch, weights, agent.begin(batch)) for agent in (compiled, plain))
        assert (ours.loss, ours.q_mean) == pytest.approx((theirs.loss, theirs.q_mean), rel=1e-3)
        np.testing.assert_allclose(ours.td_errors, theirs.td_errors, rtol=1e-3, atol=1e-5)
    for one, other in zip(compiled.tensors(), plain.tensors(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-4)
    assert compiled.optimizer_tensors().keys() == plain.optimizer_tensors().keys()
    np.testing.assert_allclose(compiled.q_values(obs), plain.q_values(obs), rtol=1e-3, atol=1e-3)


def test_flattened_parameters_keep_their_values_and_layouts() -> None:
    network = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Linear(7, 1)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(network.parameters())
    before = [parameter.detach().clone(memory_format=torch.preserve_format) for parameter in parameters]
    flat = flattened(parameters)
    for parameter, old in zip(parameters, before, strict=True):
        assert torch.equal(parameter, old) and parameter.stride() == old.stride()
        assert parameter.data_ptr() % 64 == flat.data_ptr() % 64
    flat.fill_(2)
    assert all((parameter == 2).all() for parameter in parameters)
