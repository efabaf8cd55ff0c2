"""Memory of a replay: shared between processes, and in files that survive a killed process."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.buffers import (
    FrameStorage,
    HostMemory,
    MappedMemory,
    PrioritizedReplayBuffer,
    PrioritizedSampler,
    ReplayBuffer,
    SharedMemory,
)
from engine.envs.lanes import PlayedStep
from engine.errors import UserError
from engine.runs.replay_file import NO_ACTION, ReplayShape
from tests.support.program import private_disk

LANES, CAPACITY, STACK, N_STEP, GAMMA = 3, 60, 4, 3, 0.5
SHAPE = (32, 32)  # a frame is its four numbers (lane, entry, first entry of the episode, writer), again and again


def make_storage(memory: HostMemory | None = None, capacity: int = CAPACITY) -> FrameStorage:
    return FrameStorage(ReplayShape(LANES, capacity, SHAPE, stack=STACK, n_step=N_STEP), gamma=GAMMA, memory=memory)


def frames_of(entries: np.ndarray, starts: np.ndarray, writer: int) -> np.ndarray:
    numbers = np.stack([np.arange(LANES), entries, starts, np.full(LANES, writer)], 1)
    return np.tile(numbers, SHAPE[0]).view(np.uint8).reshape(LANES, *SHAPE)


def append(storage: FrameStorage, steps: int, writer: int, seed: int) -> None:
    """Episodes of some ten steps that begin with this call; rewards are entry numbers modulo 7."""
    storage.end_episodes()
    random, starts = np.random.default_rng(seed), storage.written.copy()
    for _ in range(steps):
        written = storage.written.copy()
        ends = random.choice(["", "terminated", "truncated"], LANES, p=[0.8, 0.1, 0.1])
        storage.append(
            PlayedStep(
                frames_of(written, starts, writer), np.full(LANES, 1), (written % 7).astype(np.float32),
                ends == "terminated", ends == "truncated", frames_of(written + 1, starts, writer),
            )
        )  # fmt: skip
        starts = np.where(ends == "", starts, storage.written)


def verify(storage: FrameStorage) -> int:
    """Check every transition that can be sampled; returns how many there are."""
    newest = storage.written[:, None] - np.arange(storage.capacity + 2)
    lanes, entries = np.nonzero(newest >= 0)[0], newest[newest >= 0]
    can = storage.sampleable(lanes, entries)
    lanes, entries = lanes[can], entries[can]
    batch = storage.gather(lanes, entries)
    numbers, next_numbers = (
        stacks.reshape(len(lanes), STACK, -1).view(np.int64).reshape(len(lanes), STACK, -1, 4)
        for stacks in (batch.obs, batch.next_obs)
    )
    assert (numbers == numbers[:, :, :1]).all() and (next_numbers == next_numbers[:, :, :1]).all()  # nothing is torn
    numbers, next_numbers = numbers[:, :, 0], next_numbers[:, :, 0]
    starts, back = numbers[:, -1, 2], np.arange(STACK - 1, -1, -1)
    for stacks, last in ((numbers, entries), (next_numbers, next_numbers[:, -1, 1])):
        assert (stacks[..., 0] == lanes[:, None]).all()
        assert (stacks[..., 1] == np.maximum(last[:, None] - back, starts[:, None])).all()
        assert (stacks[..., 2] == starts[:, None]).all()  # one episode
        assert (stacks[..., 3] == numbers[:, :1, 3]).all()  # of one writer
    assert (batch.actions == 1).all()
    steps = np.where(batch.discounts > 0, next_numbers[:, -1, 1] - entries, N_STEP)
    assert ((steps >= 1) & (steps <= N_STEP)).all()
    bootstraps = batch.discounts > 0
    assert (batch.discounts[bootstraps] == GAMMA ** steps[bootstraps]).all()
    expected = np.sum([np.where(k < steps, GAMMA**k * ((entries + k) % 7), 0) for k in range(N_STEP)], axis=0)
    assert (batch.returns[bootstraps] == expected[bootstraps]).all()
    return len(lanes)


@pytest.mark.process
def test_a_process_appends_what_another_samples() -> None:
    memory = SharedMemory()
    storage = make_storage(memory)
    child = multiprocessing.get_context("spawn").Process(target=_append_in_child, args=(memory,))
    child.start()
    while child.is_alive():
        time.sleep(0.005)
    assert child.exitcode == 0
    assert storage.written.min() > CAPACITY
    assert verify(storage) > LANES * CAPACITY / 2


def _append_in_child(memory: SharedMemory) -> None:
    append(make_storage(memory), 200, writer=1, seed=0)


def test_entries_overwritten_during_a_read_come_from_their_own_ring() -> None:
    storage = make_storage()
    append(storage, 100, writer=0, seed=0)
    lanes = np.repeat(np.arange(LANES), CAPACITY)
    entries = (storage.written[:, None] - 2 * CAPACITY + np.arange(CAPACITY)).ravel()  # as if drawn long ago
    batch = storage.gather(lanes, entries)
    for stacks in (batch.obs, batch.next_obs):
        assert (stacks.reshape(lanes.size, -1).view(np.int64)[:, ::4] == lanes[:, None]).all()


@pytest.mark.process
def test_a_killed_writer_leaves_a_usable_replay(tmp_path: Path) -> None:
    """Five children append as fast as they can until SIGKILL; each continues with the files of the last one."""
    random, held = np.random.default_rng(), np.zeros(LANES, np.int64)
    for writer in range(5):
        with subprocess.Popen([sys.executable, "-m", "tests.engine.buffers.test_memory", tmp_path, str(writer)],
                              stdout=subprocess.PIPE) as child:  # fmt: skip
            assert child.stdout is not None and child.stdout.readline() == b"appending\n"
            time.sleep(random.uniform(0.001, 0.2))
            child.send_signal(signal.SIGKILL)
        memory = MappedMemory(tmp_path)
        storage = make_storage(memory)
        assert (storage.written > held).all()
        held = storage.written.copy()
        verify(storage)
        append(storage, 11, writer=100 + writer, seed=writer)
        assert verify(storage) > 0
        memory.close()


def _append_until_killed(folder: Path, writer: int) -> None:
    storage = make_storage(MappedMemory(folder))
    append(storage, 1, writer, seed=writer)
    print("appending", flush=True)
    while True:
        append(storage, 50, writer, seed=writer)


class _Stop(Exception):
    pass


@pytest.mark.parametrize("moment", ["_claimed", "frames", "rewards", "episode_starts", "written", "ended"])
def test_an_interrupted_append_is_not_visible(moment: str, tmp_path: Path) -> None:
    memory = MappedMemory(tmp_path)
    storage = make_storage(memory)
    append(storage, 100, writer=0, seed=0)
    oldest = storage.written - CAPACITY

    class Stopping(np.ndarray):
        def __setitem__(self, key: Any, value: Any) -> None:
            super().__setitem__(key, value)
            raise _Stop

    setattr(storage, moment, getattr(storage, moment).view(Stopping))
    with pytest.raises(_Stop):
        append(storage, 1, writer=9, seed=0)
    memory.close()
    again = make_storage(MappedMemory(tmp_path))
    assert not again.sampleable(np.arange(LANES), oldest).any()
    verify(again)
    for _ in range(30):
        append(again, 3, writer=1, seed=1)
        verify(again)


def test_end_episodes_truncates_at_the_last_known_frame() -> None:
    storage = make_storage()
    none = np.zeros(LANES, bool)
    for entry in range(6):
        pictures = frames_of(np.full(LANES, entry), np.zeros(LANES, int), 0)
        storage.append(PlayedStep(pictures, np.full(LANES, 1), np.full(LANES, entry, np.float32), none, none, pictures))
    for _ in range(2):
        storage.end_episodes()
        assert storage.complete().tolist() == [5] * LANES
        batch = storage.gather(np.array([0, 0]), np.array([2, 4]))
        assert batch.discounts.tolist() == [GAMMA**3, GAMMA]
        assert batch.next_obs[:, -1].reshape(2, -1).view(np.int64)[:, 1].tolist() == [5, 5]
        assert storage.actions[0, 5] == NO_ACTION and not storage.sampleable(np.array([0]), np.array([5]))[0]
    append(storage, 20, writer=1, seed=0)
    verify(storage)


def test_priorities_cover_a_reopened_replay(tmp_path: Path) -> None:
    memory = MappedMemory(tmp_path)
    append(make_storage(memory), 500, writer=0, seed=0)
    memory.close()
    storage = make_storage(MappedMemory(tmp_path))
    sampler = PrioritizedSampler(storage, alpha=0.6, beta=0.4, beta_annealing=0.0)
    sampler.on_append()
    drawn = sampler.sample(4096, np.random.default_rng(0))
    assert storage.sampleable(drawn.lanes, drawn.entries).all()
    assert len(set(zip(drawn.lanes, drawn.entries, strict=True))) == verify(storage)
    assert drawn.weights.min() == 1


@pytest.mark.parametrize("steps", [40, 500])  # with free slots left, and with none
def test_files_keep_the_priorities(steps: int, tmp_path: Path) -> None:
    def opened() -> PrioritizedReplayBuffer:
        return PrioritizedReplayBuffer(
            ReplayShape(LANES, CAPACITY, SHAPE, stack=STACK, n_step=N_STEP), memory=MappedMemory(tmp_path)
        )

    before, random = opened(), np.random.default_rng(0)
    append(before.storage, steps, writer=0, seed=0)
    before.sampler.on_append()
    for _ in range(20):
        _, sample = before.sample(32, random)
        td_errors = random.uniform(0, 3, 32).astype(np.float32)
        td_errors[0] = 0
        before.update_priorities(sample, td_errors)
    append(before.storage, 8, writer=0, seed=1)  # gets the largest priority, and is not drawn
    before.sampler.on_append()
    wanted = {name: before.state()[f"sampler.{name}"][:].copy() for name in ("priorities", "largest")}
    state = {name: array[:].copy() for name, array in before.state().items()}
    before.close()
    opened_again = opened()
    again = opened_again.state()["sampler.priorities"]
    new = wanted["priorities"] == wanted["largest"]
    drawn = (wanted["priorities"] > 0) & (wanted["priorities"] != 1) & ~new
    assert drawn.sum() > 50 and new.sum() > 8
    assert np.array_equal(again[drawn], wanted["priorities"][drawn])
    assert np.all(again[new] == again[:].max())
    assert opened_again.load_state(state)
    opened_again.close()
    known = wanted["priorities"] > 0
    assert np.allclose(opened().state()["sampler.priorities"][known], wanted["priorities"][known], rtol=1e-5)


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, ReplayBuffer])
@pytest.mark.parametrize("steps", [40, 500])  # with free slots left, and with none
def test_a_state_replaces_the_contents_of_the_files(kind: type[ReplayBuffer], steps: int, tmp_path: Path) -> None:
    def reopened(kind: type[ReplayBuffer]) -> ReplayBuffer:
        return kind(ReplayShape(LANES, CAPACITY, SHAPE, STACK, N_STEP), gamma=GAMMA, memory=MappedMemory(tmp_path))

    def fill(replay: ReplayBuffer, steps: int, writer: int) -> None:
        append(replay.storage, steps, writer, seed=0)
        replay.sampler.on_append()

    before, random = reopened(kind), np.random.default_rng(0)
    fill(before, steps, writer=0)
    _, sample = before.sample(64, random)
    before.update_priorities(sample, random.uniform(0.5, 1, 64).astype(np.float32))
    state = {name: array[:].copy() for name, array in before.state().items()}
    before.close()
    after = reopened(PrioritizedReplayBuffer)
    fill(after, 15, writer=1)
    assert after.load_state(state)
    if kind is PrioritizedReplayBuffer:
        assert np.array_equal(after.state()["sampler.priorities"][:], state["sampler.priorities"])
    assert after.storage.written.max() == state["storage.written"].max()
    drawn = after.sampler.sample(2048, random)
    assert after.storage.sampleable(drawn.lanes, drawn.entries).all()
    assert 0 < drawn.weights.min() <= drawn.weights.max() == 1
    assert len(set(zip(drawn.lanes, drawn.entries, strict=True))) == verify(after.storage)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system can't reserve disk space")
def test_mapped_files_reserve_their_disk_space(tmp_path: Path) -> None:
    with (tmp_path / "any").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2**20)
    if (tmp_path / "any").stat().st_blocks * 512 < 2**20:
        pytest.skip("this file system can't reserve disk space")
    memory = MappedMemory(tmp_path)
    append(make_storage(memory), 10, writer=0, seed=0)
    memory.close()
    frames = tmp_path / "frames.bin"
    content = frames.read_bytes()
    os.truncate(frames, 0)  # now a hole, as an earlier version left them
    os.truncate(frames, len(content))
    make_storage(MappedMemory(tmp_path))
    files = list(tmp_path.glob("*.bin"))
    assert len(files) == 7
    for path in files:
        assert path.stat().st_blocks * 512 >= path.stat().st_size > 0, path


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, ReplayBuffer])
def test_what_was_drawn_ahead_and_overwritten_since_is_drawn_again(kind: type[ReplayBuffer], tmp_path: Path) -> None:
    memory = MappedMemory(tmp_path)
    replay = kind(ReplayShape(LANES, CAPACITY, SHAPE, STACK, N_STEP), gamma=GAMMA, memory=memory)
    storage, random = replay.storage, np.random.default_rng(0)
    for steps in (100, 30):
        append(storage, steps, writer=0, seed=steps)
        replay.sampler.on_append()
        ahead, (_, drawn) = replay.sampler_state(), replay.sample(64, random)
    lanes, entries = ahead["ahead.lanes"], ahead["ahead.entries"]
    kept = storage.sampleable(lanes, entries)
    assert 10 < kept.sum() < 54
    assert (drawn.lanes[kept] == lanes[kept]).all() and (drawn.entries[kept] == entries[kept]).all()
    assert storage.sampleable(drawn.lanes, drawn.entries).all() and drawn.weights.max() == 1
    if kind is PrioritizedReplayBuffer:
        replay.beta = 0.75
        assert replay.beta == 0.75
    state = {name: array[:].copy() for name, array in replay.state().items()}
    assert replay.load_state(state)
    assert (replay.sample(64, random)[1].entries == state["sampler.ahead.entries"]).all()


def test_any_rows_of_a_file_can_be_prefetched(tmp_path: Path) -> None:
    """Their first page begins before them, and the last one ends with the file."""
    memory = MappedMemory(tmp_path)
    memory.arrays({"frames": ((2, 1000, 97, 101), np.uint8)})
    memory.prefetch("frames", np.arange(0, 2000, 37), count=5)
    memory.prefetch("frames", np.array([1999, 1990]), count=20)


def test_an_error_names_the_folder_if_disk_space_can_not_be_reserved(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(UserError, match=rf"{tmp_path}: \S+ kB of disk space for the replay can't be reserved"):
            make_storage(MappedMemory(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not list(tmp_path.glob("*.bin"))
    assert make_storage(MappedMemory(tmp_path)).size == 0  # nobody holds its lock


@pytest.mark.process
def test_a_disk_that_fills_up_later_does_not_end_the_process(tmp_path: Path) -> None:
    full = (sys.executable, "-m", "tests.engine.buffers.test_memory", str(tmp_path), "a full disk")
    root = Path(__file__).resolve().parents[3]
    subprocess.run([*private_disk(tmp_path, "1m"), *full], env={**os.environ, "PYTHONPATH": str(root)}, check=True)


def _append_on_a_full_disk(folder: Path) -> None:
    storage = make_storage(MappedMemory(folder))
    with pytest.raises(OSError, match="No space left"), (folder / "another program's").open("wb", buffering=0) as other:
        while True:
            other.write(bytes(512))
    append(storage, 3 * CAPACITY, writer=0, seed=0)
    assert verify(storage) > 0
    storage.memory.close()
    append(make_storage(MappedMemory(folder)), CAPACITY, writer=1, seed=1)  # another start


def test_mapped_files_do_without_locks_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)  # no filesystem here is without them
    storage = make_storage(MappedMemory(tmp_path))
    append(storage, 10, writer=0, seed=0)
    assert storage.size > 0


def test_mapped_files_refuse_another_shape_or_a_second_owner(tmp_path: Path) -> None:
    memory = MappedMemory(tmp_path)
    make_storage(memory, capacity=2 * CAPACITY)
    with pytest.raises(UserError, match=f"{tmp_path}: another process has this replay open"):
        make_storage(MappedMemory(tmp_path))
    memory.close()
    with pytest.raises(UserError, match=f"{tmp_path}: contains a replay with other lanes"):
        make_storage(MappedMemory(tmp_path))


@pytest.mark.parametrize("harm", ["cut off", "removed", "longer"])
def test_an_array_that_is_not_whole_is_refused(harm: str, tmp_path: Path) -> None:
    memory = MappedMemory(tmp_path)
    append(make_storage(memory), 40, writer=0, seed=0)
    memory.close()
    frames = tmp_path / "frames.bin"
    size = frames.stat().st_size
    if harm == "removed":
        frames.unlink()
    else:
        os.truncate(frames, size // 2 if harm == "cut off" else 2 * size)
    with pytest.raises(UserError, match=f"{tmp_path}: contains a replay whose files are not whole"):
        make_storage(MappedMemory(tmp_path))


def test_a_state_that_was_read_in_part_leaves_an_empty_replay(tmp_path: Path) -> None:
    other = make_storage()
    append(other, 40, writer=1, seed=0)
    state = other.state()
    memory = MappedMemory(tmp_path)
    storage = make_storage(memory)
    append(storage, 50, writer=0, seed=1)
    with pytest.raises(KeyError):  # as if it was killed there
        storage.load_state({name: state[name] for name in ("frames", "actions")})
    memory.close()
    again = make_storage(MappedMemory(tmp_path))
    assert again.size == 0
    append(again, 20, writer=2, seed=2)
    assert verify(again) > 0


def test_frames_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    def opened() -> FrameStorage:
        memory = MappedMemory(tmp_path)
        return FrameStorage(
            ReplayShape(1, 20, (3,), stack=1, n_step=1, frame_dtype="float32"), gamma=GAMMA, memory=memory
        )

    storage, frames = opened(), np.zeros((1, 3), np.float32)
    no = np.zeros(1, np.bool_)
    for _ in range(5):
        storage.append(PlayedStep(frames, np.zeros(1, np.int64), np.ones(1, np.float32), no, no, frames))
    storage.frames[0, 2, 1] = np.nan
    storage.memory.close()
    with pytest.raises(UserError, match=r"damaged .frames must be between .* got nan"):
        opened()


def test_mapped_files_of_another_shape_are_replaced_on_request(tmp_path: Path) -> None:
    for capacity, told in ((2 * CAPACITY, 0), (CAPACITY, 1), (CAPACITY, 0)):
        said: list[str] = []
        memory = MappedMemory(tmp_path, renew=said.append)
        storage = make_storage(memory, capacity)
        assert len(said) == told
        assert not told or said[0].startswith(f"{tmp_path}: contains a replay with other lanes")
        assert (storage.size > 0) == (capacity == CAPACITY and not told)
        append(storage, 100, writer=capacity, seed=0)
        assert verify(storage) > 0
        memory.close()


def test_mapped_files_that_do_not_fit_on_the_disk_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UserError, match=rf"{tmp_path}: the replay needs [0-9,.]+ GB more, but the disk has only [0-9.]+ GB"
    ):
        make_storage(MappedMemory(tmp_path), capacity=10**11)
    assert not list(tmp_path.glob("*.bin"))
    with pytest.raises(UserError, match="GB more"):  # there is room for the first of many
        make_storage(MappedMemory(tmp_path, others=10**9))
    make_storage(MappedMemory(tmp_path)).memory.close()
    needed, usage = sum(path.stat().st_size for path in tmp_path.glob("*.bin")), shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=3 * needed - 1))
    make_storage(MappedMemory(tmp_path / "two", others=1)).memory.close()
    with pytest.raises(UserError, match="more, but the disk has only"):
        make_storage(MappedMemory(tmp_path / "three", others=2))


if __name__ == "__main__":
    if sys.argv[2] == "a full disk":
        _append_on_a_full_disk(Path(sys.argv[1]))
    else:
        _append_until_killed(Path(sys.argv[1]), int(sys.argv[2]))
