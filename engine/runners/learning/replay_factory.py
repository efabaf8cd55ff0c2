"""Makes the replay that a run's options ask for: its kind, its size, and where it lies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import torch

from engine.buffers import FrameStorage, MappedMemory, PrioritizedReplayBuffer, Replay, ReplayBuffer, SharedMemory
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.buffers.memory import Memory
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.monitoring.memory_budget import DeviceMemory, fits_device
from engine.runners.start import Start
from engine.runtime.devices import is_out_of_memory, release_memory


def make_replay(start: Start, spec: Spec, log: Callable[[str], None], device: torch.device | None = None) -> Replay:
    """The replay of one learner, with frames on `device`; None: on the host."""
    config = start.config
    options, priorities = _replay_options(config, spec, config.parallel_envs, start.learners)
    if device is not None:
        if not config.prioritized_replay:
            priorities = {"alpha": 0.0, "beta": 0.0, "beta_annealing": 0.0}
        return DeviceReplayBuffer(**options, **priorities, device=device)
    if config.replay_in_files:
        renew = None if start.resume_from is None else log  # such as after a change of processes or lanes
        others = 0 if start.index else start.learners - 1
        options["memory"] = MappedMemory(start.replay_folder, renew, others, contents=_contents(config))
    options["reuse_batches"] = True
    return PrioritizedReplayBuffer(**options, **priorities) if config.prioritized_replay else ReplayBuffer(**options)


def _contents(config: RunConfig) -> str:
    """What transitions belong to, as text."""
    return json.dumps({name: config.value(name) for name in config.replay_options})


def shared_replay(config: RunConfig, spec: Spec, processes: int, memory: Memory) -> ReplayBuffer:
    """The replay that `processes` actors fill, each its own lanes, with a priority for each transition."""
    options, priorities = _replay_options(config, spec, processes * config.parallel_envs)
    options |= {"memory": memory, "reuse_batches": True, "priorities": True}
    return PrioritizedReplayBuffer(**options, **priorities) if config.prioritized_replay else ReplayBuffer(**options)


def shared_storage(config: RunConfig, spec: Spec, processes: int, memory: SharedMemory) -> FrameStorage:
    """The storage of a `shared_replay`, for an actor, which only appends."""
    options, _ = _replay_options(config, spec, processes * config.parallel_envs)
    return FrameStorage(**options, memory=memory, priorities=True)


def _replay_options(
    config: RunConfig, spec: Spec, lanes: int, learners: int = 1
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of any replay, and further ones of a prioritized replay."""
    seen = learners if config.runner_info.shares_weights else 1  # updates of the run per update of one worker
    return {
        "lanes": lanes,
        "capacity": math.ceil(config.buffer_size / (lanes * learners)),
        "frame_shape": spec.frame_shape,
        "stack": spec.stack,
        "n_step": config.n_step,
        "gamma": config.gamma,
        "action_limit": spec.actions,
        "mask_actions": spec.mask_actions,
        "frame_dtype": spec.frame_dtype,
    }, {"alpha": config.alpha, "beta": config.beta, "beta_annealing": seen * config.beta_annealing}


def device_of_boards(config: RunConfig, device: torch.device) -> torch.device | None:
    """The device on which board games run so that frames need no copy; None: the host."""
    return device if _may_be_on_device(config, device) else None


def belongs_on_device(start: Start, spec: Spec, device: torch.device) -> bool:
    """Whether a learner keeps its replay on the device that learns; see `fits_device`."""
    config = start.config
    if not _may_be_on_device(config, device):
        return False
    if device.type != "cuda":
        return True
    memory = DeviceMemory(
        torch.cuda.mem_get_info(device)[0], torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    )
    transitions = on_one_gpu(config, start.index, start.learners)
    return fits_device(config.replay_device, transitions, spec, memory)


def device_replay_or(
    make: Callable[[torch.device | None], Replay], device: torch.device, config: RunConfig, log: Callable[[str], None]
) -> Replay:
    """The replay on `device`; with `auto` on the host, if another program has taken the room meanwhile.

    Raises the error of PyTorch if the replay must lie on the device and does not fit.
    """
    try:
        return make(device)
    except (RuntimeError, MemoryError) as error:
        if config.replay_device != "auto" or not is_out_of_memory(error):
            raise
    release_memory(device)
    log("the replay does not fit on the GPU, so it is stored on the host")
    return make(None)


def on_one_gpu(config: RunConfig, index: int, learners: int) -> int:
    """Transitions that must fit into the GPU memory that learner `index` of `learners` finds free.

    Each rank has its own GPU. Workers that share weights share one, so each decides by the sum of all, except with
    `--replay-device device`: there each allocates what the earlier ones have left.
    """
    together = config.runner_info.shares_weights and (config.replay_device == "auto" or index == 0)
    return config.buffer_size if together else math.ceil(config.buffer_size / learners)


def _may_be_on_device(config: RunConfig, device: torch.device) -> bool:
    """Whether the replay must lie on the device that learns, or may if it fits."""
    if config.replay_device == "device" and device.type == "mps":
        raise UserError("--replay-device: MPS has no float64, which priorities need; accepted: auto, host")
    if config.replay_device in ("host", "files"):
        return False
    return config.replay_device == "device" or device.type == "cuda"
