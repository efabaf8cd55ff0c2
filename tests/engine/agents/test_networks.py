"""Networks: parts that only some devices use, and those of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from engine.agents import DoubleDQN
from engine.agents.networks import (
    FROZEN_AFTER,
    Normalized,
    _convolve_blocks,
    _divides_into_blocks,
    make_network,
)
from engine.buffers import Batch
from engine.config.fields import ConfigError
from engine.evaluation.policy import greedy_act
from engine.runners.learning.checkpoint import on_cpu


def test_a_convolution_of_blocks_is_the_convolution() -> None:
    torch.manual_seed(0)
    for height, width in ((84, 84), (50, 60), (37, 63)):
        layer = nn.Conv2d(4, 5, 8, stride=4, dtype=torch.float64)
        x = torch.rand(2, 4, height, width, dtype=torch.float64)
        torch.testing.assert_close(_convolve_blocks(x, layer.weight, layer.bias, 4), layer(x))
    layer = nn.Conv2d(3, 2, (6, 4), stride=2, dtype=torch.float64)
    x = torch.rand(1, 3, 11, 9, dtype=torch.float64)
    assert _divides_into_blocks(layer)
    torch.testing.assert_close(
        _convolve_blocks(x, layer.weight, layer.bias, 2), F.conv2d(x, layer.weight, layer.bias, 2)
    )


def test_other_convolutions_are_not_made_of_blocks() -> None:
    for layer in (nn.Conv2d(4, 8, 8, stride=3), nn.Conv2d(4, 8, 3, stride=1), nn.Conv2d(4, 8, 8, stride=4, padding=1)):
        assert not _divides_into_blocks(layer)


@pytest.mark.parametrize(
    ("planes", "parameters"),
    [(4, 132_566), (7, 132_998), (10, 133_430), (6, 132_854)],
    ids=["Asterix and Breakout", "Freeway", "Seaquest", "Space Invaders"],
)
def test_the_network_for_minatar_is_that_of_the_paper(planes: int, parameters: int) -> None:
    network = make_network("minatar", 1, (planes, 10, 10), 6)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    convolution, hidden, last = (layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear))
    obs = torch.randint(0, 2, (3, 1, planes, 10, 10), dtype=torch.uint8)
    theirs = last(hidden(convolution(obs[:, 0].float()).relu().flatten(1)).relu())
    torch.testing.assert_close(network(255 * obs), theirs)


OWN = "tests.support.own_networks"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Unused", "it must learn every parameter, and shared.weight gets no gradient"),
        ("Frozen", "it must learn every parameter, and last.weight gets no gradient"),
        ("InPlace", "can't learn: RuntimeError: one of the variables needed for gradient computation"),
        ("Empty", "has no parameters to learn"),
        ("Double", "its parameters and buffers must be float32, got float64"),
        ("DoubleBuffer", "its parameters and buffers must be float32, got float64"),
        ("Counting", "must not change its buffers in evaluation mode, in which it acts"),
        ("Replacing", "must change its buffers in place"),
        ("Squeezed", r"must return float32 \[1, 2\] for a batch of 1, got float32 \[2\]"),
        ("Two", r"must return float32 \[3, 2\] for a batch of 3, got float32 \[2, 2\]"),
        ("Exit", "fails: SystemExit: 4"),
        ("Pair", r"must return float32 \[3, 2\] for a batch of 3, got tuple"),
        ("no_module", r"must make a torch\.nn\.Module, got function"),
    ],
)
def test_a_network_of_the_users_that_can_not_learn_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_network(f"{OWN}:{name}", 1, (4,), 2)


def test_a_network_normalizes_by_what_was_played_until_it_is_frozen() -> None:
    random = np.random.default_rng(0)
    played = random.normal((0, 5, 1e4, 0.1), (1, 1e-3, 3, 0), (200, 16, 4)).astype(np.float32)  # the last is constant
    network = make_network("mlp", 1, (4,), 2, normalized=True)
    assert isinstance(network, Normalized)
    for frames in played:
        network.observe(torch.from_numpy(frames))
    exact = played.reshape(-1, 4).astype(np.float64)
    np.testing.assert_allclose(network.mean.numpy(), exact.mean(0), rtol=1e-5)
    np.testing.assert_allclose(network.deviation.numpy(), exact.std(0), rtol=1e-2, atol=1e-6)
    inner, seen = network.network, list[torch.Tensor]()
    inner.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    network(torch.tensor([[[0.0, 5.0, 1e9, 0.1]], [[1.0, 5.002, -1e9, 0.1]]]))
    torch.testing.assert_close(seen[0][:, 0], torch.tensor([[0, 0, 10, 0], [1, 2, -10, 0.0]]), rtol=0.1, atol=0.1)
    network.count += FROZEN_AFTER
    before = [buffer.clone() for buffer in network.buffers()]
    network.observe(torch.full((16, 4), 1e3))
    assert all(map(torch.equal, network.buffers(), before))


def test_only_the_owner_observes_and_all_its_networks_know_it() -> None:
    for owner in (True, False):
        networks = [make_network("mlp", 1, (4,), 2, normalized=True) for _ in range(2)]
        agent = agent_of(networks, policy_tau=0.1, owner=owner)
        agent.observe(np.array([[1, 2, 3, 4], [3, 4, 5, 6]], np.float32))
        for network in (agent.online, agent.target, agent.policy):
            assert network.get_buffer("mean").tolist() == ([2, 3, 4, 5] if owner else [0, 0, 0, 0])
        agent.update(BATCH, np.ones(512, np.float32))
        agent.act(OBS)
        assert {float(each) for each in agent.buffers[2::3]} == {2.0 if owner else 0.0}


def test_layers_with_running_means_learn_in_one_thread_and_act_without_changing_them() -> None:
    agent = agent_of([make_network(f"{OWN}:Normed", 1, (4,), 2) for _ in range(2)], threads=2, policy_tau=0.1, tau=1.0)
    assert not agent.computes_ahead
    agent.update(BATCH, np.ones(512, np.float32))
    agent.act(OBS)
    agent.play(OBS)
    for network in (agent.online, agent.target, agent.policy):
        assert int(network.get_buffer("normed.num_batches_tracked")) == 1
        assert torch.equal(network.get_buffer("normed.running_mean"), agent.online.get_buffer("normed.running_mean"))


OBS = np.random.default_rng(0).random((512, 1, 4), np.float32)
BATCH = Batch(OBS, np.zeros(512, np.int64), np.zeros(512, np.float32), OBS, np.ones(512, np.float32))


def networks_that_drop() -> list[nn.Module]:
    torch.manual_seed(0)
    return [make_network(f"{OWN}:Net", 1, (4,), 2) for _ in range(2)]


def agent_of(networks: list[nn.Module], **options: Any) -> DoubleDQN:
    return DoubleDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision="float32", **options)


def gradients(agent: DoubleDQN) -> list[torch.Tensor]:
    return agent.gradients(BATCH, np.ones(512, np.float32))[0]


def test_layers_that_share_weights_are_saved_and_nothing_is_dropped_in_evaluations(tmp_path: Path) -> None:
    agent = agent_of(networks_that_drop(), tau=1.0)
    chosen = agent.play(OBS)
    assert np.array_equal(agent.play(OBS), chosen)
    save_file(on_cpu(agent.online.state_dict()), tmp_path / "own.safetensors")
    restored = make_network(f"{OWN}:Net", 1, (4,), 2)
    restored.load_state_dict(load_file(tmp_path / "own.safetensors"))
    assert np.array_equal(greedy_act(restored.eval())(OBS, None), chosen)


@pytest.mark.parametrize("double_q", [False, True])
def test_actions_and_targets_drop_nothing_and_gradients_do(double_q: bool) -> None:
    agent = agent_of(networks_that_drop(), double_q=double_q, policy_tau=0.1)
    for _ in range(2):  # the second time with weights that have learned
        assert torch.equal(agent.q_values(OBS), agent.q_values(OBS))
        ((_, targets),) = agent.begin(BATCH)
        assert torch.equal(targets(), targets())
        learned = gradients(agent)
        assert not torch.equal(learned[0], gradients(agent)[0])
        before = agent.q_values(OBS)
        agent.apply(learned)
        assert not torch.equal(agent.q_values(OBS), before)


def test_a_layer_that_was_made_for_evaluation_never_drops() -> None:
    networks = networks_that_drop()
    for network in networks:
        network.get_submodule("drop").eval()
    agent = agent_of(networks)
    assert torch.equal(gradients(agent)[0], gradients(agent)[0])
