"""Checks before a run gets a folder: device, files that options name, memory, disk space, whether a Ray cluster
answers, and whether its sinks are installed.

Imports without torch. What only the runner can find out, it reports before its first step; the host then removes the
folder again.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from engine.config.capabilities import NamesFiles
from engine.config.features import feature
from engine.config.run_config import RunConfig, belongs
from engine.config.runners import torchrun_rank
from engine.config.sinks import check_sinks, sink_names
from engine.config.user_code import check_code_files
from engine.errors import UserError
from engine.monitoring.memory_budget import TooLittleMemory, check_memory, mapped_bytes
from engine.runtime.text import size_text


def check_start(config: RunConfig, *, new: bool = True) -> None:
    """Raises `UserError` if the run can't work on this machine. `new`: its files are not written yet."""
    check_setup(config)
    _check_memory(config)
    if config.replay_in_files and new:
        _check_disk(config)


def check_setup(config: RunConfig) -> None:
    """The part of `check_start` that does not depend on how much memory and disk space others leave."""
    _check_device(config.device)
    _check_threads(config.threads)
    check_sinks(sink_names(config.sinks))
    if config.ray != "none":
        feature("ray", "--ray").check_cluster(config.ray)
    if isinstance(game := config.game_info, NamesFiles):
        game.check_files(config)
    check_code_files(config.values())


def _check_device(device: str) -> None:
    name, _, index = device.partition(":")
    if name == "mps" and sys.platform != "darwin":
        raise UserError("--device: mps: this machine has no MPS device")
    if name == "cuda" and not _is_rocm():
        there = _cuda_devices()
        if int(index or 0) >= there:
            devices = "device" if there == 1 else "devices"
            raise UserError(f"--device: {device}: this machine has {there} CUDA {devices}")


def _check_threads(threads: int | None) -> None:
    if threads is not None and torchrun_rank() is not None:
        raise UserError("--threads: torchrun's ranks are bounded where they are started, such as with taskset")
    if threads is not None and not hasattr(os, "sched_setaffinity"):
        raise UserError("--threads: this system binds no process to cores; accepted: none")


def _is_rocm() -> bool:
    """Return whether PyTorch was built for AMD GPUs."""
    return "rocm" in version("torch")


def _cuda_devices() -> int:
    """Number of CUDA devices, from the driver, which respects CUDA_VISIBLE_DEVICES as PyTorch does."""
    if "+cpu" in version("torch"):
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return 0 if failed else count.value


def _check_memory(config: RunConfig) -> None:
    try:
        check_memory(config, with_replay=not config.replay_in_files)
    except UserError:
        if not _replay_may_be_on_gpu(config):
            raise
        check_memory(config, with_replay=False)


def _replay_may_be_on_gpu(config: RunConfig) -> bool:
    if not belongs("replay_device", config.game, config.runner) or config.replay_device in ("host", "files"):
        return False
    return config.device not in ("cpu", "mps") and (_is_rocm() or _cuda_devices() > 0)


def _check_disk(config: RunConfig) -> None:
    folder = Path(config.run_dir).resolve()
    try:
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # creating the run's folder will report it
    needed = mapped_bytes(config.buffer_size, config.spec)
    if needed > free:
        raise TooLittleMemory(
            f"--buffer-size: {config.buffer_size:,} transitions need {size_text(needed)}, and the disk of {folder} "
            f"has {size_text(free)} free; at most {config.buffer_size * free // needed:,} fit"
        )
