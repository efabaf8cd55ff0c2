"""A rehearsal of what a process of a run is about to do: some steps, with games, a network and a replay that are thrown
away.

It compiles all kernels, or loads them from the cache, which takes longer than a heartbeat may on a machine that is
new or busy. So every process rehearses before its first heartbeat, and the coordinator before it starts the others,
which then find the code in the cache, if that can be written.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from engine.agents.layout import as_input
from engine.agents.networks import make_networks
from engine.buffers import PrioritizedReplayBuffer, ReplayBuffer
from engine.compiler.code_cache import is_cold
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.envs.factory import make_lanes
from engine.envs.lanes import PlayedStep
from engine.runners.learning.replay_factory import device_of_boards


def rehearse_acting(config: RunConfig, device: torch.device, log: Callable[[str], object] = lambda text: None) -> Spec:
    """Play, and choose actions on `device`. Returns the `Spec` of the run's game."""
    if is_cold():
        log("compiling; only the first start on a machine does this, some seconds")
    env = make_lanes(config, 1, threads=1, seed=0, device=device_of_boards(config, device))
    try:
        if config.game_info.starts_slowly(config):
            return env.spec
        frames, masks = env.reset(), env.masks
        for _ in range(2):  # the second one may be the first of a new episode
            masks = env.step(np.zeros(1, np.int64) if masks is None else masks.argmax(1)).masks
        env.screen(0)
        if device.type == "cpu":
            obs = np.stack([np.asarray(frames)] * env.spec.stack, 1)
            with torch.no_grad():
                network = make_networks(config, env.spec)[0]
                images = as_input(network, torch.from_numpy(obs), torch.bfloat16)
                network(images.float() if images.dtype == torch.bfloat16 else images)
        return env.spec
    finally:
        env.close()


def rehearse_learning(config: RunConfig, spec: Spec) -> None:
    """Store steps in a replay on the host, draw a batch and set its priorities."""
    length = 2 * (config.n_step + spec.stack)
    kind = PrioritizedReplayBuffer if config.prioritized_replay else ReplayBuffer
    replay = kind(
        1, length, spec.frame_shape, stack=spec.stack, n_step=config.n_step, mask_actions=spec.mask_actions,
        frame_dtype=spec.frame_dtype,
    )  # fmt: skip
    frames, none = np.zeros((1, *spec.frame_shape), spec.frame_dtype), np.zeros(1, np.bool_)
    masks = np.ones((1, spec.actions), np.bool_) if spec.masked else None
    for _ in range(length):
        replay.append(
            PlayedStep(frames, np.zeros(1, np.int64), np.zeros(1, np.float32), none, none, frames, masks, masks)
        )
    _, sample = replay.sample(1, np.random.default_rng(0))
    replay.update_priorities(sample, np.ones(1, np.float32))
