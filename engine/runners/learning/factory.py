"""Makes a learner: the replay that its options ask for, how updates are computed, and the state of a checkpoint.

Before, a process rehearses some steps, with games, a network and a replay that are thrown away. That compiles all
kernels, or loads them from the cache, which takes longer than a heartbeat may on a machine that is new or busy. So
every process rehearses before its first heartbeat, and the coordinator before it starts the others, which then find
the code in the cache, if that can be written.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.agents.autotune import choose, still_valid
from engine.agents.double_dqn import DoubleDQN
from engine.agents.layout import as_input
from engine.agents.munchausen import munchausen_of
from engine.agents.networks import make_networks
from engine.agents.optimisers import Adam, RMSProp
from engine.agents.weights import KnowsSimilarActions, for_actions, load_weights, policy_weights
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.buffers.frames import FrameStorage
from engine.buffers.memory import HostMemory, MappedMemory, SharedMemory
from engine.buffers.replay import PrioritizedReplayBuffer, Replay, ReplayBuffer
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.config.runners import Choices, torchrun_rank
from engine.console.compiler.code_cache import is_cold
from engine.envs.factory import make_lanes
from engine.envs.lanes import PlayedStep
from engine.errors import UserError
from engine.monitoring.memory_budget import DeviceMemory, check_memory, fits_device
from engine.runners.learning.checkpoint import load_checkpoint
from engine.runners.learning.learner import Learner, LearnerRandom, Pace
from engine.runners.learning.updates import DeviceUpdate, HostUpdate
from engine.runners.shared_state import starts_slowly
from engine.runners.start import Start, resolve_device
from engine.runs import checkpoints
from engine.runs.checkpoint_state import read_state
from engine.runs.lookup import fitting_policy
from engine.runs.replay_file import ReplayShape, replay_shape
from engine.runs.run import CONFIG_FILE, read_config
from engine.runtime.devices import is_out_of_memory, release_memory


def make_replay(start: Start, spec: Spec, log: Callable[[str], None], device: torch.device | None = None) -> Replay:
    """The replay of one learner, with frames on `device`; None: on the host."""
    config = start.config
    shape = _shape(config, spec, config.parallel_envs, start.learners)
    if device is not None:
        uniform = {"alpha": 0.0, "beta": 0.0, "beta_annealing": 0.0}
        priorities = _priorities(config, start.learners) if config.prioritized_replay else uniform
        return DeviceReplayBuffer(shape, gamma=config.gamma, **priorities, device=device)
    memory = None
    if config.replay_in_files:
        renew = None if start.resume_from is None else log  # such as after a change of processes or lanes
        others = 0 if start.index else start.learners - 1
        memory = MappedMemory(start.replay_folder, renew, others, contents=_contents(config))
    return _on_host(config, shape, start.learners, memory=memory)


def _contents(config: RunConfig) -> str:
    """Return what transitions belong to, as text."""
    return json.dumps({name: config.value(name) for name in config.replay_options})


def shared_replay(config: RunConfig, spec: Spec, processes: int, memory: HostMemory) -> ReplayBuffer:
    """The replay that `processes` actors fill, each its own lanes, with a priority for each transition."""
    return _on_host(config, _shape(config, spec, processes * config.parallel_envs), priorities=True, memory=memory)


def shared_storage(config: RunConfig, spec: Spec, processes: int, memory: SharedMemory) -> FrameStorage:
    """The storage of a `shared_replay`, for an actor, which only appends."""
    shape = _shape(config, spec, processes * config.parallel_envs)
    return FrameStorage(shape, gamma=config.gamma, memory=memory, priorities=True)


def _shape(config: RunConfig, spec: Spec, lanes: int, learners: int = 1) -> ReplayShape:
    return replay_shape(spec, lanes, math.ceil(config.buffer_size / (lanes * learners)), config.n_step)


def _priorities(config: RunConfig, learners: int) -> dict[str, float]:
    """Arguments of a prioritized replay."""
    seen = learners if config.runner_info.shares_weights else 1  # updates of the run per update of one worker
    return {"alpha": config.alpha, "beta": config.beta, "beta_annealing": seen * config.beta_annealing}


def _on_host(config: RunConfig, shape: ReplayShape, learners: int = 1, **options: Any) -> ReplayBuffer:
    options |= {"gamma": config.gamma, "reuse_batches": True}
    if config.prioritized_replay:
        return PrioritizedReplayBuffer(shape, **_priorities(config, learners), **options)
    return ReplayBuffer(shape, **options)


def device_of_boards(config: RunConfig, device: torch.device) -> torch.device | None:
    """The device on which board games run so that frames need no copy; None: the host."""
    return device if _may_be_on_device(config, device) else None


def belongs_on_device(start: Start, spec: Spec, device: torch.device) -> bool:
    """Return whether a learner keeps its replay on the device that learns; see `fits_device`."""
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
    """Return whether the replay must lie on the device that learns, or may if it fits."""
    if config.replay_device == "device" and device.type == "mps":
        raise UserError("--replay-device: MPS has no float64, which priorities need; accepted: auto, host")
    if config.replay_device in ("host", "files"):
        return False
    return config.replay_device == "device" or device.type == "cuda"


MakeAgent = Callable[..., DoubleDQN]
"""Makes an agent from the arguments of `DoubleDQN`."""
_OPTIMIZERS = {"adam": Adam, "rmsprop": RMSProp}


def make_learner(
    start: Start,
    spec: Spec,
    *,
    seed: int,
    threads: int = 1,
    targets_ahead: bool = False,
    log: Callable[[str], None] = lambda text: None,
    make_agent: MakeAgent = DoubleDQN,
    replay: Replay | None = None,
) -> Learner:
    """A learner with a replay of its own, or with one that all processes of the run fill.

    From a checkpoint come weights, optimiser, counters, random state and beta (unless beta is given again). The replay
    itself is restored only from a checkpoint that holds it, or from files, if shape and task fit, and gamma if rewards
    contain it. Otherwise learning waits until the replay holds a quarter of the burn-in, if a trained policy fills it.
    """
    config, resume_from = start.config, start.resume_from
    state = None if resume_from is None else read_state(resume_from)
    lanes = config.parallel_envs * (1 if replay is None else config.processes)
    device = resolve_device(config.device)
    choices = start.choices
    if choices is None and resume_from is not None and state is not None:
        choices = still_valid(state.choices.state(), read_config(resume_from / CONFIG_FILE), config)
    chosen = choose(config, spec, device, threads, choices, log)
    config = dataclasses.replace(config, batch_size=chosen.batch_size)
    start = dataclasses.replace(start, config=config)
    on_device = replay is None and belongs_on_device(start, spec, device)
    elsewhere = replay is None and (config.replay_in_files or (on_device and device.type != "cpu"))
    rank = torchrun_rank()
    if (start.index if rank is None else rank.local_index) == 0:  # for all on this machine, before others allocate
        check_memory(config, with_replay=not elsewhere)
    random = LearnerRandom(seed, device)
    agent = _agent(start, spec, chosen, device, partial(make_agent, targets_ahead=targets_ahead), log)
    if replay is None:
        make = partial(make_replay, start, spec, log)
        replay = device_replay_or(make, device, config, log) if on_device else make(None)
    burnin = math.ceil(config.burnin / start.learners)
    update, pace = _update(config, agent, replay, random, log), Pace(config, replay, lanes, burnin)
    learner = Learner(config, spec, chosen, update, pace, random)
    if resume_from is not None and state is not None:
        load_checkpoint(learner, resume_from, state, with_random=start.index == 0)
    return learner


def _agent(
    start: Start, spec: Spec, choices: Choices, device: torch.device, make: MakeAgent, log: Callable[[str], None]
) -> DoubleDQN:
    config = start.config
    network, target = make_networks(config, spec)
    is_new = start.resume_from is None and start.index == 0  # other learners copy the weights of this one
    if config.initial_policy is not None and is_new:
        policy = fitting_policy(config)
        load_weights(network, _initial_weights(config, policy), policy)
    return make(
        network,
        target,
        device=device,
        learning_rate=config.learning_rate,
        precision=choices.precision,
        sync_every=config.sync_every,
        tau=config.tau,
        policy_tau=config.policy_tau,
        double_q=config.double_q,
        munchausen=munchausen_of(config),
        advantage_learning=config.advantage_learning,
        optimizer=_OPTIMIZERS[config.optimizer],
        threads=choices.threads,
        accumulate=config.accumulate,
        owner=start.index == 0,
        seed=config.seed,
        on_out_of_memory=lambda parts: log(f"out of memory: batches are now processed in {parts} parts"),
    )


def _initial_weights(config: RunConfig, policy: Path) -> dict[str, torch.Tensor]:
    """The weights of a policy, for the actions of a run."""
    weights = policy_weights(policy)
    actions = checkpoints.policy_metadata(policy).get("actions")
    game = config.game_info
    if actions is None:
        return weights
    similar = game.most_similar_action if isinstance(game, KnowsSimilarActions) else None
    return for_actions(weights, actions, game.action_names(config), similar)


def _update(
    config: RunConfig, agent: DoubleDQN, replay: Replay, random: LearnerRandom, log: Callable[[str], None]
) -> HostUpdate | DeviceUpdate:
    if isinstance(replay, DeviceReplayBuffer) and type(agent) is DoubleDQN:
        return DeviceUpdate(agent, replay, config.batch_size, random=random.host, generator=random.device, log=log)
    # Other agents exchange weights or gradients in an update.
    return HostUpdate(agent, replay, config.batch_size, random.host, prioritized=config.prioritized_replay)


def rehearse_acting(config: RunConfig, device: torch.device, log: Callable[[str], object] = lambda text: None) -> Spec:
    """Play, and choose actions on `device`. Returns the `Spec` of the run's game."""
    if is_cold():
        log("compiling; only the first start on a machine does this, some seconds")
    if starts_slowly(config):
        return config.spec
    env = make_lanes(config, 1, threads=1, seed=0, device=device_of_boards(config, device))
    try:
        frames, masks = env.reset(), env.masks
        for _ in range(2):  # the second one may be the first of a new episode
            masks = env.step(np.zeros(1, np.int64) if masks is None else masks.argmax(1)).masks
        env.screen(0)
        if device.type == "cpu":
            obs = np.stack([np.asarray(frames)] * env.spec.stack, 1)
            with torch.no_grad():
                network = make_networks(config, env.spec)[0].eval()
                images = as_input(network, torch.from_numpy(obs), torch.bfloat16)
                network(images.float() if images.dtype == torch.bfloat16 else images)
        return env.spec
    finally:
        env.close()


def rehearse_learning(config: RunConfig, spec: Spec) -> None:
    """Store steps in a replay on the host, draw a batch and set its priorities."""
    length = 2 * (config.n_step + spec.stack)
    replay = _on_host(config, replay_shape(spec, 1, length, config.n_step))
    frames, none = np.zeros((1, *spec.frame_shape), spec.frame_dtype), np.zeros(1, np.bool_)
    masks = np.ones((1, spec.actions), np.bool_) if spec.masked else None
    for _ in range(length):
        replay.append(
            PlayedStep(frames, np.zeros(1, np.int64), np.zeros(1, np.float32), none, none, frames, masks, masks)
        )
    _, sample = replay.sample(1, np.random.default_rng(0))
    replay.update_priorities(sample, np.ones(1, np.float32))
