"""Optimisers: equal to PyTorch's, with float16's scaler, and without importing PyTorch's compiler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from engine.agents import DuelingQNetwork, make_network, optimisers
from engine.agents.optimisers import EPSILON, SLOTS, Adam, RMSProp
from tests.support.program import PATIENCE_S


def step_both(
    one: Adam, other: torch.optim.Optimizer, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]
) -> None:
    """Take 20 steps with both optimisers along the same gradients, the last ten with a lower learning rate."""
    for number in range(20):
        if number == 10:
            one.learning_rate = other.param_groups[0]["lr"] = 1e-4
        for parameter, same in zip(ours, theirs, strict=True):
            parameter.grad = torch.randn_like(parameter)
            same.grad = parameter.grad.clone()
        one.step()
        other.step()


def test_adam_equals_pytorchs() -> None:
    networks = [DuelingQNetwork(stack=4, frame_shape=(50, 60), actions=5) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    ours, theirs = (list(network.parameters()) for network in networks)
    one = Adam(ours, learning_rate=5e-4)
    other = torch.optim.Adam(theirs, lr=5e-4, eps=EPSILON, fused=True)
    step_both(one, other, ours, theirs)
    for parameter, same, held in zip(ours, theirs, one.state, strict=True):
        assert torch.equal(parameter, same)
        assert all(torch.equal(held[name], other.state[same][name]) for name in SLOTS)


def test_rmsprop_equals_pytorchs() -> None:
    networks = [make_network("minatar", 1, (4, 10, 10), 6) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    ours, theirs = (list(network.parameters()) for network in networks)
    one = RMSProp(ours, learning_rate=5e-4)
    other = torch.optim.RMSprop(
        theirs, lr=5e-4, alpha=optimisers.RMSPROP_DECAY, eps=optimisers.RMSPROP_EPSILON, centered=True
    )
    step_both(one, other, ours, theirs)
    for parameter, same in zip(ours, theirs, strict=True):
        torch.testing.assert_close(parameter, same, rtol=1e-5, atol=1e-6)


def test_rmsprop_stays_finite_where_rounding_leaves_less_than_the_squared_mean() -> None:
    parameter = torch.zeros(3, requires_grad=True)
    optimizer, parameter.grad = RMSProp([parameter], learning_rate=1e-3), torch.ones(3)
    optimizer.state[0]["exp_avg"].fill_(1)
    optimizer.state[0]["exp_avg_sq"].fill_(1 - 2**-20)
    optimizer.step()
    assert torch.allclose(parameter, torch.tensor(-1e-3 / optimisers.RMSPROP_EPSILON))


def test_adam_skips_a_step_that_overflows_in_float16() -> None:
    parameters = [torch.ones(3, requires_grad=True)]
    agent: Any = Adam(parameters, learning_rate=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for factor in (1.0, float("inf"), 1.0):
        parameters[0].grad = None
        scaler.scale((parameters[0] * factor).sum()).backward()
        scaler.unscale_(agent)
        scaler.step(agent)
        scaler.update()
    assert agent.state[0]["step"] == 2
    assert torch.allclose(parameters[0], torch.tensor(0.8), atol=1e-4)


@pytest.mark.process
def test_learning_never_imports_the_compiler() -> None:
    """The import takes a second in every process."""
    code = (
        "import sys\n"
        "from tests.support.agent import agent_of, batch_of\n"
        "agent_of(0).update(*batch_of(0))\n"
        "assert 'torch' in sys.modules and not {'torch._dynamo', 'sympy'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
