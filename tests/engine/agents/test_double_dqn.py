"""The agent: its target, its updates and exploration."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.agents import DoubleDQN, DuelingQNetwork, layout
from engine.agents.double_dqn import GAP_PACE
from engine.agents.exploration import annealed, epsilon_ladder, member_ladders, random_actions
from engine.buffers import Batch
from engine.games.tetris.network import ColumnsQNetwork
from engine.runtime.devices import Precision
from tests.support.agent import Table

pytestmark = pytest.mark.usefixtures("one_thread")


def batch(
    obs: list[int], actions: list[int], returns: list[float], next_obs: list[int], discounts: list[float]
) -> Batch:
    def pixels(values: list[int]) -> np.ndarray:
        return np.array(values, np.uint8).reshape(-1, 1, 1, 1)

    return Batch(
        pixels(obs), np.array(actions), np.array(returns, np.float32), pixels(next_obs), np.array(discounts, np.float32)
    )


def test_target_takes_the_action_from_online_and_its_value_from_target() -> None:
    online, target = Table([[1.0, 2.0], [5.0, 4.0]]), Table([[0.0, 0.0], [0.0, 0.0]])
    agent = DoubleDQN(online, target, device=torch.device("cpu"), learning_rate=1e-9, precision="float32")
    with torch.no_grad():
        target.values.copy_(torch.tensor([[0.0, 0.0], [10.0, 30.0]]))
    losses = agent.update(batch([0, 0], [1, 0], [1.0, 1.0], [1, 1], [0.5, 0.0]), np.array([1.0, 0.5], np.float32))
    # 1 + 0.5 * Q_target(1, argmax Q_online(1) = 0) = 6, and 1 where the episode ended
    assert losses.td_errors == pytest.approx([abs(6 - 2), abs(1 - 1)], abs=1e-6)
    assert losses.loss == pytest.approx((1.0 * (4 - 0.5) + 0.5 * 0) / 2)
    assert losses.q_mean == pytest.approx(1.5)


def test_without_double_q_the_target_network_chooses_and_values() -> None:
    online, target = Table([[1.0, 2.0], [5.0, 4.0]]), Table([[0.0, 0.0], [0.0, 0.0]])
    agent = DoubleDQN(
        online, target, device=torch.device("cpu"), learning_rate=1e-9, precision="float32", sync_every=10,
        double_q=False,
    )  # fmt: skip
    with torch.no_grad():
        target.values.copy_(torch.tensor([[0.0, 0.0], [10.0, 30.0]]))
    losses = agent.update(batch([0], [1], [1.0], [1], [0.5]), np.ones(1, np.float32))
    assert losses.td_errors == pytest.approx([abs(1 + 0.5 * 30 - 2)], abs=1e-6)
    masked = dataclasses.replace(batch([0], [1], [1.0], [1], [0.5]), next_masks=np.array([[True, False]]))
    assert agent.update(masked, np.ones(1, np.float32)).td_errors == pytest.approx([abs(1 + 0.5 * 10 - 2)], abs=1e-6)


def test_advantage_learning_lowers_the_targets_of_actions_that_are_not_the_best() -> None:
    online, target = Table([[1.0, 2.0], [5.0, 4.0]]), Table([[0.0, 0.0], [0.0, 0.0]])
    agent = DoubleDQN(
        online, target, device=torch.device("cpu"), learning_rate=1e-9, precision="float32", sync_every=10,
        advantage_learning=0.5,
    )  # fmt: skip
    losses = agent.update(batch([0, 0], [0, 1], [7.0, 7.0], [1, 1], [0.0, 0.0]), np.ones(2, np.float32))
    # 7 - 0.5 * (2 - 1) for action 0, and 7 for action 1, which is the best
    assert losses.td_errors == pytest.approx([abs(6.5 - 1), abs(7 - 2)], abs=1e-6)
    agent.gap_share = 0.75
    losses = agent.update(batch([0, 0], [0, 1], [7.0, 7.0], [1, 1], [0.0, 0.0]), np.ones(2, np.float32))
    assert losses.td_errors == pytest.approx([abs(6.25 - 1), abs(7 - 2)], abs=1e-6)


def test_dueling_advantages_are_centred() -> None:
    torch.manual_seed(0)
    network = DuelingQNetwork(4, (50, 60), 5)
    obs = torch.randint(0, 256, (3, 4, 50, 60), dtype=torch.uint8)
    features = network.features(obs.float() / 255).flatten(1)
    assert torch.allclose(network(obs).mean(1, keepdim=True), network.value(features), atol=1e-5)


def test_small_differences_between_large_values_outlive_bfloat16() -> None:
    torch.manual_seed(0)
    network = DuelingQNetwork(4, (50, 60), 5)
    last, value = network.advantage[-1], network.value[-1]
    assert isinstance(last, nn.Linear) and isinstance(value, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.arange(5) / 100)
        value.bias.fill_(13.0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            q = network(torch.zeros(1, 4, 50, 60, dtype=torch.uint8))
    assert (q[0] - q[0, 0]).tolist() == pytest.approx([0.0, 0.01, 0.02, 0.03, 0.04], abs=1e-5)


def test_columns_share_weights() -> None:
    """Shifting a board by a column shifts its advantages by a column, away from the walls."""
    torch.manual_seed(0)
    network = ColumnsQNetwork(1, (4, 9, 24), 96)
    obs = torch.zeros(1, 1, 4, 9, 24)
    obs[..., 2, :2, :3] = 255  # the piece stays in its corner
    one, other = obs.clone(), obs.clone()
    one[..., 0, 5:, 11], other[..., 0, 5:, 12] = 255, 255
    # The advantages alone: differences within a column's rotations, where the value and the mean are gone.
    ours, theirs = ((q := network(board).view(4, 24)) - q[:1] for board in (one, other))
    assert torch.allclose(ours[:, 11], theirs[:, 12], atol=1e-6)
    assert not torch.allclose(ours[:, 11], theirs[:, 11], atol=1e-4)
    turned = one.clone()
    turned[..., 2, :3, :2] = 255  # another piece is seen in every column
    assert (network(turned) - network(one)).abs().min() > 0


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_agent_learns_which_action_pays(precision: str) -> None:
    """Two observations with different best actions; the agent learns both in a few updates."""
    torch.manual_seed(0)
    networks = [DuelingQNetwork(4, (50, 60), 3) for _ in range(2)]
    agent = DoubleDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision=precision)  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    pictures = random.integers(0, 256, (2, 4, 50, 60)).astype(np.uint8)
    paying = np.array([2, 0])
    for _ in range(60):
        which, actions = random.integers(0, 2, 32), random.integers(0, 3, 32)
        returns = (actions == paying[which]).astype(np.float32)
        obs = pictures[which]
        agent.update(Batch(obs, actions, returns, obs, np.zeros(32, np.float32)), np.ones(32, np.float32))
    assert agent.act(pictures).tolist() == paying.tolist()


def test_mixed_precision_gives_every_weight_its_gradient() -> None:
    """PyTorch before 2.10 lost most of them because of autocast's weight cache, so no pass may use it."""
    batch, weights = batch_of(32)
    expected, _ = make_agent().gradients(batch, weights)
    agent, caches = make_agent(precision="bfloat16"), list[bool]()
    with nn.modules.module.register_module_forward_pre_hook(
        lambda *_: caches.append(torch.is_autocast_cache_enabled())
    ):
        found, _ = agent.gradients(batch, weights)
    assert caches and not any(caches)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() < 0.5 * theirs.norm()  # 1 where it is lost


