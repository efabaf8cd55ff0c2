"""A replay that other processes fill while it is read, and that are killed while they write.

The writers import this module, so it has few imports, to let them start fast.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from engine.buffers import (
    Batch,
    FrameStorage,
    HostMemory,
    NothingToSample,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    Sample,
    SharedMemory,
)
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import ReplayShape
from tests.support.program import child, wait_until

GAMMA = 0.9
WRITERS, LANES, CAPACITY, STACK, N_STEP = 2, 3, 40, 4, 3
SHAPE = (40, 40)  # a frame is its five numbers (lane, entry, episode's first, writer, checksum), again and again
NUMBERS = 5
LEAD = 24
"""Entries that a writer may be ahead of the reader: enough to overwrite most of what was drawn, too few for all of it,
however slow the reader is."""


def scattered(lanes: Any, entries: Any) -> Any:
    return (np.asarray(entries) * 2654435761 + np.asarray(lanes) * 40503) % 2**31 // 64


def end_of(lanes: Any, entries: Any) -> np.ndarray:
    """0 continues, 1 terminated, 2 truncated; depends only on the entry's number, unless its writer is killed."""
    drawn = scattered(lanes, entries) % 20
    return np.where(drawn == 0, 1, np.where(drawn == 1, 2, 0))


def reward_of(lanes: Any, entries: Any) -> np.ndarray:
    return (scattered(lanes, entries) % 11).astype(np.float32)


def checksum(numbers: np.ndarray) -> np.ndarray:
    return (numbers[..., :4] * np.array([3, 5, 7, 11])).sum(-1) ^ 0x5A5A5A5A


