"""Replay compared with naive implementations that store whole episodes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.buffers import FrameStorage, NothingToSample, PrioritizedSampler, Sampler, SumTree, UniformSampler
from engine.buffers.device.storage import DeviceStorage
from engine.buffers.frames import InitialPriorities
from engine.buffers.sampling import Sample, of_one_batch
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import ReplayShape
from tests.support.buffers import all_pairs

GAMMA, STACK = 0.9, 3


class Naive:
    """The episodes of every lane as lists; knows every entry that was ever written."""

    def __init__(self, lanes: int) -> None:
        self.entries: list[list[dict[str, Any]]] = [[] for _ in range(lanes)]

    def append(self, lane: int, frame: int, action: int, reward: float, end: str, final: int) -> None:
        log = self.entries[lane]
        opens = not log or log[-1]["end"] in ("terminated", "final")
        start = len(log) if opens else log[-1]["start"]
        if end == "failed":
            if not opens:
                log[-1]["end"] = "truncated"
            log.append({"frame": frame, "action": None, "reward": 0.0, "end": "final", "start": start})
            return
        log.append({"frame": frame, "action": action, "reward": reward, "end": end, "start": start})
        if end == "truncated":
            log.append({"frame": final, "action": None, "reward": 0.0, "end": "final", "start": start})

    def stack(self, lane: int, entry: int) -> list[int]:
        log = self.entries[lane]
        return [log[max(entry - back, log[entry]["start"])]["frame"] for back in range(STACK - 1, -1, -1)]

    def transition(self, lane: int, entry: int, n_step: int) -> tuple[float, int | None, float] | None:
        """(return, entry to bootstrap from, discount), or None while the window is open."""
        log, total = self.entries[lane], 0.0
        for k in range(n_step):
            if entry + k >= len(log):
                return None
            step = log[entry + k]
            total += GAMMA**k * step["reward"]
            if step["end"] == "terminated":
                return total, None, 0.0
            if step["end"] == "truncated":
                return total, entry + k + 1, GAMMA ** (k + 1)
        return (total, entry + n_step, GAMMA**n_step) if entry + n_step < len(log) else None


def fill(storage: FrameStorage, sampler: Sampler, steps: int, seed: int, end_share: float = 0.15) -> Naive:
    random, naive, frame = np.random.default_rng(seed), Naive(storage.lanes), 0
    for _ in range(steps):
        frames, finals = np.zeros((2, storage.lanes, 1, 2), np.uint8)
        actions = random.integers(0, 5, storage.lanes)
        rewards = random.normal(size=storage.lanes).astype(np.float32)
        ends = random.choice(
            ["", "terminated", "truncated", "failed"], storage.lanes, p=[1 - end_share, *[end_share / 3] * 3]
        )
        for lane in range(storage.lanes):
            frame += 2
            frames[lane, 0], finals[lane, 0] = divmod(frame, 256), divmod(frame + 1, 256)
            naive.append(lane, frame, int(actions[lane]), float(rewards[lane]), str(ends[lane]), frame + 1)
        storage.append(
            PlayedStep(
                frames, actions, rewards, ends == "terminated", ends == "truncated", finals, failed=ends == "failed"
            )
        )
        sampler.on_append()
    return naive


def numbers(stacks: np.ndarray) -> np.ndarray:
    """The frame numbers in frames [..., 1, 2]."""
    return stacks[..., 0, 0].astype(int) * 256 + stacks[..., 0, 1]


@settings(max_examples=60)
@given(lanes=st.integers(1, 4), capacity=st.integers(10, 40), n_step=st.integers(1, 5), steps=st.integers(1, 90),
       seed=st.integers(0, 10**6))  # fmt: skip
def test_storage_equals_naive_lookup(lanes: int, capacity: int, n_step: int, steps: int, seed: int) -> None:
    storage = FrameStorage(ReplayShape(lanes, capacity, (1, 2), stack=STACK, n_step=n_step), gamma=GAMMA)
    naive = fill(storage, UniformSampler(storage), steps, seed)
    pair_lanes, pair_entries = all_pairs(storage)
    possible = storage.sampleable(pair_lanes, pair_entries)
    for lane, entry, can in zip(pair_lanes, pair_entries, possible, strict=True):
        log = naive.entries[lane]
        expected = entry < len(log) and log[entry]["action"] is not None
        expected = expected and naive.transition(lane, entry, n_step) is not None
        expected = expected and max(entry - STACK + 1, log[entry]["start"]) >= len(log) - capacity
        assert can == expected
    if not possible.any():
        return
    pair_lanes, pair_entries = pair_lanes[possible], pair_entries[possible]
    batch = storage.gather(pair_lanes, pair_entries)
    for i, (lane, entry) in enumerate(zip(pair_lanes, pair_entries, strict=True)):
        total, behind, discount = naive.transition(lane, entry, n_step)  # type: ignore[misc]
        assert numbers(batch.obs[i]).tolist() == naive.stack(lane, entry)
        assert batch.actions[i] == naive.entries[lane][entry]["action"]
        assert batch.returns[i] == pytest.approx(total, abs=1e-5)
        assert batch.discounts[i] == pytest.approx(discount)
        if behind is not None:
            assert numbers(batch.next_obs[i]).tolist() == naive.stack(lane, behind)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"actions": np.array([2**15])}, "actions must be between 0 and 32767, got 32768"),
        ({"actions": np.array([-1])}, "actions must be between 0 and 32767, got -1"),
        ({"actions": np.array([1.0])}, "actions must be integers, got float64"),
        ({"frames": np.full((1, 1, 2), 0.5)}, r"frames must be uint8 \[1, 1, 2\], got float64 \[1, 1, 2\]"),
        ({"frames": np.zeros((1, 2), np.uint8)}, r"frames must be uint8 \[1, 1, 2\], got uint8 \[1, 2\]"),
        ({"final_frames": np.ones((1, 1, 2), np.float32)}, r"final_frames must be uint8 \[1, 1, 2\], got float32"),
    ],
)
@pytest.mark.parametrize("where", ["host", "device"])
def test_what_an_entry_can_not_hold_is_refused(changed: dict[str, Any], reason: str, where: str) -> None:
    shape = ReplayShape(1, 10, (1, 2), stack=STACK)
    storage = FrameStorage(shape) if where == "host" else DeviceStorage(shape, device=torch.device("cpu"))
    frame, none = np.zeros((1, 1, 2), np.uint8), np.zeros(1, bool)
    step = PlayedStep(frame, np.array([0]), np.zeros(1, np.float32), none, ~none, frame)
    with pytest.raises(ValueError, match=reason):
        storage.append(dataclasses.replace(step, **changed))
    assert storage.size == 0
    storage.append(step)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.5])
def test_a_td_error_that_is_no_priority_is_refused(wrong: float) -> None:
    storage = FrameStorage(ReplayShape(2, 50, (1, 2), stack=STACK, n_step=1), gamma=GAMMA, priorities=True)
    sampler = PrioritizedSampler(storage, alpha=0.6, beta=0.4, beta_annealing=0.1)
    fill(storage, sampler, 30, seed=0)
    sample = sampler.sample(8, np.random.default_rng(0))
    errors = np.ones(8, np.float32)
    errors[3] = wrong
    with pytest.raises(ValueError, match=f"td_errors must be finite and at least 0, got {wrong}"):
        sampler.update(sample, errors)
    assert sampler.beta == 0.4
    again = sampler.sample(8, np.random.default_rng(0))
    assert again.entries.tolist() == sample.entries.tolist() and np.isfinite(again.weights).all()

    frames, none, written = np.zeros((2, 1, 2), np.uint8), np.zeros(2, bool), storage.written.tolist()
    step = PlayedStep(frames, np.zeros(2, np.int64), np.zeros(2, np.float32), none, none, frames)
    first = InitialPriorities(np.array([1]), np.array([1]), np.array([wrong], np.float32))
    with pytest.raises(ValueError, match=f"td_errors must be finite and at least 0, got {wrong}"):
        storage.append(step, first)
    assert storage.written.tolist() == written


@settings(max_examples=40)
@given(capacity=st.integers(10, 30), steps=st.integers(8, 120), seed=st.integers(0, 10**6))
def test_priorities_cover_exactly_what_can_be_sampled(capacity: int, steps: int, seed: int) -> None:
    storage = FrameStorage(ReplayShape(3, capacity, (1, 2), stack=STACK, n_step=3), gamma=GAMMA)
    sampler = PrioritizedSampler(storage, alpha=0.6, beta=0.4, beta_annealing=0.1)
    fill(storage, sampler, steps, seed)
    lanes, entries = all_pairs(storage)
    possible = storage.sampleable(lanes, entries)
    drawn = sampler.sample(4096, np.random.default_rng(0))
    assert set(zip(drawn.lanes, drawn.entries, strict=True)) == set(
        zip(lanes[possible], entries[possible], strict=True)
    )


def test_weights_of_several_draws_in_one_batch_are_relative_to_the_largest_of_all() -> None:
    random, none, halves = np.random.default_rng(0), np.zeros(16, np.int64), np.arange(16) % 2 == 0
    importance = random.uniform(0.1, 5.0, 16)
    scales = np.where(halves, importance[halves].max(), importance[~halves].max())  # each draw's own largest
    mixed = Sample(none, none, (importance / scales).astype(np.float32), scales)
    assert of_one_batch(mixed).weights == pytest.approx(importance / importance.max(), rel=1e-6)


def test_prioritized_draws_follow_priorities_and_weights_undo_them() -> None:
    storage = FrameStorage(ReplayShape(2, 50, (1, 2), stack=STACK, n_step=1), gamma=GAMMA)
    sampler = PrioritizedSampler(storage, alpha=0.5, beta=1.0, beta_annealing=0.0)
    fill(storage, sampler, 30, seed=3, end_share=0.0)
    random = np.random.default_rng(1)
    everything = sampler.sample(4096, random)
    errors = (1 + (everything.entries % 7)).astype(np.float32)
    sampler.update(everything, errors)
    drawn = sampler.sample(200_000, random)
    counts = np.bincount(drawn.lanes * 30 + drawn.entries, minlength=60).reshape(2, 30)[:, :29]
    expected = np.tile((1 + np.arange(29) % 7) ** 0.5, (2, 1))
    expected *= counts.sum() / expected.sum()
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 58 + 4 * (2 * 58) ** 0.5  # 57 degrees of freedom, four standard deviations
    weight_of = dict(zip(zip(drawn.lanes, drawn.entries, strict=True), drawn.weights, strict=True))
    np.testing.assert_allclose(
        [w * (1 + e % 7) ** 0.5 for (_, e), w in weight_of.items()], 1.0, rtol=1e-4
    )  # beta 1: weight times priority is constant, the largest weight is 1


@pytest.mark.parametrize("prioritized", [True, False])
def test_there_is_nothing_to_sample_before_a_window_is_complete(prioritized: bool) -> None:
    storage = FrameStorage(ReplayShape(2, 20, (1, 2), stack=STACK, n_step=3), gamma=GAMMA)
    options = {"alpha": 0.6, "beta": 0.4, "beta_annealing": 0.0}
    sampler: Sampler = PrioritizedSampler(storage, **options) if prioritized else UniformSampler(storage)
    random = np.random.default_rng(0)
    for steps in (0, 1, 2):
        with pytest.raises(NothingToSample):
            sampler.sample(8, random)
        assert storage.written.tolist() == [steps] * 2
        fill(storage, sampler, 1, seed=0, end_share=0)
    fill(storage, sampler, 1, seed=0, end_share=0)
    assert sampler.sample(8, random).entries.tolist() == [0] * 8


def test_stale_priority_is_not_given_to_the_entry_that_took_the_slot() -> None:
    storage = FrameStorage(ReplayShape(1, 12, (1, 2), stack=STACK, n_step=1), gamma=GAMMA)
    sampler = PrioritizedSampler(storage, alpha=1.0, beta=0.4, beta_annealing=0.0)
    fill(storage, sampler, 10, seed=0, end_share=0.0)
    old = sampler.sample(64, np.random.default_rng(0))
    fill(storage, sampler, 40, seed=1, end_share=0.0)
    sampler.update(old, np.full(64, 1e9, np.float32))
    drawn = sampler.sample(4096, np.random.default_rng(0))
    share = np.bincount(drawn.entries - drawn.entries.min()) / 4096
    assert share.max() < 2 / share.size


def test_beta_grows_by_its_annealing_and_ends_at_one() -> None:
    storage = FrameStorage(ReplayShape(1, 12, (1, 2), stack=STACK, n_step=1), gamma=GAMMA)
    sampler = PrioritizedSampler(storage, alpha=1.0, beta=0.4, beta_annealing=0.25)
    fill(storage, sampler, 10, seed=0)
    seen = []
    for _ in range(4):
        sample = sampler.sample(4, np.random.default_rng(0))
        sampler.update(sample, np.ones(4, np.float32))
        seen.append(sampler.beta)
    assert seen == pytest.approx([0.65, 0.9, 1.0, 1.0])


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=70), st.integers(0, 10**6))
def test_sum_tree_finds_what_a_cumulative_sum_finds(priorities: list[float], seed: int) -> None:
    tree = SumTree(len(priorities))
    leaves = np.arange(len(priorities))
    tree.set(leaves, np.array(priorities))
    tree.set(leaves[::2], np.array(priorities)[::2] / 3)
    weights = np.array(priorities)
    weights[::2] /= 3
    assert tree.total == pytest.approx(weights.sum())
    if tree.total == 0:
        return
    found = tree.find(np.random.default_rng(seed).random(64) * tree.total)
    assert (weights[found] > 0).all()
    prefixes = (np.arange(64) + 0.5) / 64 * tree.total
    exact = np.searchsorted(np.cumsum(weights), prefixes, side="right")
    near = np.isclose(np.cumsum(weights)[np.minimum(exact, weights.size - 1)], prefixes, rtol=1e-9)
    assert ((tree.find(prefixes) == exact) | near).all()