@pytest.mark.parametrize("shape", [(4, 50, 60), (4, 84, 84), (4, 36, 37), (3, 40, 40), (12, 40, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_layout_of_screens_changes_no_value(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    screens = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, *shape)).astype(np.uint8))
    screens[0, :, 0, :4] = torch.tensor([0, 1, 254, 255], dtype=torch.uint8)
    network = DuelingQNetwork(shape[0], shape[1:], 3)
    for trains in (False, True):
        with torch.set_grad_enabled(trains):
            given = layout.as_input(network, screens, dtype)
            images = layout.for_convolutions(given)
        assert given.dtype == dtype
        assert torch.equal(given.to(torch.uint8), screens)
        assert torch.equal(images, given)
        last = dtype == torch.bfloat16 or trains
        assert images.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


class Scaled(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return obs / 255 if obs.dtype == torch.uint8 else obs.float()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_network_of_ones_own_always_sees_bytes(precision: Precision) -> None:
    """A network that divides bytes by 255, and nothing else, would otherwise learn from one input and play another."""
    seen: list[torch.dtype] = []
    networks = [nn.Sequential(nn.Flatten(), Scaled(), nn.Linear(4 * 50 * 60, 3)) for _ in range(2)]
    for network in networks:
        network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    agent = DoubleDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision=precision)
    batch, weights = batch_of(4)
    agent.update(batch, weights)
    agent.act(batch.obs)
    agent.play(batch.obs)
    assert len(seen) >= 5 and {*seen} == {torch.uint8}


def batch_of(size: int, seed: int = 0) -> tuple[Batch, np.ndarray]:
    """Random transitions on 50x60 pictures with three actions, and their importance weights."""
    random = np.random.default_rng(seed)
    obs, next_obs = random.integers(0, 256, (2, size, 4, 50, 60)).astype(np.uint8)
    discounts = (0.9 * (random.random(size) > 0.2)).astype(np.float32)
    returns = random.normal(size=size).astype(np.float32)
    batch = Batch(obs, random.integers(0, 3, size), returns, next_obs, discounts)
    return batch, random.random(size).astype(np.float32)


def make_agent(threads: int = 1, accumulate: int = 1, **options: Any) -> DoubleDQN:
    torch.manual_seed(0)
    networks = [DuelingQNetwork(4, (50, 60), 3) for _ in range(2)]
    return DoubleDQN(
        *networks, threads=threads, accumulate=accumulate,
        **{"device": torch.device("cpu"), "learning_rate": 1e-3, "precision": "float32", **options},
    )  # fmt: skip


@pytest.mark.parametrize(("threads", "accumulate"), [(2, 1), (1, 4), (2, 3), (8, 8)])
def test_a_shared_batch_gives_the_gradients_of_the_whole_one(threads: int, accumulate: int) -> None:
    batch, weights = batch_of(30)
    whole, expected = make_agent().gradients(batch, weights)
    shared, found = make_agent(threads, accumulate).gradients(batch, weights)
    for ours, theirs in zip(shared, whole, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert found[:2].mean(1).tolist() == pytest.approx(expected[:2].mean(1).tolist(), rel=1e-5)
    assert found[2].numpy() == pytest.approx(expected[2].numpy(), rel=1e-5)


def test_a_shared_batch_gives_the_same_bits_every_time() -> None:
    batch, weights = batch_of(64)
    agents = [make_agent(threads=3) for _ in range(2)]
    for agent in agents:
        for _ in range(5):
            agent.update(batch, weights)
    for ours, theirs in zip(*(agent.online.parameters() for agent in agents), strict=True):
        assert torch.equal(ours, theirs)


def test_targets_computed_ahead_give_the_same_bits() -> None:
    batches, obs = [batch_of(16, seed) for seed in range(3)], batch_of(8, 3)[0].obs
    agent, plain = make_agent(targets_ahead=True), make_agent()
    for batch, weights in batches:
        targets = agent.begin(batch)
        assert torch.equal(agent.q_values(obs), plain.q_values(obs))
        assert agent.update(batch, weights, targets).loss == plain.update(batch, weights).loss
    assert agent.computes_ahead and not plain.computes_ahead
    for ours, theirs in zip(agent.tensors(), plain.tensors(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize(
    "shortage",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.06 GB, max allowed: 9.07 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_an_update_that_runs_out_of_memory_is_repeated_in_smaller_shares(shortage: Exception, begins: bool) -> None:
    told: list[int] = []
    agent, plain = make_agent(targets_ahead=begins, on_out_of_memory=told.append), make_agent()

    def refuse(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[0] > 8:
            raise shortage

    agent.online.register_forward_pre_hook(refuse)
    batch, weights = batch_of(32)
    for _ in range(3):
        losses = agent.update(batch, weights, agent.begin(batch) if begins else None)
        expected = plain.update(batch, weights)
        assert losses.loss == pytest.approx(expected.loss, rel=1e-4)
    assert told == [2, 4] and agent.accumulate == 4  # it stays small: the next update would run out again
    for ours, theirs in zip(agent.online.parameters(), plain.online.parameters(), strict=True):
        # Where a gradient is nearly 0, its rounding decides where Adam goes: by 1e-3 in three updates, as everywhere.
        assert (ours - theirs).abs().mean() < 1e-4


@pytest.mark.parametrize("tau", [0.25, 1.0])
def test_the_target_moves_by_tau_after_so_many_updates(tau: float) -> None:
    agent = make_agent(sync_every=3, tau=tau)
    before = [parameter.clone() for parameter in agent.target.parameters()]
    for number in range(3):
        for target, old in zip(agent.target.parameters(), before, strict=True):
            assert torch.equal(target, old)
        agent.update(*batch_of(8, seed=number))
    for target, old, online in zip(agent.target.parameters(), before, agent.online.parameters(), strict=True):
        assert torch.allclose(target, old + tau * (online - old), atol=1e-7)


def test_an_averaged_target_is_the_policy() -> None:
    assert (agent := make_agent(tau=0.5)).policy is agent.target
    assert (agent := make_agent(tau=1.0)).policy is agent.online
    assert (agent := make_agent(tau=0.5, policy_tau=0.5)).policy is agent.target  # they would always be equal
    assert (agent := make_agent(tau=0.5, policy_tau=0.5, sync_every=2)).policy is not agent.target
    obs = np.random.default_rng(0).integers(0, 256, (64, 4, 50, 60)).astype(np.uint8)
    agent = make_agent(sync_every=100, tau=0.5)
    assert (agent.play(obs) == agent.act(obs)).all()
    for number in range(30):
        agent.update(*batch_of(8, seed=number))
    assert (agent.play(obs) != agent.act(obs)).any()


@pytest.mark.parametrize("harm", ["missing", "another shape"])
def test_the_state_of_another_optimizer_is_refused(harm: str) -> None:
    agent = make_agent()
    agent.update(*batch_of(8))
    tensors = agent.optimizer_tensors()
    changed = {**tensors, "0.exp_avg": torch.zeros(1)} if harm == "another shape" else dict(list(tensors.items())[:-1])
    with pytest.raises(ValueError, match="the optimiser's state must have the shapes"):
        make_agent().load_optimizer_tensors(changed)
    make_agent().load_optimizer_tensors(tensors)


def test_other_errors_are_not_treated_as_out_of_memory() -> None:
    agent = make_agent()

    def fail(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise RuntimeError("something else")

    agent.online.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="something else"):
        agent.update(*batch_of(8))


def test_illegal_actions_count_neither_in_acting_nor_in_the_target() -> None:
    online, target = Table([[1.0, 2.0], [5.0, 4.0]]), Table([[0.0, 0.0], [0.0, 0.0]])
    agent = DoubleDQN(online, target, device=torch.device("cpu"), learning_rate=1e-9, precision="float32")
    with torch.no_grad():
        target.values.copy_(torch.tensor([[0.0, 0.0], [10.0, 30.0]]))
    legal = np.array([[False, True], [True, False]])
    obs = np.array([1, 0], np.uint8).reshape(-1, 1, 1, 1)
    assert agent.act(obs).tolist() == [0, 1]
    assert agent.act(obs, legal).tolist() == [1, 0]
    masked = dataclasses.replace(batch([0], [1], [1.0], [1], [0.5]), next_masks=legal[:1])
    # action 0 of picture 1 looks best and is illegal: 1 + 0.5 * Q_target(1, 1) = 16
    assert agent.update(masked, np.ones(1, np.float32)).td_errors == pytest.approx([abs(16 - 2)])


def test_random_actions_are_legal_and_each_as_likely() -> None:
    masks = np.array([[True, False, True, True], [False, True, False, False]])
    random = np.random.default_rng(0)
    drawn = np.stack([random_actions(random, 2, 4, masks) for _ in range(3000)])
    assert set(drawn[:, 1]) == {1}
    counts = np.bincount(drawn[:, 0], minlength=4)
    assert counts[1] == 0 and (np.abs(counts[[0, 2, 3]] - 1000) < 130).all()  # five standard deviations
    unmasked = np.bincount(random_actions(random, 4000, 4, None), minlength=4)
    assert unmasked.size == 4 and (np.abs(unmasked - 1000) < 140).all()


def test_a_larger_share_of_the_action_gap_is_approached_update_by_update() -> None:
    agent = DoubleDQN(
        Table([[1.0, 2.0]]), Table([[0.0, 0.0]]), device=torch.device("cpu"), learning_rate=1e-3, precision="float32",
        advantage_learning=0.5,
    )  # fmt: skip

    def after(updates: int) -> float:
        for _ in range(updates):
            agent.update(batch([0], [1], [1.0], [0], [0.5]), np.ones(1, np.float32))
        return agent.gap_share

    assert after(3) == 0.5
    agent.advantage_learning = 0.95
    assert after(100) == pytest.approx(1 - 0.5 / (1 + GAP_PACE) ** 100, abs=1e-4)
    assert after(2_300) == pytest.approx(0.95)
    agent.advantage_learning = 0.25
    assert (after(1), agent.advantage_learning) == (0.25, 0.25)


def test_epsilon_ladder_of_ape_x() -> None:
    ladder = epsilon_ladder(8, 0.4)
    assert ladder[0] == pytest.approx(0.4)
    assert ladder[-1] == pytest.approx(0.4**8)
    assert annealed(ladder, 0, 100).tolist() == [1.0] * 8
    assert annealed(ladder, 50, 100)[0] == pytest.approx(0.7)
    assert annealed(ladder, 500, 100) == pytest.approx(ladder)
    assert epsilon_ladder(1, 0.4) == pytest.approx([0.4])
    of_members = member_ladders(4, 0.4, 2)
    assert of_members.shape == (2, 4) and sorted(of_members.ravel(), reverse=True) == ladder.tolist()
    assert of_members[0] == pytest.approx(ladder[::2])


def test_the_policy_is_a_slow_average_of_the_online_network() -> None:
    online, target = Table([[1.0, 2.0]]), Table([[0.0, 0.0]])
    agent = DoubleDQN(
        online, target, device=torch.device("cpu"), learning_rate=0.1, precision="float32", tau=0.5, policy_tau=0.25
    )
    policy = agent.policy
    assert isinstance(policy, Table) and policy.values.tolist() == [[1.0, 2.0]]
    expected = policy.values.clone()
    for _ in range(3):
        agent.update(batch([0], [1], [5.0], [0], [0.0]), np.ones(1, np.float32))
        expected += 0.25 * (online.values - expected)
    assert torch.allclose(policy.values, expected)
    assert not torch.allclose(policy.values, target.values)
    place = policy.values.untyped_storage().data_ptr()
    assert any(tensor.untyped_storage().data_ptr() == place for tensor in agent.tensors())
