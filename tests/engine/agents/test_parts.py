"""Quantiles, Munchausen returns and noise, against their formulas."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from engine.agents import DoubleDQN, make_network
from engine.agents.dueling import Head
from engine.agents.munchausen import Munchausen
from engine.agents.networks import LargestIn, QuantileQNetwork
from engine.agents.noisy import NoisyLinear, draw_noise, noisy_layers
from engine.agents.spectral import SpectralConv2d, spectral_layers
from engine.agents.values import huber, quantile_huber, values_of, values_of_actions
from engine.buffers import Batch
from engine.games.snake.network import PathsQNetwork
from engine.games.snake.rules import SnakeLanes
from tests.support.agent import Table, batch_of

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
HEADS = {"plain": Head(), "quantiles": Head(5), "noisy": Head(noisy=True), "both": Head(5, noisy=True)}
MUNCHAUSEN = Munchausen(0.9, 0.03, 1.0)


def agent_of(head: Head, **options: Any) -> DoubleDQN:
    torch.manual_seed(0)
    networks = [make_network("grid", 1, (9, 9), 3, head=head) for _ in range(2)]
    options = {"learning_rate": 1e-3, "precision": "float32", "tau": 0.1, "policy_tau": 0.05, **options}
    return DoubleDQN(*networks, device=CPU, **options)


def learned(agent: DoubleDQN, updates: int = 3) -> DoubleDQN:
    for number in range(updates):
        batch, weights = batch_of(number)
        agent.update(batch, weights, agent.begin(batch))
    return agent


def assert_equal(one: DoubleDQN, other: DoubleDQN) -> None:
    for ours, theirs in zip(one.tensors(), other.tensors(), strict=True):
        assert torch.equal(ours, theirs)


# ------------------------------------------------------------------------------------------------ losses


def test_the_quantile_loss_is_that_of_the_paper() -> None:
    """Equation 10 of Dabney et al. 2018, number by number, and its slopes by finite differences."""
    random = np.random.default_rng(0)
    values, targets = random.normal(scale=2, size=(2, 3, 4)), random.normal(scale=2, size=(3, 5))

    def loss(quantiles: np.ndarray, wanted: np.ndarray) -> float:
        total = 0.0
        for i, quantile in enumerate(quantiles):
            for target in wanted:
                u = target - quantile
                huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                total += abs((i + 0.5) / len(quantiles) - (u < 0)) * huber / len(wanted)
        return total

    losses, slopes = quantile_huber(torch.from_numpy(values), torch.from_numpy(targets))
    for image in range(2):
        for sample in range(3):
            quantiles, wanted = values[image, sample], targets[sample]
            assert losses[image, sample].item() == pytest.approx(loss(quantiles, wanted))
            for i in range(4):
                step = 1e-6 * np.eye(4)[i]
                slope = (loss(quantiles + step, wanted) - loss(quantiles - step, wanted)) / 2e-6
                assert slopes[image, sample, i].item() == pytest.approx(slope, abs=1e-5)


def test_the_loss_of_means_is_the_huber_loss() -> None:
    values, targets = torch.tensor([[[0.0], [3.0], [-5.0]]]), torch.tensor([[0.5], [1.0], [0.0]])
    losses, slopes = huber(values, targets)
    assert losses.tolist() == [[0.125, 1.5, 4.5]]
    assert slopes.tolist() == [[[-0.5], [1.0], [-1.0]]]


def test_an_agent_learns_the_quantiles_of_a_return() -> None:
    """Of returns uniform in [0, 10], whose fractions 1/8, 3/8, 5/8, 7/8 lie at 1.25, 3.75, 6.25, 8.75."""
    torch.manual_seed(0)
    networks = [make_network("mlp-128", 1, (1,), 2, head=Head(4)) for _ in range(2)]
    agent = DoubleDQN(*networks, device=CPU, learning_rate=3e-3, precision="float32", tau=1.0, sync_every=9)
    random = np.random.default_rng(0)
    for number in range(600):
        agent.learning_rate = 3e-3 / (1 + number / 100)
        obs = np.ones((256, 1, 1), np.float32)
        returns = random.uniform(0, 10, 256).astype(np.float32)
        agent.update(
            Batch(obs, np.zeros(256, np.int64), returns, obs, np.zeros(256, np.float32)), np.ones(256, np.float32)
        )
    found = values_of(agent.online, torch.ones(1, 1, 1))[0, 0]
    assert found.tolist() == pytest.approx([1.25, 3.75, 6.25, 8.75], abs=0.6)  # the Huber loss draws them together
    assert agent.q_values(np.ones((1, 1, 1), np.float32))[0, 0].item() == pytest.approx(5, abs=0.3)


@pytest.mark.parametrize(("name", "shape"), [("grid", (9, 9)), ("minatar", (4, 5, 5)), ("nature", (40, 40))])
def test_q_values_are_the_means_of_quantiles(name: str, shape: tuple[int, ...]) -> None:
    network = make_network(name, 2, shape, 3, head=Head(7))
    obs = torch.randint(0, 256, (4, 2, *shape), dtype=torch.uint8)
    values = values_of(network, obs)
    assert values.shape == (4, 3, 7)
    torch.testing.assert_close(values.mean(2), network(obs))
    of_action, gaps = values_of_actions(network, obs, torch.tensor([2, 1, 0, 1]))
    assert torch.equal(of_action[0, 0], values[0, 2])
    torch.testing.assert_close(gaps[0], network(obs)[0].max() - network(obs)[0, 2])


def test_quantiles_of_normalized_vectors_and_of_images_with_numbers() -> None:
    vectors = make_network("mlp", 1, (4,), 3, normalized=True, head=Head(5))
    agent = DoubleDQN(
        vectors, make_network("mlp", 1, (4,), 3, normalized=True, head=Head(5)), device=CPU, learning_rate=1e-3,
        precision="float32", threads=2,
    )  # fmt: skip
    agent.observe(np.array([[1, 2, 3, 4], [3, 4, 5, 6]], np.float32))
    assert agent.online.get_buffer("network.mean").tolist() == [2, 3, 4, 5]
    assert agent.target.get_buffer("network.mean").tolist() == [2, 3, 4, 5]
    assert agent.computes_ahead  # no pass changes these buffers
    both = make_network("grid", 1, (10, 8), 3, numbers=2, head=Head(5))
    assert both(torch.zeros(2, 1, 10, 8, dtype=torch.uint8)).shape == (2, 3)


def test_the_network_for_paths_turns_quantiles_as_it_turns_values() -> None:
    env = SnakeLanes(32, height=6, width=6, seed=0)
    frames = env.reset()
    torch.manual_seed(0)
    network, plain = QuantileQNetwork(PathsQNetwork((5, 6, 6), head=Head(3))), PathsQNetwork((5, 6, 6))
    with torch.no_grad():  # the same values three times
        ours, theirs = network.network.state_dict(), plain.state_dict()
        for name, tensor in ours.items():
            tensor.copy_(theirs[name] if tensor.shape == theirs[name].shape else theirs[name].repeat_interleave(3, 0))
        values = values_of(network, frames[:, None])
        for number in range(3):
            torch.testing.assert_close(values[..., number], plain(frames[:, None]))


# ------------------------------------------------------------------------------------------------ Munchausen


def test_munchausen_targets_are_those_of_the_paper() -> None:
    """Equation 1 of Vieillard et al. 2020 by hand, with a discount of 0.5 and returns of 1."""
    rows = [[1.0, 2.0, 0.5], [0.3, 0.2, 0.4]]
    for temperature, clip in ((0.5, 1.0), (0.03, 1.0), (0.5, 100.0)):
        agent = DoubleDQN(
            Table(rows), Table(rows), device=CPU, learning_rate=1e-9, precision="float32", sync_every=10,
            double_q=False, munchausen=Munchausen(0.9, temperature, clip),
        )  # fmt: skip
        obs, next_obs = (np.array(each, np.uint8).reshape(-1, 1, 1, 1) for each in ([0, 0, 1], [1, 1, 0]))
        actions = np.array([0, 1, 2])
        batch = Batch(obs, actions, np.ones(3, np.float32), next_obs, np.array([0.5, 0.5, 0.0], np.float32))
        found = agent.update(batch, np.ones(3, np.float32)).td_errors
        for sample, (state, following, discount) in enumerate(((0, 1, 0.5), (0, 1, 0.5), (1, 0, 0.0))):
            policies = []
            for row in (rows[state], rows[following]):
                weights = [math.exp((q - max(row)) / temperature) for q in row]
                policies.append([weight / sum(weights) for weight in weights])
            likely = temperature * math.log(policies[0][actions[sample]])
            soft = sum(
                pi * (q - temperature * math.log(pi)) for pi, q in zip(policies[1], rows[following], strict=True)
            )
            target = 1 + 0.9 * max(-clip, min(0.0, likely)) + discount * soft
            assert found[sample] == pytest.approx(abs(target - rows[state][actions[sample]]), abs=1e-5)


def test_at_a_low_temperature_states_are_worth_their_best_action() -> None:
    values, q = torch.tensor([[[1.0, 3.0], [4.0, 6.0]]]), torch.tensor([[2.0, 5.0]])
    torch.testing.assert_close(Munchausen(0.9, 1e-3, 1.0).state_values(values, q), torch.tensor([[4.0, 6.0]]))
    assert Munchausen(0.9, 1e-3, 1.0).reward(q, torch.tensor([1])).item() == pytest.approx(0, abs=1e-6)
    assert Munchausen(0.9, 1e-3, 1.0).reward(q, torch.tensor([0])).item() == pytest.approx(-0.9)


# ------------------------------------------------------------------------------------------------ noise


def test_noise_has_the_mean_and_the_deviation_of_the_paper() -> None:
    torch.manual_seed(0)
    layer, generator = NoisyLinear(16, 8), torch.Generator().manual_seed(0)
    assert layer.weight_deviation.unique().tolist() == pytest.approx([0.5 / 4])
    x, found = torch.ones(1, 16), list[torch.Tensor]()
    assert layer.weight.abs().max() <= 0.25 and torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    with torch.no_grad():
        for _ in range(20_000):
            layer.draw(generator)
            found.append(layer(x))
        outputs = torch.cat(found)
    torch.testing.assert_close(outputs.mean(0), nn.functional.linear(x, layer.weight, layer.bias)[0], atol=0.03, rtol=0)
    # f(e)^2 = |e| has the mean sqrt(2 / pi). A weight's noise is a product of two; a bias has one.
    square = math.sqrt(2 / math.pi)
    expected = 0.125 * math.sqrt(16 * square**2 + square)
    assert outputs.std(0).mean().item() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("double_q", [True, False])
def test_acting_and_learning_are_noisy_and_evaluation_is_not(double_q: bool) -> None:
    agent = agent_of(HEADS["noisy"], double_q=double_q)
    batch, weights = batch_of(0)
    assert not torch.equal(agent.q_values(batch.obs), agent.q_values(batch.obs))
    ((_, targets),) = agent.begin(batch)
    before = targets()
    agent.update(batch, weights)
    for network in (agent.online, agent.target, agent.policy):
        obs = torch.from_numpy(batch.obs)
        assert torch.equal(network(obs), network(obs))
        assert all(layer._noise is None for layer in noisy_layers(network))
    assert (agent.play(batch.obs) == agent.play(batch.obs)).all()
    ((_, targets),) = agent.begin(batch)
    after = targets()
    assert not torch.allclose(before, after, atol=1e-3)  # other noise, and hardly other weights


def test_noise_is_learned() -> None:
    agent = agent_of(HEADS["noisy"])
    before = [layer.weight_deviation.clone() for layer in noisy_layers(agent.online)]
    learned(agent)
    for layer, old in zip(noisy_layers(agent.online), before, strict=True):
        assert not torch.equal(layer.weight_deviation, old)


def test_acting_changes_no_noise_that_learning_sees() -> None:
    ones = [agent_of(HEADS["noisy"], targets_ahead=ahead) for ahead in (False, True)]
    for number in range(3):
        batch, weights = batch_of(number)
        for agent in ones:
            shares = agent.begin(batch)
            for _ in range(2 if agent.computes_ahead else 1):
                agent.q_values(batch.obs)
            agent.update(batch, weights, shares)
    assert_equal(*ones)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_noise_of_an_update_follows_from_the_seed_and_its_number(seed: int) -> None:
    agent = agent_of(HEADS["noisy"], seed=seed)
    network = make_network("grid", 1, (9, 9), 3, head=HEADS["noisy"])
    gradients = agent.gradients(*batch_of(0))[0]
    draw_noise(network)  # of others
    assert torch.equal(agent.gradients(*batch_of(0))[0][-1], gradients[-1])
    assert not torch.equal(agent_of(HEADS["noisy"], seed=1 - seed).gradients(*batch_of(0))[0][-1], gradients[-1])
    agent.updates += 1
    assert not torch.equal(agent.gradients(*batch_of(0))[0][-1], gradients[-1])


# ------------------------------------------------------------------------------------------------ wide IMPALA


def largest_values(network: nn.Module) -> list[float]:
    return [
        torch.linalg.svdvals((layer.weight / (layer.u @ layer.weight.flatten(1) @ layer.v)).flatten(1))[0].item()
        for layer in spectral_layers(network)
    ]


def wide_agent(**options: Any) -> DoubleDQN:
    torch.manual_seed(0)
    networks = [make_network("impala-wide", 1, (12, 12), 3) for _ in range(2)]
    options = {"precision": "float32", "tau": 0.1, "policy_tau": 0.05, "learning_rate": 1e-3, **options}
    return DoubleDQN(*networks, device=CPU, **options)


def images_of(number: int) -> tuple[Batch, np.ndarray]:
    random = np.random.default_rng(number)
    obs, next_obs = random.integers(0, 256, (2, 16, 1, 12, 12), np.uint8)
    returns, discounts, weights = random.random((3, 16), np.float32)
    return Batch(obs, random.integers(0, 3, 16), returns, next_obs, discounts), weights


def test_a_normalised_convolution_is_that_of_weights_with_the_largest_singular_value_1() -> None:
    torch.manual_seed(0)
    layer = SpectralConv2d(6, 5, 3, padding=1)
    with torch.no_grad():
        layer.weight *= 7
    for _ in range(100):
        layer.advance()
    x = torch.randn(2, 6, 8, 8)
    largest = torch.linalg.svdvals(layer.weight.flatten(1))[0]
    torch.testing.assert_close(layer(x), nn.functional.conv2d(x, layer.weight / largest, layer.bias, padding=1))
    # The slopes along the weights take into account that they change their largest singular value: a longer matrix is
    # the same convolution.
    (slope,) = torch.autograd.grad(layer(x).square().sum(), layer.weight)
    assert abs((slope * layer.weight).sum()) < 1e-3 * slope.norm() * layer.weight.norm()


def test_largest_singular_values_stay_1_while_a_network_learns() -> None:
    agent = wide_agent(threads=2, sync_every=2)
    assert len(spectral_layers(agent.online)) == 12 and agent.computes_ahead
    for number in range(20):
        agent.update(*images_of(number))
        if number == 0:
            assert not torch.equal(agent.target.get_buffer("features.2.layers.1.u"), buffer_of(agent.online))
    for network, most in ((agent.online, 0.02), (agent.target, 0.1), (agent.policy, 0.1)):
        assert largest_values(network) == pytest.approx([1.0] * 12, abs=most)


def buffer_of(network: nn.Module) -> torch.Tensor:
    return network.get_buffer("features.2.layers.1.u")


def test_passes_change_no_buffer_so_threads_give_the_same_bits() -> None:
    agents = [wide_agent(threads=2, targets_ahead=True) for _ in range(2)]
    for agent in agents:
        for number in range(3):
            batch, weights = images_of(number)
            agent.update(batch, weights, agent.begin(batch))
    assert_equal(*agents)


def test_the_wide_network_is_that_of_the_paper() -> None:
    """Clark et al. 2024, figure E7: 2.91 million parameters with IQN's embedding, [64, 2304], of 0.15 million, noise
    (2.4 million more, which it leaves out) and nine actions."""
    network = make_network("impala-wide", 4, (84, 84), 9)
    features = network.get_submodule("features")(torch.zeros(1, 4, 84, 84))
    assert features.shape == (1, 64, 6, 6)
    layer_norms = 2 * 2 * 512
    count = sum(parameter.numel() for parameter in network.parameters()) - layer_norms
    assert count + 64 * 2304 + 2304 == pytest.approx(2.91e6, rel=0.01)


@pytest.mark.parametrize("size", [(11, 11), (7, 8), (6, 5), (2, 13)])
def test_the_largest_in_windows_are_those_of_pytorch(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size, requires_grad=True)
    layer = LargestIn(6)
    by_kernel = layer(x)
    layer.compiled = False
    by_operations = layer(x)
    assert by_kernel.shape[2:] == (min(size[0], 6), min(size[1], 6))
    assert torch.equal(by_operations, by_kernel)
    slopes = torch.randn_like(by_kernel)
    ours, theirs = (torch.autograd.grad(each, x, slopes)[0] for each in (by_operations, by_kernel))
    torch.testing.assert_close(ours, theirs)


def test_a_student_of_a_distillation_normalises_too() -> None:
    from engine.extras.distillation.student import Student

    torch.manual_seed(0)
    student = Student(make_network("impala-wide", 1, (12, 12), 3), learning_rate=1e-2)
    for number in range(10):
        batch, _ = images_of(number)
        student.update(batch.obs, np.random.default_rng(number).random((16, 3), np.float32))
    for network in (student.network, student.average):
        assert largest_values(network) == pytest.approx([1.0] * 12, abs=0.05)
    student.close()


# ------------------------------------------------------------------------------------------------ all together


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("munchausen", [None, MUNCHAUSEN])
@pytest.mark.parametrize("options", [{"threads": 2, "accumulate": 2}, {"threads": 1, "accumulate": 3}])
def test_a_shared_batch_gives_the_gradients_of_the_whole_one(
    head: str, munchausen: Munchausen | None, options: dict[str, int]
) -> None:
    make: Callable[..., DoubleDQN] = lambda **more: agent_of(  # noqa: E731
        HEADS[head], munchausen=munchausen, double_q=munchausen is None, **more
    )
    batch, weights = batch_of(0)
    whole, expected = make().gradients(batch, weights)
    shared, found = make(**options).gradients(batch, weights)
    for ours, theirs in zip(shared, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_a_batch_of_vectors_is_learned_by_pytorch_and_by_compiled_passes_alike(head: str) -> None:
    """Munchausen returns work with compiled passes; noise and quantiles are PyTorch's."""
    torch.manual_seed(0)
    networks = [make_network("mlp", 1, (4,), 3, normalized=True, head=HEADS[head]) for _ in range(2)]
    agent = DoubleDQN(
        *networks, device=CPU, learning_rate=1e-3, precision="float32", double_q=False, munchausen=MUNCHAUSEN
    )
    assert bool(agent._compiled) == (head == "plain")
    random = np.random.default_rng(0)
    obs, next_obs = random.normal(size=(2, 32, 1, 4)).astype(np.float32)
    returns, discounts, weights = random.random((3, 32), np.float32)
    batch = Batch(obs, random.integers(0, 3, 32), returns, next_obs, discounts)
    compiled, found = agent.gradients(batch, weights)
    agent._compiled.clear()
    plain, expected = agent.gradients(batch, weights)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    if head == "plain":
        flat = torch.cat([gradient.flatten() for gradient in plain])
        assert compiled[0].norm().item() == pytest.approx(flat.norm().item(), rel=1e-4)


@pytest.mark.parametrize("head", ["quantiles", "both"])
def test_illegal_actions_are_never_chosen_in_targets(head: str) -> None:
    agent = agent_of(HEADS[head])
    batch, _ = batch_of(0)
    masks = np.zeros((len(batch.actions), 3), np.bool_)
    masks[:, 1] = True
    ((_, targets),) = agent.begin(dataclasses.replace(batch, next_masks=masks))
    values = values_of(agent._valuing, torch.from_numpy(batch.next_obs))[:, 1]
    expected = torch.from_numpy(batch.returns)[:, None] + torch.from_numpy(batch.discounts)[:, None] * values
    torch.testing.assert_close(targets(), expected)
