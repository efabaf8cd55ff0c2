"""The agent: its target, exploration, automatic choices, and what a checkpoint restores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.agents import DoubleDQN, DuelingQNetwork
from engine.agents import autotune as probe
from engine.agents.autotune import choose, faster_precision, random_batch, still_valid, tune_batch_size
from engine.agents.double_dqn import Precision
from engine.agents.exploration import annealed, epsilon_ladder, random_actions
from engine.agents.networks import ColumnsQNetwork
from engine.buffers import Batch, NothingToSample, ReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.reading import make_config
from engine.config.run_config import AUTO
from engine.errors import UserError
from engine.runners.learner import DivergedError
from engine.runners.stats.counters import Counters
from engine.runs.run import read_config
from tests.support.learner import CONFIG, SPEC, feed, make_learner


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """More threads only slow small networks down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Table(nn.Module):
    """Q-values looked up by the observation's only pixel."""

    def __init__(self, rows: list[list[float]]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(rows))

    def forward(self, obs: Tensor) -> Tensor:
        return self.values[obs.flatten(1)[:, 0].long()]


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
        agent.target.values.copy_(torch.tensor([[0.0, 0.0], [10.0, 30.0]]))
    losses = agent.update(batch([0, 0], [1, 0], [1.0, 1.0], [1, 1], [0.5, 0.0]), np.array([1.0, 0.5], np.float32))
    # 1 + 0.5 * Q_target(1, argmax Q_online(1) = 0) = 6, and 1 where the episode ended
    assert losses.td_errors == pytest.approx([abs(6 - 2), abs(1 - 1)], abs=1e-6)
    assert losses.loss == pytest.approx((1.0 * (4 - 0.5) + 0.5 * 0) / 2)
    assert losses.q_mean == pytest.approx(1.5)


def test_dueling_advantages_are_centred() -> None:
    torch.manual_seed(0)
    network = DuelingQNetwork(4, (50, 60), 5)
    obs = torch.randint(0, 256, (3, 4, 50, 60), dtype=torch.uint8)
    features = network.features(obs.float() / 255).flatten(1)
    assert torch.allclose(network(obs).mean(1, keepdim=True), network.value(features), atol=1e-5)


