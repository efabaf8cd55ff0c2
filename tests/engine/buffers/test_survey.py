"""Surveys of replays of every kind, and the distributions made from them, compared with NumPy's histograms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.buffers import FrameStorage, HostMemory, MappedMemory, PrioritizedReplayBuffer, Replay, ReplayBuffer, Sample
from engine.buffers.device.replay import DeviceReplayBuffer, TensorSample
from engine.buffers.sampling import EPSILON, SURVEYED, places
from engine.envs.lanes import PlayedStep
from engine.runners.coordination.reporter import BINS, ReplayStats, summarise
from engine.runs.replay_file import ReplayShape

LANES, ALPHA = 3, 0.6
OPTIONS: dict[str, Any] = {"lanes": LANES, "frame_shape": (2, 2), "stack": 2, "n_step": 2}


def on_host(folder: Path, capacity: int = 200, alpha: float = ALPHA) -> Any:
    return PrioritizedReplayBuffer(ReplayShape(capacity=capacity, **OPTIONS), alpha=alpha, memory=HostMemory())


def in_files(folder: Path, capacity: int = 200, alpha: float = ALPHA) -> Any:
    return PrioritizedReplayBuffer(
        ReplayShape(capacity=capacity, **OPTIONS), alpha=alpha, memory=MappedMemory(folder / "replay")
    )


def on_device(folder: Path, capacity: int = 200, alpha: float = ALPHA) -> Any:
    return DeviceReplayBuffer(ReplayShape(capacity=capacity, **OPTIONS), alpha=alpha, device=torch.device("cpu"))


def uniform(folder: Path, capacity: int = 200, alpha: float = ALPHA) -> Any:
    return ReplayBuffer(ReplayShape(capacity=capacity, **OPTIONS))


def fill(replay: Replay, steps: int) -> FrameStorage:
    """Append random steps; a host storage with the same entries."""
    reference = FrameStorage(ReplayShape(capacity=replay.capacity // LANES, **OPTIONS), gamma=0.99)
    random, frames = np.random.default_rng(1), np.zeros((LANES, 2, 2), np.uint8)
    for _ in range(steps):
        terminated, truncated = random.random((2, LANES)) < 0.1
        step = PlayedStep(frames, np.zeros(LANES, int), np.ones(LANES, np.float32), terminated, truncated, frames)
        replay.append(step)
        reference.append(step)
    return reference


def drawable(storage: FrameStorage) -> tuple[np.ndarray, np.ndarray]:
    """Lanes and entry numbers of everything that can be drawn."""
    numbers = np.arange(int(storage.written.max()))
    lanes, entries = (part.ravel() for part in np.meshgrid(np.arange(LANES), numbers, indexing="ij"))
    found = storage.sampleable(lanes, entries)
    return lanes[found], entries[found]


def learn(replay: Any, lanes: np.ndarray, entries: np.ndarray, td_errors: np.ndarray) -> None:
    arrays = lanes, entries, np.ones(lanes.size, np.float32), np.ones(lanes.size)
    if isinstance(replay, DeviceReplayBuffer):
        replay.update_priorities(TensorSample(*map(torch.from_numpy, arrays)), td_errors)
    else:
        replay.update_priorities(Sample(*arrays), td_errors)


@pytest.mark.parametrize("make", [on_host, in_files, on_device])
@pytest.mark.parametrize("steps", [60, 500])  # with free slots left, and with none
def test_distributions_are_those_of_the_priorities_and_ages_that_are_held(
    make: Callable[..., Any], steps: int, tmp_path: Path
) -> None:
    replay = make(tmp_path)
    storage = fill(replay, steps)
    lanes, entries = drawable(storage)
    td_errors = np.random.default_rng(2).lognormal(-2, 1, lanes.size).astype(np.float32)
    td_errors[::10] = 0
    learn(replay, lanes, entries, td_errors)
    contents = summarise(replay.survey())
    assert contents is not None and contents.priorities is not None
    priorities = td_errors[td_errors > 0].astype(np.float64) + EPSILON
    counts, edges = np.histogram(np.log10(priorities), BINS)
    assert contents.priorities.shares == pytest.approx(counts / priorities.size)
    assert np.log10([contents.priorities.low, contents.priorities.high]) == pytest.approx([edges[0], edges[-1]])
    assert contents.priorities.median == pytest.approx(np.median(priorities))
    assert contents.zero_share == pytest.approx((td_errors == 0).mean())
    ages = (storage.written[lanes] - 1 - entries) * LANES
    chances = (td_errors.astype(np.float64) + EPSILON) ** ALPHA
    drawn, _ = np.histogram(ages, BINS, (0, ages.max()), weights=chances / chances.sum())
    assert contents.ages.shares == pytest.approx(drawn)
    assert (contents.ages.low, contents.ages.high) == (0, ages.max())
    younger = chances[ages < contents.ages.median].sum() / chances.sum()
    assert younger < 0.5 <= younger + chances[ages == contents.ages.median].sum() / chances.sum()
    assert contents.oldest_share == pytest.approx(chances[ages >= 0.9 * ages.max()].sum() / chances.sum())
    replay.close()


@pytest.mark.parametrize("make", [uniform, on_host, on_device])
def test_uniform_replay_has_ages_but_no_priorities(make: Callable[..., Any], tmp_path: Path) -> None:
    replay = make(tmp_path, alpha=0.0)
    assert summarise(replay.survey()) is None
    fill(replay, 500)
    contents = summarise(replay.survey())
    assert contents is not None and contents.priorities is None
    assert contents.ages.high <= 200 * LANES
    assert contents.ages.median == pytest.approx(100 * LANES, abs=5 * LANES)


@pytest.mark.parametrize("make", [on_host, in_files, on_device, uniform])
def test_a_survey_changes_no_later_draw(make: Callable[..., Any], tmp_path: Path) -> None:
    draws = []
    for looked in (False, True):
        replay, random = make(tmp_path / str(looked)), np.random.default_rng(3)
        fill(replay, 50)
        for _ in range(5):
            _, sample = replay.sample(16, random)
            replay.update_priorities(sample, random.random(16, np.float32))
            if looked:
                replay.survey()
        draws.append((np.asarray(sample.entries).tolist(), random.bit_generator.state))
        replay.close()
    assert draws[0] == draws[1]


def test_of_a_large_replay_a_bounded_part_is_surveyed_evenly(tmp_path: Path) -> None:
    assert [part.tolist() for part in places(3, 1)] == [[0, 1, 2], [0, 0, 0]]  # of a small one all
    assert [part.tolist() for part in places(2, 0)] == [[], []]
    replay = on_host(tmp_path, capacity=20_000)
    fill(replay, 4000)  # the rings are not full
    survey = replay.survey()
    assert 0.9 * SURVEYED < survey.ages.size <= SURVEYED
    contents = summarise(survey)
    assert contents is not None
    assert contents.ages.shares == pytest.approx([1 / BINS] * BINS, abs=0.015)


def test_the_replay_is_surveyed_again_only_after_a_while_or_on_request(tmp_path: Path) -> None:
    replay = on_host(tmp_path)
    stats = ReplayStats(replay)
    assert stats(at_once=False) is None
    fill(replay, 20)
    first = stats(at_once=False)
    fill(replay, 20)
    assert first is not None and stats(at_once=False) is first
    assert stats(at_once=True) != first
