"""Makes a learner: chooses how updates are computed and where the replay lies, and restores a checkpoint."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from engine.agents import DoubleDQN
from engine.agents.autotune import choose, still_valid
from engine.agents.initial_weights import for_actions
from engine.agents.networks import make_networks
from engine.agents.policy_weights import load_weights, policy_weights
from engine.buffers import Replay
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.config.torchrun import is_first_here
from engine.monitoring.memory_budget import check_memory
from engine.runners.device import resolve_device
from engine.runners.learning.checkpoint import load_checkpoint
from engine.runners.learning.device_update import DeviceUpdate
from engine.runners.learning.host_update import HostUpdate
from engine.runners.learning.learner import Learner, Update
from engine.runners.learning.learner_random import LearnerRandom
from engine.runners.learning.pace import Pace
from engine.runners.learning.replay_factory import belongs_on_device, device_replay_or, make_replay
from engine.runners.start import Start
from engine.runs import checkpoints
from engine.runs.checkpoint_state import Choices, read_state
from engine.runs.initial_policy import fitting_policy
from engine.runs.run import CONFIG_FILE, read_config

MakeAgent = Callable[..., DoubleDQN]
"""Makes an agent from the arguments of `DoubleDQN`."""


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
    if is_first_here(start.index):  # checks for all processes on this machine, before the others allocate
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
        advantage_learning=config.advantage_learning,
        threads=choices.threads,
        accumulate=config.accumulate,
        on_out_of_memory=lambda parts: log(f"out of memory: batches are now processed in {parts} parts"),
    )


def _initial_weights(config: RunConfig, policy: Path) -> dict[str, torch.Tensor]:
    """The weights of a policy, for the actions of a run."""
    weights = policy_weights(policy)
    actions = checkpoints.policy_metadata(policy).get("actions")
    game = config.game_info
    if actions is None:
        return weights
    return for_actions(weights, actions, game.action_names(config), game.most_similar_action)


def _update(
    config: RunConfig, agent: DoubleDQN, replay: Replay, random: LearnerRandom, log: Callable[[str], None]
) -> Update:
    if isinstance(replay, DeviceReplayBuffer) and type(agent) is DoubleDQN:
        return DeviceUpdate(agent, replay, config.batch_size, random=random.host, generator=random.device, log=log)
    return HostUpdate(agent, replay, config, random.host)  # other agents exchange weights or gradients in an update
