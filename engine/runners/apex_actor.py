"""What an Ape-X actor does in one step: it acts in its lanes and computes the priorities of what it plays.

Local actors (`engine.runners.local_actors`) store each step at once, those on a Ray cluster
(`engine.runners.ray.remote_actor`) send chunks of them to the learner.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.agents.afterstates import set_gamma
from engine.agents.exploration import member_ladders
from engine.agents.initial_priorities import TDErrors
from engine.agents.networks import make_networks
from engine.buffers.frames import InitialPriorities
from engine.config.run_config import RunConfig
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import make_lanes
from engine.envs.lanes import Frames, PlayedStep
from engine.runners.actor import Actor
from engine.runners.rehearsal import rehearse_acting
from engine.runs.checkpoint_state import Choices
from engine.runtime.stopwatch import stopwatch


@dataclass(frozen=True)
class ActorStep:
    """One step of all lanes of an actor."""

    played: PlayedStep
    priorities: InitialPriorities
    game_frames: int
    """Of all lanes; see `VectorStep`."""
    episodes: list[EpisodeRecord]
    """Those that ended."""


class ApexActor:
    """Actor `index` of a run. A step is a `choose` and a `finish`.

    Args:
        choices: the learner's device and precision.
        restarts: how many actors of this index were lost before.
        begun_at: environment steps of the run at its start; with `restarts`, it gives each actor random numbers of its
            own.
        level: of the curriculum, for the first episodes.
        lane_threads: threads that step Mario's lanes.
    """

    def __init__(
        self,
        config: RunConfig,
        choices: Choices,
        index: int,
        restarts: int,
        begun_at: int,
        level: float,
        lane_threads: int,
    ) -> None:
        torch.set_num_threads(1)
        rehearse_acting(config, torch.device("cpu"))
        spawned = np.random.SeedSequence(config.seed, spawn_key=(index, restarts, begun_at))  # unlike the learner's
        seeds = spawned.generate_state(2)
        env = make_lanes(config, config.parallel_envs, threads=lane_threads, seed=int(seeds[0]))
        self.lanes = env.lanes
        self.network, _ = make_networks(config, env.spec)
        """The policy's network; whoever owns the actor loads newer weights into it."""
        self.network.requires_grad_(False)
        fast = choices.device == "cpu" and choices.precision == "bfloat16"
        self._autocast = torch.autocast("cpu", torch.bfloat16) if fast else contextlib.nullcontext()
        self.actor = Actor(
            env,
            ladder=member_ladders(config.parallel_envs, config.epsilon, config.num_actors)[index],
            epsilon_steps=config.epsilon_steps,
            seed=int(seeds[1]),
            noise=config.action_noise,
            level=level if config.has_curriculum else None,
        )
        self._errors = TDErrors(env.lanes, config.n_step, config.gamma, config.advantage_learning)

    def choose(
        self, env_steps: int, epsilon_scale: float | None, gamma: float | None, level: float
    ) -> NDArray[np.int64]:
        """Actions [lanes] for the current frames.

        Args:
            env_steps: of the run, which anneal epsilon.
            epsilon_scale: multiplies every epsilon; None: 1.
            gamma: discount factor, if it is not the run's own any more.
            level: of the curriculum.
        """
        if gamma is not None and gamma != self._errors.gamma:
            self._errors.gamma = gamma
            set_gamma(self.network, gamma)
        self.actor.follow_level(level)
        return self.actor.choose(self._q_values, env_steps, epsilon_scale)

    def finish(self, actions: NDArray[np.int64]) -> ActorStep:
        """Take the step with these actions."""
        actor = self.actor
        frames, masks = actor.frames, actor.masks
        step, episodes = actor.finish(actor.begin(actions))
        assert actor.decision is not None
        q_values = actor.decision.q_values.numpy()
        with stopwatch("insert"):
            priorities = self._errors.step(q_values, actions, step.rewards, step.terminated, step.truncated)
        return ActorStep(step.played(frames, actions, masks), priorities, step.game_frames, episodes)

    def close(self) -> None:
        self.actor.close()

    def _q_values(self, obs: Frames) -> torch.Tensor:
        with torch.no_grad(), self._autocast:
            q: torch.Tensor = self.network(torch.from_numpy(obs))
            return q