def test_small_differences_between_large_values_outlive_bfloat16() -> None:
    torch.manual_seed(0)
    network = DuelingQNetwork(4, (50, 60), 5)
    last = network.advantage[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.arange(5) / 100)
        network.value[-1].bias.fill_(13.0)
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
    for network in (agent.online, agent.target):
        network.register_forward_pre_hook(lambda *_: caches.append(torch.is_autocast_cache_enabled()))
    found, _ = agent.gradients(batch, weights)
    assert caches == [False] * 3
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() < 0.5 * theirs.norm()  # 1 where it is lost


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
    shared, losses = make_agent(threads, accumulate).gradients(batch, weights)
    for ours, theirs in zip(shared, whole, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert (losses.loss, losses.q_mean) == pytest.approx((expected.loss, expected.q_mean), rel=1e-5)
    assert losses.td_errors == pytest.approx(expected.td_errors, rel=1e-5)


def test_a_shared_batch_gives_the_same_bits_every_time() -> None:
    batch, weights = batch_of(64)
    agents = [make_agent(threads=3) for _ in range(2)]
    for agent in agents:
        for _ in range(5):
            agent.update(batch, weights)
    for ours, theirs in zip(*(agent.online.parameters() for agent in agents), strict=True):
        assert torch.equal(ours, theirs)


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
def test_an_update_that_runs_out_of_memory_is_repeated_in_smaller_shares(shortage: Exception) -> None:
    told: list[int] = []
    agent, plain = make_agent(on_out_of_memory=told.append), make_agent()

    def refuse(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[0] > 8:
            raise shortage

    agent.online.register_forward_pre_hook(refuse)
    batch, weights = batch_of(32)
    for _ in range(3):
        losses, expected = agent.update(batch, weights), plain.update(batch, weights)
        assert losses.loss == pytest.approx(expected.loss, rel=1e-4)
    assert told == [2, 4] and agent.accumulate == 4  # it stays small: the next update would run out again
    for ours, theirs in zip(agent.online.parameters(), plain.online.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `autotune`, which only moves when a test advances it."""
    clock = Clock()
    monkeypatch.setattr(probe, "time", clock)
    return clock


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_tuned_batch_size_fits_and_is_faster(clock: Clock) -> None:
    tables = [Table([[1.0, 2.0], [5.0, 4.0]]) for _ in range(2)]
    agent, most = DoubleDQN(*tables, device=torch.device("cpu"), learning_rate=1e-9, precision="float32"), 128

    def refuse(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[0] > most:
            raise RuntimeError("MPS backend out of memory")
        clock.now += 0.02  # what every update costs, however small: a batch of twice the size pays

    def wait(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        clock.now += 0.001 * inputs[0].shape[0]  # now every sample costs the same, and no larger batch pays

    def batch(size: int) -> Batch:
        pixels = np.zeros((size, 1, 1, 1), np.uint8)
        return Batch(pixels, np.zeros(size, np.int64), np.zeros(size, np.float32), pixels, np.zeros(size, np.float32))

    hook = agent.online.register_forward_pre_hook(refuse)
    assert tune_batch_size(agent, batch, 4096) == most
    assert [tune_batch_size(agent, batch, held) for held in (100, 20)] == [64, 20]
    hook.remove()
    agent.online.register_forward_pre_hook(wait)
    assert tune_batch_size(agent, batch, 4096) == 32


def test_tuned_batch_size_fits_the_replay_even_if_it_is_smaller_on_resume() -> None:
    tight = {"parallel_envs": 1, "num_processes": 5, "buffer_size": 100, "burnin": 40, "n_step": 2, "amp": False}
    config = make_config({**tight, "runner": "parallel", "batch_size": "auto"})
    chosen = choose(config, SPEC, torch.device("cpu"), 1, None, lambda text: None)
    assert chosen.batch_size == 20
    kept = {**chosen.state(), "batch_size": 4096}
    assert choose(config, SPEC, torch.device("cpu"), 1, kept, lambda text: None).batch_size == 20


def test_the_faster_precision_is_chosen(clock: Clock) -> None:
    slow: set[str] = set()

    def took(seconds: float) -> None:
        clock.now += seconds

    def build(precision: Precision) -> DoubleDQN:
        networks = [DuelingQNetwork(4, (50, 60), 3) for _ in range(2)]
        agent = DoubleDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision=precision)
        if precision in slow:
            agent.online.register_forward_pre_hook(lambda module, inputs: took(0.3))
        agent.online.register_forward_pre_hook(lambda module, inputs: took(0.1))
        return agent

    for slower, faster in (("float32", "bfloat16"), ("bfloat16", "float32")):
        slow = {slower}
        assert faster_precision(build, random_batch(8, 4, (50, 60), 3)) == faster


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
    obs = np.random.default_rng(0).integers(0, 256, (64, 4, 50, 60)).astype(np.uint8)
    agent = make_agent(sync_every=100, tau=0.5)
    assert (agent.play(obs) == agent.act(obs)).all()
    for number in range(30):
        agent.update(*batch_of(8, seed=number))
    assert (agent.play(obs) != agent.act(obs)).any()


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
        agent.target.values.copy_(torch.tensor([[0.0, 0.0], [10.0, 30.0]]))
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


def test_epsilon_ladder_of_ape_x() -> None:
    ladder = epsilon_ladder(8, 0.4)
    assert ladder[0] == pytest.approx(0.4)
    assert ladder[-1] == pytest.approx(0.4**8)
    assert annealed(ladder, 0, 100).tolist() == [1.0] * 8
    assert annealed(ladder, 50, 100)[0] == pytest.approx(0.7)
    assert annealed(ladder, 500, 100) == pytest.approx(ladder)


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("prioritized", [True, False])
def test_updates_keep_the_replay_ratio(prioritized: bool, where: str) -> None:
    learner = make_learner(dataclasses.replace(CONFIG, prioritized_replay=prioritized, replay_device=where))
    assert isinstance(learner.replay, DeviceReplayBuffer) == (where == "device")
    feed(learner, 120, seed=0)
    learning_steps = 2 * 120 - 40
    assert learner.updates == pytest.approx(learning_steps * 4 / 8, abs=8)


def test_an_update_that_finds_nothing_to_sample_stays_due() -> None:
    learner = make_learner()
    feed(learner, 60, seed=0)
    learner.count_env_steps(100)
    due, replay = learner.due(), learner.replay
    assert due > 0
    learner.replay = make_learner().replay  # an empty one, as a ring is that others overwrite faster than it is read
    with pytest.raises(NothingToSample):
        learner.learn(1)
    learner.replay = replay
    assert learner.due() == due


@pytest.mark.parametrize("where", ["host", "device"])  # which is the CPU, too
def test_a_replay_that_does_not_fit_in_memory_is_refused_in_one_line(where: str) -> None:
    with pytest.raises(UserError, match="--buffer-size: 1,000,000,000 transitions take"):
        make_learner(dataclasses.replace(CONFIG, replay_device=where, buffer_size=10**9))


@pytest.mark.parametrize(("runner", "times"), [("ddp", 1), ("parallel", 3)])
def test_beta_anneals_with_the_updates_of_the_whole_run(runner: str, times: int) -> None:
    config = dataclasses.replace(CONFIG, runner=runner, num_processes=3, beta_annealing=1e-3)
    learner = make_learner(config, share=3)
    feed(learner, 30, seed=0)
    assert learner.updates > 10
    assert learner.replay.beta == pytest.approx(0.4 + times * 1e-3 * learner.updates)


def test_a_checkpoint_restores_weights_optimiser_counters_and_random_state(tmp_path: Path) -> None:
    learner = make_learner()
    feed(learner, 60, seed=0)
    config = make_config({"device": "auto"})  # the run's; a learner's may name a device of its own
    learner.write_checkpoint(tmp_path / "c", 120, config, {"who": "cares"}, {})
    assert read_config(tmp_path / "c" / "config.toml") == config
    again = make_learner(resume_from=tmp_path / "c")
    assert again.updates == learner.updates > 10
    assert again.replay.beta == learner.replay.beta
    for mine, theirs in ((learner.agent.online, again.agent.online), (learner.agent.target, again.agent.target)):
        for name, tensor in mine.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[name])
    same = np.zeros((8, 4, 50, 60), np.uint8)
    probe = Batch(same, np.arange(8) % 5, np.ones(8, np.float32), same, np.zeros(8, np.float32))
    for each in (learner, again):  # the same next step, moments of the optimiser included
        each.agent.update(probe, np.ones(8, np.float32))
    for name, tensor in learner.agent.online.state_dict().items():
        assert torch.equal(tensor, again.agent.online.state_dict()[name])
    assert learner._random.bit_generator.state == again._random.bit_generator.state


def test_a_replay_in_files_with_a_checkpoint_of_its_own_is_learned_from_on_resume(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, replay_device="files", checkpoint_replay=True)
    learner = make_learner(config, replay_folder=tmp_path / "replay")
    feed(learner, 60, seed=0)
    learner.write_checkpoint(tmp_path / "c", 120, config, {}, {})
    feed(learner, 20, seed=1)  # what came after it is lost
    learner.close()
    again = make_learner(config, resume_from=tmp_path / "c", replay_folder=tmp_path / "replay")
    updates = again.updates
    feed(again, 20, seed=2)
    assert again.updates == pytest.approx(updates + 20 * 2 * 4 / 8, abs=1)
    again.close()


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    learner = make_learner()
    with pytest.raises(DivergedError, match="try a lower --learning-rate"):
        feed(learner, 60, seed=0, reward=float("nan"))


def test_counters_resume() -> None:
    counters = Counters()
    counters.env_steps, counters.frames = 800, 3200
    counters.record_episode(250.0)
    again = Counters(counters.state())
    assert (again.env_steps, again.frames, again.episodes, again.mean_return) == (800, 3200, 1, 250.0)
    assert again.wall_s >= counters.state()["wall_s"] - 1e-3
    again.stop_clock()
    held = again.wall_s
    assert again.wall_s == held


def test_options_on_resume_override_the_choices_of_the_checkpoint(tmp_path: Path) -> None:
    before = dataclasses.replace(CONFIG, amp=False)
    learner = make_learner(before)
    learner.agent.accumulate = 2  # memory had run out
    learner.write_checkpoint(tmp_path / "c", 0, before, {}, {})
    assert make_learner(before, resume_from=tmp_path / "c").agent.accumulate == 2
    assert make_learner(dataclasses.replace(before, accumulate=4), resume_from=tmp_path / "c").agent.accumulate == 4
    chosen = {"device": "cpu", "precision": "bfloat16", "batch_size": 64, "threads": 2}
    automatic = dataclasses.replace(CONFIG, batch_size=AUTO)
    for old, new, given in (
        (automatic, automatic, set()),
        (before, CONFIG, {"precision", "batch_size"}),
        (CONFIG, automatic, {"batch_size"}),
        (automatic, dataclasses.replace(automatic, runner="ddp"), {"threads"}),
    ):
        assert chosen.keys() - still_valid(chosen, old, new).keys() == given


def test_a_longer_window_on_resume_leaves_no_entry_whose_window_is_not_complete(tmp_path: Path) -> None:
    before = dataclasses.replace(CONFIG, checkpoint_replay=True, buffer_size=100)
    learner = make_learner(before)
    feed(learner, 140, seed=0)
    learner.write_checkpoint(tmp_path / "c", 280, before, {}, {})
    again = make_learner(dataclasses.replace(before, n_step=9), resume_from=tmp_path / "c")
    assert isinstance(again.replay, ReplayBuffer)
    random = np.random.default_rng(0)
    for _ in range(40):
        sample = again.replay.sample(32, random)[1]
        assert again.replay.storage.sampleable(sample.lanes, sample.entries).all()
