"""Start of a process that learns: where it resumes, which options have changed since, its device and its threads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.config.reading import load_toml
from engine.config.run_config import RunConfig, specs_of
from engine.config.runners import BATCH_SIZES, torchrun_rank
from engine.errors import UserError
from engine.runs import checkpoints
from engine.runs.run import CONFIG_FILE
from engine.runtime.threads import ThreadBudget, keep_freed_memory, thread_budget


@dataclass(frozen=True)
class Start:
    """Learner `index` of `learners` of a run. They divide burn-in and transitions; a checkpoint's random states are
    learner 0's."""

    run: Path
    """Leads into the run's folder also after that was renamed."""
    config: RunConfig
    resume_from: Path | None = None
    """A checkpoint."""
    index: int = 0
    learners: int = 1
    seed: Any = None
    """Of everything random in this process; None: the run's."""
    choices: dict[str, Any] | None = None
    """What another learner of the run has chosen (`Choices.state`)."""

    @property
    def seeds(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.config.seed if self.seed is None else self.seed)

    @property
    def replay_folder(self) -> Path:
        """Return where a memory-mapped replay has its files, for people to read."""
        return self.run.resolve() / (f"replay-{self.index}" if self.index else "replay")


def env_steps_of(checkpoint: Path | None) -> int:
    """Environment steps of the run at a checkpoint; 0 without one."""
    return 0 if checkpoint is None else checkpoints.read_manifest(checkpoint).env_steps


def unchanged(config: RunConfig, checkpoint: Path, *options: str) -> bool:
    """Return whether options have the same values as in the run that wrote a checkpoint. One that its file lacks was
    unset, of another game, or did not exist yet."""
    return not changed(config, checkpoint, *options)


def changed(config: RunConfig, checkpoint: Path, *options: str) -> dict[str, Any]:
    """Return those of the options that had other values in the run that wrote a checkpoint, with the earlier values."""
    usual = {name: spec.default for name, spec in specs_of(config.game).items()}
    earlier = {**usual, **load_toml(checkpoint / CONFIG_FILE)}
    before = {option: earlier[option] for option in options}
    return {option: value for option, value in before.items() if value != config.value(option)}


def resolve_device(name: str) -> torch.device:
    """The device by its name; `auto` is CUDA, MPS or the CPU, in this order of preference.

    Raises `UserError` if the machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device: {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("--device: mps: this machine has no MPS device")
    return device


def config_of_rank(config: RunConfig, index: int) -> RunConfig:
    """The configuration with the device of one rank. Raises `UserError` if there are too few devices."""
    launched = torchrun_rank()
    here = (index, config.num_processes) if launched is None else (launched.local_index, launched.local_ranks)
    return dataclasses.replace(config, device=device_of_rank(config.device, resolve_device(config.device), *here))


def device_of_rank(asked: str, resolved: torch.device, index: int, ranks: int) -> str:
    """The device of one rank: its own GPU, counted from the requested one, or the CPU.

    Args:
        asked: `--device`.
        resolved: what `--device` means on this machine.

    Raises `UserError` if there are fewer GPUs than ranks, or if gradients can't be averaged on the device.
    """
    if resolved.type == "mps":
        if asked == "auto":
            return "cpu"
        raise UserError("--device: mps: PyTorch can't average gradients there; --runner ddp accepts: auto, cpu, cuda")
    if resolved.type != "cuda":
        return asked
    first, there = resolved.index or 0, torch.cuda.device_count()
    if first + ranks > there:
        most = there - first
        raise UserError(
            f"--num-processes: {ranks} ranks need a GPU each, and this machine has {most} from cuda:{first} on; "
            f"accepted: 1 to {most}, or --device cpu"
        )
    return f"cuda:{first + index}"


def learning_threads(config: RunConfig, processes: int) -> ThreadBudget:
    """The thread budget of each of `processes` that play and learn. Also sets torch's thread count."""
    averages = config.runner_info.averages_gradients  # during its backward pass, so in one thread
    batch_size = config.batch_size or BATCH_SIZES[-1]
    threads = thread_budget(config.parallel_envs, batch_size, processes, 1 if averages else None)
    torch.set_num_threads(threads.torch_threads)
    keep_freed_memory()
    return threads
