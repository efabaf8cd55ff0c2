"""Replay on a torch device (here the CPU) gives the same results as replay on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.agents import DoubleDQN, DuelingQNetwork
from engine.buffers import FrameStorage, NothingToSample, PrioritizedReplayBuffer, SumTree
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.buffers.device.storage import DeviceStorage, TensorBatch
from engine.buffers.device.sum_tree import DeviceSumTree
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import ReplayShape
from engine.runtime.devices import CudaKernel
from tests.support.buffers import all_pairs
from tests.support.cuda_on_cpu import run_on_cpu
from tests.support.devices import NoWaiting

CPU = torch.device("cpu")
GAMMA = 0.9
OPTIONS: dict[str, Any] = {"frame_shape": (2, 3), "stack": 3, "mask_actions": 4}


VECTORS = {**OPTIONS, "frame_shape": (6,), "frame_dtype": "float32"}


def random_steps(
    lanes: int, steps: int, seed: int, end_share: float = 0.15, fail_share: float = 0.0, *, vectors: bool = False
) -> list[PlayedStep]:
    random = np.random.default_rng(seed)
    stream = []
    for _ in range(steps):
        frames, finals = random.integers(0, 256, (2, lanes, 2, 3), np.uint8)
        if vectors:
            frames, finals = random.normal(size=(2, lanes, 6)).astype(np.float32)
        failed = random.random(lanes) < fail_share
        terminated, truncated = (random.random((2, lanes)) < end_share) & ~failed
        masks, final_masks = random.random((2, lanes, 4)) < 0.5
        rewards = random.normal(size=lanes).astype(np.float32)
        actions = random.integers(0, 4, lanes)
        stream.append(PlayedStep(frames, actions, rewards, terminated, truncated, finals, masks, final_masks, failed))
    return stream


def assert_same_answers(ours: DeviceStorage, host: FrameStorage) -> None:
    lanes, entries = all_pairs(host)
    possible = host.sampleable(lanes, entries)
    assert ours.sampleable(torch.from_numpy(lanes), torch.from_numpy(entries)).tolist() == possible.tolist()
    lanes, entries = lanes[possible], entries[possible]
    batch, expected = ours.gather(torch.from_numpy(lanes), torch.from_numpy(entries)), host.gather(lanes, entries)
    for name, array in vars(expected).items():
        tensor = getattr(batch, name)
        assert tensor.numpy().dtype == array.dtype
        if name == "returns":  # summed in another order
            np.testing.assert_allclose(tensor.numpy(), array, atol=1e-6)
        else:
            np.testing.assert_array_equal(tensor.numpy(), array)


@settings(max_examples=40)
@given(lanes=st.integers(1, 4), capacity=st.integers(10, 40), n_step=st.integers(1, 5), steps=st.integers(1, 90),
       seed=st.integers(0, 10**6), cut=st.booleans(), vectors=st.booleans())  # fmt: skip
def test_device_storage_equals_host_storage(
    lanes: int, capacity: int, n_step: int, steps: int, seed: int, cut: bool, vectors: bool
) -> None:
    shape = ReplayShape(lanes, capacity, n_step=n_step, **(VECTORS if vectors else OPTIONS))
    host, ours = FrameStorage(shape, gamma=GAMMA), DeviceStorage(shape, gamma=GAMMA, device=CPU)
    for number, step in enumerate(random_steps(lanes, steps, seed, fail_share=0.1 * cut, vectors=vectors)):
        host.append(step)
        ours.append(step)
        if cut and number % 7 in (0, 3):
            host.end_episodes()
            ours.end_episodes()
    assert_same_answers(ours, host)
    again = DeviceStorage(shape, gamma=GAMMA, device=CPU)
    again.load_state(host.state())
    assert_same_answers(again, host)
    assert cut or host.written.max() > capacity or again.size == ours.size
    back = FrameStorage(shape, gamma=GAMMA)
    back.load_state({name: column[...] for name, column in ours.state().items()})
    assert_same_answers(ours, back)
    for storage in (ours, again, host, back):
        storage.gamma = 0.5
    assert_same_answers(ours, host)
    fresh = FrameStorage(shape, gamma=0.5)
    fresh.load_state(back.state())
    assert_same_answers(again, fresh)


@pytest.fixture
def tree_in_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree is computed by its kernels in CUDA C++."""
    monkeypatch.setattr(CudaKernel, "runs_on", lambda kernel, device: True)
    monkeypatch.setattr(CudaKernel, "__call__", run_on_cpu)


