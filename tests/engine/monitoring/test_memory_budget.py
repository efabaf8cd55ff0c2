"""Available memory and estimates; and memory that must not grow, because runs may last for weeks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.game import Spec
from engine.config.reading import make_config
from engine.errors import UserError
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
from engine.monitoring.memory_budget import DeviceMemory, available_bytes, fits_device, memory
from engine.runners.learning.factory import on_one_gpu
from engine.runs.replay_file import ReplayShape
from engine.runtime.threads import available_cores
from tests.support.memory import container

SCREENS = Spec(frame_shape=(50, 60), actions=5, stack=4, hold=8, masked=False)
SETTLED = 1_000_000  # environment steps after which all one-time allocations are done


def growth(env_steps: int) -> tuple[int, int]:
    """Growth of resident memory in bytes from `SETTLED` to `env_steps` further environment steps; episodes played."""
    env = MarioLanes(MarioTask(stage="random", actions="complex", frame_skip=1), 256, threads=2)
    process, random, episodes, settled = psutil.Process(), np.random.default_rng(0), 0, 0
    env.reset()
    for step in range(env_steps // env.lanes):
        if step % 8 == 0:
            held = random.integers(0, env.actions, env.lanes)
        played = env.step(held)
        episodes += int((played.terminated | played.truncated).sum())
        if step == SETTLED // env.lanes:
            settled = process.memory_info().rss
    return process.memory_info().rss - settled, episodes


@pytest.mark.long
@pytest.mark.timeout(3600)  # 20 to 25 minutes on two threads
def test_resident_memory_does_not_grow_over_20_million_environment_steps() -> None:
    grown, episodes = growth(20_000_000)
    assert grown < 4 * 2**20
    assert episodes > 10_000


MIB = 2**20


def test_the_file_cache_of_a_container_counts_as_available(tmp_path: Path) -> None:
    full = container(tmp_path, limit=200 * MIB, used=195 * MIB, cached=140 * MIB)
    assert available_bytes(full) == 145 * MIB


def test_memory_is_that_of_the_container_not_of_the_machine(tmp_path: Path) -> None:
    assert memory(container(tmp_path, limit=100 * MIB, used=97 * MIB)) == (3 * MIB, 100 * MIB)


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    unlimited = container(tmp_path, limit="max", used=MIB)
    for cgroup in (unlimited, tmp_path / "no cgroup v2"):
        assert 0.5 < available_bytes(cgroup) / psutil.virtual_memory().available < 2


@pytest.mark.parametrize(("limit", "cores"), [("50000 100000", 1), ("150000 100000", 2), ("max 100000", None)])
def test_cores_are_limited_by_the_quota_of_the_container(limit: str, cores: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(limit + "\n")
    machine = available_cores(tmp_path / "no cgroup v2")
    assert available_cores(tmp_path) == min(cores or machine, machine)


@pytest.mark.parametrize(("limit", "cores"), [("50000", 1), ("150000", 2), ("-1", None)])
def test_cores_are_limited_by_the_quota_of_a_version_1_control_group(
    limit: str, cores: int | None, tmp_path: Path
) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(limit + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    machine = available_cores(tmp_path / "no cgroup")
    assert available_cores(tmp_path) == min(cores or machine, machine)


def test_memory_is_limited_by_a_version_1_control_group(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(f"{100 * MIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{97 * MIB}\n")
    (folder / "memory.stat").write_text(f"cache 1\ntotal_inactive_file {MIB}\ntotal_active_file {MIB}\n")
    assert available_bytes(tmp_path) == 5 * MIB
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # no limit
    assert 0.5 < available_bytes(tmp_path) / psutil.virtual_memory().available < 2


KEEPS = """
import ctypes, sys
from engine.runtime.threads import keep_freed_memory

class MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL("libc.so.6")
libc.mallinfo.restype, libc.malloc.restype = MallInfo, ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
highest = int(sys.argv[1])
keep_freed_memory(lambda option, value: 0 if option == -3 and value > highest else libc.mallopt(option, value))
for _ in range(3):
    before, block = libc.mallinfo(), libc.malloc(16 << 20)
    mapped = libc.mallinfo().hblks - before.hblks
    libc.free(block)
grown = libc.mallinfo().arena - before.arena
assert (mapped, grown) == (0, 0), (mapped, grown)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
@pytest.mark.parametrize("highest", [2**40, 2**25, 0])  # newer versions; older ones; one that takes none of ours
@pytest.mark.process
def test_freed_memory_is_kept_whichever_mmap_threshold_the_c_library_accepts(highest: int) -> None:
    """A freed block of 16 MiB is reused; the next allocation neither maps memory nor grows the heap."""
    subprocess.run([sys.executable, "-c", KEEPS, str(highest)], check=True)


GIB = 2**30
H200 = DeviceMemory(free=100 * GIB, reserved=40 * GIB, allocated=10 * GIB)


def transitions(gibibytes: float) -> int:
    """Number of transitions of 50x60 that take so many GiB on a GPU."""
    return int(gibibytes * GIB / (50 * 60 + 30))


@pytest.mark.parametrize(("gibibytes", "fits"), [(60, True), (64, True), (66, False), (200, False)])
def test_a_replay_goes_to_the_gpu_if_it_fits_in_half_of_the_available_memory(gibibytes: int, fits: bool) -> None:
    """130 GiB are available, including memory that PyTorch's allocator has reserved and does not use."""
    assert fits_device("auto", transitions(gibibytes), SCREENS, H200) == fits


def test_a_replay_that_does_not_fit_on_the_gpu_is_refused_in_one_line() -> None:
    assert fits_device("device", transitions(129), SCREENS, H200)
    with pytest.raises(UserError) as refused:
        fits_device("device", transitions(140), SCREENS, H200)
    assert str(refused.value) == (
        "--replay-device: 49,611,833 transitions take 140.0 GiB, and 130.0 GiB of the GPU's memory are free; "
        "accepted: auto, host, or a smaller --buffer-size"
    )


def test_the_estimate_for_a_transition_on_a_device_is_correct() -> None:
    replay = DeviceReplayBuffer(ReplayShape(4, 1000, (5, 5), mask_actions=3), device=torch.device("cpu"))
    tensors = [*replay.storage._arrays.values(), replay._tree._nodes]
    taken = sum(tensor.numel() * tensor.itemsize for tensor in tensors)
    counted = 4000 * (5 * 5 + 30 + 3)
    assert counted * 0.99 < taken < counted * 1.01


@pytest.mark.parametrize(
    ("runner", "where", "index", "found"),
    [("ddp", "auto", 0, 100), ("ddp", "device", 3, 100), ("parallel", "auto", 0, 400), ("parallel", "auto", 3, 400),
     ("parallel", "device", 0, 400), ("parallel", "device", 3, 100)],
)  # fmt: skip
def test_a_rank_has_a_gpu_of_its_own_and_workers_share_one(runner: str, where: str, index: int, found: int) -> None:
    options = {"runner": runner, "num_processes": 4, "parallel_envs": 2, "buffer_size": 400, "burnin": 50}
    config = make_config({**options, "batch_size": 16, "replay_device": where})
    assert on_one_gpu(config, index, learners=4) == found
