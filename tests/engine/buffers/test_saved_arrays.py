"""A checkpoint's replay is written and read in pieces, which never takes the memory of the replay twice."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from engine.buffers import MappedMemory, PrioritizedReplayBuffer, Replay, ReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.envs.lanes import PlayedStep
from engine.runs import replay_file as saved
from engine.runs.replay_file import Column, ReplayShape, mapped_arrays, save_arrays

LANES, CAPACITY, SHAPE = 2, 60, (256, 256)
PIECE_BYTES = 2**20  # 16 entries
OPTIONS: dict[str, Any] = {"lanes": LANES, "capacity": CAPACITY, "frame_shape": SHAPE, "mask_actions": 3}


def on_host(folder: Path) -> Replay:
    return PrioritizedReplayBuffer(ReplayShape(**OPTIONS))


def uniform(folder: Path) -> Replay:
    return ReplayBuffer(ReplayShape(**OPTIONS))


def in_files(folder: Path) -> Replay:
    return PrioritizedReplayBuffer(ReplayShape(**OPTIONS), memory=MappedMemory(folder / "replay"))


def on_device(folder: Path) -> Replay:
    return DeviceReplayBuffer(ReplayShape(**OPTIONS), device=torch.device("cpu"))


def fill(replay: Replay, steps: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(steps):
        frames, finals = np.zeros((2, LANES, *SHAPE), np.uint8) + random.integers(0, 256, (2, LANES, 1, 1), np.uint8)
        terminated, truncated = random.random((2, LANES)) < 0.1
        masks, final_masks = random.random((2, LANES, 3)) < 0.5
        rewards = random.normal(size=LANES).astype(np.float32)
        replay.append(
            PlayedStep(frames, random.integers(0, 3, LANES), rewards, terminated, truncated, finals, masks, final_masks)
        )


class InPieces:
    """A column of which no more than a piece may be taken at once."""

    def __init__(self, column: Column) -> None:
        self.shape, self.dtype, self._column = column.shape, column.dtype, column

    def __getitem__(self, key: Any) -> NDArray[Any]:
        piece = self._column[key]
        assert piece.nbytes <= PIECE_BYTES
        return piece


class NoLargeCopies(TorchDispatchMode):
    """Fails if a tensor larger than a piece is created that is not a view of an existing one."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() * result.itemsize > PIECE_BYTES:
            there = {each.untyped_storage().data_ptr() for each in args if isinstance(each, torch.Tensor)}
            assert result.untyped_storage().data_ptr() in there, func
        return result


@contextlib.contextmanager
def no_large_copies(replay: Replay) -> Iterator[None]:
    """Fails if much more memory than a piece is allocated, on the host or on the device of the replay."""
    if isinstance(replay, DeviceReplayBuffer):
        with NoLargeCopies():
            yield
        return
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 1.5 * PIECE_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [on_host, uniform, in_files, on_device])
@pytest.mark.parametrize("steps", [40, 150])  # with free slots left, and with none
def test_a_saved_replay_is_written_in_pieces_and_is_the_same_again(
    make: Callable[[Path], Replay], steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "PIECE_BYTES", PIECE_BYTES)
    replay, path = make(tmp_path), tmp_path / "replay.safetensors"
    fill(replay, steps)
    with no_large_copies(replay):
        save_arrays(path, {name: InPieces(column) for name, column in replay.state().items()})
    assert path.stat().st_size > 5 * PIECE_BYTES
    read, mapped = load_file(path), mapped_arrays(path)  # the library's own reader understands it, too
    assert read.keys() == mapped.keys() == replay.state().keys()
    for name, column in replay.state().items():
        assert read[name].dtype == mapped[name].dtype == column.dtype
        assert np.array_equal(read[name], column[...]) and np.array_equal(mapped[name], column[...])
        assert mapped[name].flags.aligned
    replay.close()
    again = make(tmp_path / "again")
    with no_large_copies(again):
        assert again.load_state(mapped)
    for name, column in replay.state().items():
        assert np.array_equal(again.state()[name][...], column[...]), name


def test_arrays_of_any_shape_are_saved(tmp_path: Path) -> None:
    arrays = {
        "none": np.empty((0, 3), np.int64),
        "number": np.array(3.5),
        "row": np.arange(5, dtype=np.int16)[::2],
        "turned": np.arange(24, dtype=np.uint8).reshape(2, 3, 4).transpose(2, 0, 1),
        "flags": np.array([[True, False]]),
    }
    for some in ({}, arrays):
        save_arrays(tmp_path / "some", some)
        read = load_file(tmp_path / "some")
        (header,) = struct.unpack("<Q", (tmp_path / "some").read_bytes()[:8])
        assert header % 8 == 0  # where the arrays begin, so that they are aligned
        assert read.keys() == some.keys()
        assert all(np.array_equal(read[name], array) for name, array in some.items())