@pytest.mark.usefixtures("tree_in_cuda")
@pytest.mark.process
def test_cuda_tree_is_the_sum_tree() -> None:
    for seed, size in enumerate((1, 16, 17, 300, 5000)):
        compare_trees(size, seed)


@settings(max_examples=60)
@given(st.integers(1, 600), st.integers(0, 10**6))
def test_device_tree_is_the_sum_tree(size: int, seed: int) -> None:
    compare_trees(size, seed)


def compare_trees(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    host, ours, leaves_above_zero = SumTree(size), DeviceSumTree(size, CPU), 0
    for _ in range(4):
        leaves = random.integers(0, size, 50)  # some of them twice
        priorities = random.random(50) * random.integers(0, 2, 50)
        valid = random.random(50) < 0.8
        leaves_above_zero += host.set(leaves[valid], priorities[valid])
        ours.set(torch.from_numpy(leaves), torch.from_numpy(priorities), torch.from_numpy(valid))
    everything = np.arange(size)
    assert (ours[torch.from_numpy(everything)].numpy() == host[everything]).all()
    assert float(ours.total) == pytest.approx(host.total)
    assert int(ours.count) == leaves_above_zero == (host[everything] > 0).sum()
    if host.total > 0:
        prefixes = random.random(200) * host.total
        found = ours.find(torch.from_numpy(prefixes)).numpy()
        assert (host[found] > 0).all()
        assert (found != host.find(prefixes)).mean() <= 0.01  # rounding may differ at a border
        past = ours.find(torch.tensor([host.total * (1 + 1e-12)], dtype=torch.float64)).numpy()
        assert (host[past] > 0).all()


def pair(capacity: int, alpha: float = 0.6) -> tuple[PrioritizedReplayBuffer, DeviceReplayBuffer]:
    shape = ReplayShape(3, capacity, n_step=3, **OPTIONS)
    options: dict[str, Any] = {"gamma": GAMMA, "alpha": alpha, "beta": 0.5, "beta_annealing": 0.1}
    return PrioritizedReplayBuffer(shape, **options), DeviceReplayBuffer(shape, device=CPU, **options)


@settings(max_examples=25)
@given(capacity=st.integers(10, 30), steps=st.integers(8, 80), seed=st.integers(0, 10**6))
def test_draws_weights_and_priorities_equal_those_on_the_host(capacity: int, steps: int, seed: int) -> None:
    host, ours = pair(capacity)
    randoms = [np.random.default_rng(seed) for _ in range(2)]
    stale = None
    for number, step in enumerate(random_steps(3, steps, seed, fail_share=0.05)):
        host.append(step)
        ours.append(step)
        if number < 4:
            continue
        expected, sample = host.sample(16, randoms[0])[1], ours.sample(16, randoms[1])[1]
        assert sample.lanes.tolist() == expected.lanes.tolist()
        assert sample.entries.tolist() == expected.entries.tolist()
        np.testing.assert_allclose(sample.weights.numpy(), expected.weights, rtol=1e-5)
        errors = (expected.entries % 5 + expected.lanes).astype(np.float32)
        for expected_, sample_ in [(expected, sample)] if stale is None else [stale, (expected, sample)]:
            host.update_priorities(expected_, errors)
            ours.update_priorities(sample_, torch.from_numpy(errors))
        if number % 9 == 0:
            stale = expected, sample
        assert (ours.beta, ours.gamma) == (host.beta, host.gamma)
    theirs, mine = ({name: column[...] for name, column in replay.state().items()} for replay in (host, ours))
    assert mine.keys() == theirs.keys()
    for name in ("sampler.priorities", "sampler.weighed", "sampler.largest", "storage.written"):
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-12)
    again = pair(capacity)[1]
    assert again.load_state(theirs)
    drawn = [replay.sample(16, np.random.default_rng(1))[1] for replay in (again, ours)]
    assert torch.equal(drawn[0].entries, drawn[1].entries)
    assert not pair(capacity + 1)[1].load_state(theirs) or theirs["storage.written"].max() <= capacity