def frames_of(lanes: np.ndarray, entries: np.ndarray, starts: np.ndarray, writer: int) -> np.ndarray:
    numbers = np.zeros((lanes.size, NUMBERS), np.int64)
    numbers[:, 0], numbers[:, 1], numbers[:, 2], numbers[:, 3] = lanes, entries, starts, writer
    numbers[:, 4] = checksum(numbers)
    return np.tile(numbers, SHAPE[0] * SHAPE[1] // 8 // NUMBERS).view(np.uint8).reshape(lanes.size, *SHAPE)


def shared_replay(memory: HostMemory, kind: type[ReplayBuffer] = PrioritizedReplayBuffer) -> ReplayBuffer:
    return kind(
        ReplayShape(WRITERS * LANES, CAPACITY, SHAPE, STACK, N_STEP), gamma=GAMMA, memory=memory, reuse_batches=True
    )


def allowed(memory: SharedMemory) -> np.ndarray:
    """[WRITERS]: maximum number of entries that each writer may write in every lane; the reader raises it."""
    return memory.arrays({"allowed": ((WRITERS,), np.int64)})["allowed"]


def _write(memory: SharedMemory, throttle: SharedMemory, index: int, writer: int) -> None:
    """Append to a writer's part as fast as the throttle allows."""
    may = allowed(throttle)
    storage = shared_replay(memory).storage.part(index * LANES, LANES)
    storage.end_episodes()
    lanes, starts = np.arange(LANES) + index * LANES, storage.written.copy()
    while True:
        while storage.written.max() >= may[index]:
            time.sleep(1e-5)
        starts = append(storage, lanes, starts, writer)


def append(storage: FrameStorage, lanes: np.ndarray, starts: np.ndarray, writer: int) -> np.ndarray:
    """Append one step of a writer's lanes; returns where their next episodes begin."""
    entries = storage.written.copy()
    ends = end_of(lanes, entries)
    storage.append(
        PlayedStep(
            frames_of(lanes, entries, starts, writer), (entries + lanes) % 5, reward_of(lanes, entries),
            ends == 1, ends == 2, frames_of(lanes, entries + 1, starts, writer),
        )
    )  # fmt: skip
    return np.where(ends > 0, storage.written, starts)


def verify(batch: Batch, sample: Sample) -> None:
    """Check that everything in a batch is as its writers wrote it."""
    stacks = [
        each.reshape(len(each), STACK, -1).view(np.int64).reshape(len(each), STACK, -1, NUMBERS)
        for each in (batch.obs, batch.next_obs)
    ]
    for each in stacks:
        assert (each == each[:, :, :1]).all()  # nothing is torn
    obs, next_obs = (each[:, :, 0] for each in stacks)
    lanes, entries = sample.lanes, sample.entries
    starts, last = obs[:, -1, 2], next_obs[:, -1, 1]
    for numbers, newest in ((obs, entries), (next_obs, last)):
        assert (checksum(numbers) == numbers[..., 4]).all()
        assert (numbers[..., 0] == lanes[:, None]).all()
        assert (numbers[..., 1] == np.maximum(newest[:, None] - np.arange(STACK)[::-1], starts[:, None])).all()
        assert (numbers[..., 2] == starts[:, None]).all()  # one episode
        assert (numbers[..., 3] == obs[:, :1, 3]).all()  # of one writer
    assert (batch.actions == (entries + lanes) % 5).all()
    ends = end_of(lanes[:, None], entries[:, None] + np.arange(N_STEP))
    whole = np.where((ends > 0).any(1), (ends > 0).argmax(1) + 1, N_STEP)
    terminated = ends[np.arange(len(ends)), whole - 1] == 1
    over = batch.discounts == 0
    steps = np.where(over, whole, last - entries)
    assert (terminated | ~over).all()
    assert (steps >= 1).all() and (steps <= whole).all()  # less where a writer was killed
    assert ((steps < whole) | (terminated == over)).all()
    assert batch.discounts[~over] == pytest.approx(GAMMA ** steps[~over])
    rewards = reward_of(lanes[:, None], entries[:, None] + np.arange(N_STEP)) * GAMMA ** np.arange(N_STEP)
    expected = np.where(np.arange(N_STEP) < steps[:, None], rewards, 0).sum(1)
    assert batch.returns == pytest.approx(expected, abs=1e-4)


def sample_while_writers_are_killed(kills: int) -> None:
    memory, throttle, random = SharedMemory(), SharedMemory(), np.random.default_rng()
    replay, may = shared_replay(memory), allowed(throttle)
    written = replay.storage.written.reshape(WRITERS, LANES)
    batches = 0

    def look() -> None:
        nonlocal batches
        replay.sampler.on_append()
        may[:] = written.max(1) + LEAD
        batch, sample = replay.sample(64, random)
        verify(batch, sample)
        replay.update_priorities(sample, random.random(64).astype(np.float32))
        batches += 1

    def round_the_ring(index: int, since: np.ndarray) -> bool:
        if written.min() > CAPACITY:
            look()
        may[:] = written.max(1) + LEAD
        return bool((written[index] > since + 2 * CAPACITY).all())

    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(child(_write, memory, throttle, index, index)) for index in range(WRITERS)]
        for index in range(WRITERS):
            wait_until(partial(round_the_ring, index, np.zeros(LANES)), "the first laps")
        for number in range(kills):
            index = number % WRITERS
            writers[index].kill()
            writers[index].join()
            for _ in range(20):  # what a killed one left
                look()
            since = written[index].copy()
            writers[index] = stack.enter_context(child(_write, memory, throttle, index, WRITERS + number))
            wait_until(partial(round_the_ring, index, since), "another writer's laps")
        for _ in range(300):
            look()
    assert batches > 300 + 20 * kills
    assert {int(writer) for writer in replay.storage.frames.reshape(-1, SHAPE[0] * SHAPE[1])[:, 24]} >= {
        WRITERS + kills - 1,
        WRITERS + kills - 2,
    }


@pytest.mark.long
@pytest.mark.process
def test_no_sampled_transition_is_torn_while_writers_are_killed_and_replaced() -> None:
    sample_while_writers_are_killed(3)


@pytest.mark.long
@pytest.mark.process
def test_no_sampled_transition_is_torn_while_many_writers_are_killed_and_replaced() -> None:
    sample_while_writers_are_killed(50)


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, ReplayBuffer])
def test_a_ring_that_writers_lap_while_it_is_read_has_nothing_to_sample(
    kind: type[ReplayBuffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, random = SharedMemory(), np.random.default_rng(0)
    replay, writer = shared_replay(memory, kind), shared_replay(memory).storage
    lanes = np.arange(WRITERS * LANES)
    starts, sampleable = writer.written.copy(), replay.storage.sampleable

    def write(entries: int) -> None:
        nonlocal starts
        for _ in range(entries):
            starts = append(writer, lanes, starts, 0)

    def sampleable_a_lap_later(*entries: np.ndarray) -> np.ndarray:
        write(CAPACITY + 1)
        return sampleable(*entries)

    with pytest.raises(NothingToSample):  # nothing is there yet
        replay.sample(64, random)
    write(CAPACITY)
    for _ in range(3):
        monkeypatch.setattr(replay.storage, "sampleable", sampleable_a_lap_later)
        replay.sampler.on_append()
        with pytest.raises(NothingToSample):
            replay.sample(64, random)
        monkeypatch.setattr(replay.storage, "sampleable", sampleable)
        replay.sampler.on_append()
        verify(*replay.sample(64, random))