def test_there_is_nothing_to_sample_on_a_device_before_a_window_is_complete() -> None:
    _, ours = pair(40)
    steps = random_steps(3, 4, seed=0, end_share=0.0)
    for step in steps:
        with pytest.raises(NothingToSample):
            ours.sample(16, np.random.default_rng(0))
        ours.append(step)
    assert ours.sample(16, np.random.default_rng(0))[1].entries.tolist() == [0] * 16
    _, ended = pair(40)
    ended.append(replace(steps[0], terminated=np.ones(3, bool)))  # all windows end with their episodes
    assert ended.sample(16, np.random.default_rng(0))[0].discounts.tolist() == [0] * 16
    _, cut = pair(40)
    for step in steps:  # episodes of one step, which have no frame behind it
        cut.append(step)
        cut.storage.end_episodes()
        with pytest.raises(NothingToSample):
            cut.sample(16, np.random.default_rng(0))


def test_without_masks_all_actions_are_legal_in_both_storages() -> None:
    shape = ReplayShape(2, 30, **OPTIONS)
    host, ours = FrameStorage(shape), DeviceStorage(shape, device=CPU)
    for step in random_steps(2, 10, seed=0):
        unmasked = replace(step, masks=None, final_masks=None)
        host.append(unmasked)
        ours.append(unmasked)
    assert host.masks is not None and host.masks[:, : host.written.min()].all()
    assert_same_answers(ours, host)


def test_device_draws_follow_priorities_with_a_generator_of_the_device() -> None:
    _, ours = pair(40, alpha=0.5)
    for step in random_steps(3, 30, seed=0, end_share=0.0):
        ours.append(step)
    random = torch.Generator(CPU).manual_seed(0)
    everything = ours.sample(4096, random)[1]
    ours.update_priorities(everything, (1 + everything.entries % 7).float())
    drawn = ours.sample(200_000, random)[1]
    counts = torch.bincount(drawn.lanes * 30 + drawn.entries, minlength=90).reshape(3, 30)[:, :27].numpy()
    expected = np.tile((1 + np.arange(27) % 7) ** 0.5, (3, 1))
    expected *= counts.sum() / expected.sum()
    assert counts.sum() == 200_000
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 81 + 4 * (2 * 81) ** 0.5  # 80 degrees of freedom, four standard deviations


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.5])
def test_td_errors_that_are_no_priorities_leave_the_priorities_as_they_are(wrong: float) -> None:
    _, ours = pair(40)
    for step in random_steps(3, 30, seed=0):
        ours.append(step)
    before = ours.state()["sampler.priorities"][...]
    _, sample = ours.sample(16, np.random.default_rng(0))
    ours.update_priorities(sample, torch.full((16,), wrong))  # the host does not wait to see it
    np.testing.assert_array_equal(ours.state()["sampler.priorities"][...], before)
    with pytest.raises(ValueError, match="td_errors must be finite"):
        ours.update_priorities(sample, np.full(16, wrong, np.float32))
    assert ours.sample(16, np.random.default_rng(0))[1].weights.isfinite().all()


def test_nothing_waits_for_the_device() -> None:
    _, ours = pair(20)
    steps = random_steps(3, 60, seed=0, fail_share=0.05)
    with NoWaiting():
        for step in steps:
            ours.append(step)
        for random in (np.random.default_rng(0), torch.Generator(CPU).manual_seed(0)):
            _, sample = ours.sample(32, random)
            ours.update_priorities(sample, torch.ones(32))
            ours.survey()  # besides its one copy
        with pytest.raises(AssertionError, match="_local_scalar_dense"):
            ours.storage.written[0].item()
        with pytest.raises(AssertionError):
            ours.storage.written[ours.storage.written > 3]


def test_an_agent_learns_the_same_from_a_batch_on_its_device() -> None:
    host, _ = pair(60)
    agents = []
    for _ in range(2):
        torch.manual_seed(0)
        networks = [DuelingQNetwork(3, (2, 3), 4, torso="grid") for _ in range(2)]
        agents.append(DoubleDQN(*networks, device=CPU, learning_rate=1e-3, precision="float32", threads=2))
    for step in random_steps(3, 50, seed=1):
        host.append(step)
    for _ in range(3):
        batch, sample = host.sample(32, np.random.default_rng(0))
        tensors = TensorBatch(**{name: torch.from_numpy(array) for name, array in vars(batch).items()})
        expected = agents[0].update(batch, sample.weights)
        losses = agents[1].update(tensors, torch.from_numpy(sample.weights))
        assert isinstance(losses.td_errors, torch.Tensor)
        np.testing.assert_array_equal(losses.td_errors.numpy(), expected.td_errors)
        assert (losses.loss, losses.q_mean) == pytest.approx((expected.loss, expected.q_mean))
    for ours, theirs in zip(*(agent.online.parameters() for agent in agents), strict=True):
        assert torch.equal(ours, theirs)
