"""One Ape-X actor: plays in its lanes and computes the priorities of what it plays (Horgan et al. 2018, section 3).

The Q-values that an actor computes for acting also give the n-step TD errors of its earlier steps. So transitions enter
the replay with their own priorities, without another forward pass.

Local actors (`engine.runners.apex`) store each step at once, those on a Ray cluster (`engine.extras.ray.remote_actor`)
send chunks of them to the learner.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.agents.exploration import member_ladders
from engine.agents.munchausen import Munchausen, munchausen_of
from engine.agents.networks import make_networks, set_gamma
from engine.agents.noisy import draw_noise
from engine.buffers.frames import InitialPriorities
from engine.config.run_config import RunConfig
from engine.config.runners import Choices
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import make_lanes
from engine.envs.lanes import Frames, PlayedStep
from engine.runners.actor import Actor
from engine.runners.learning.factory import rehearse_acting
from engine.runtime.stopwatch import stopwatch
from engine.runtime.stored_arrays import seed_global_random


class TDErrors:
    """n-step TD errors of `lanes` lanes, from the Q-values used for acting; as in `DoubleDQN`, with `munchausen`
    returns, and targets lose the share `advantage_learning` of the action gap. It stays the same when the learner's
    share changes: these priorities hold only until a transition is first sampled."""

    def __init__(
        self, lanes: int, n_step: int, gamma: float, advantage_learning: float, munchausen: Munchausen | None = None
    ) -> None:
        self._n_step, self.gamma, self._advantage_learning = n_step, gamma, advantage_learning
        self._munchausen = munchausen
        self._taken = np.zeros((n_step + 1, lanes))
        """Q-value of the action taken plus the share of its gap, less its Munchausen reward, by age; row 0 is the
        newest."""
        self._rewards = np.zeros((n_step + 1, lanes))
        self._length = np.zeros(lanes, np.int64)  # steps of the episode so far, this one included

    def step(
        self,
        q_values: NDArray[np.float32],
        actions: NDArray[np.int64],
        rewards: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        failed: NDArray[np.bool_] | None = None,
    ) -> InitialPriorities:
        """Add one step of all lanes and return the priorities of the entries whose windows it completes.

        `q_values` [lanes, actions] are those of the observation acted on, -inf for illegal actions; all other arrays
        are [lanes]. After a truncation, the value of the last observation acted on is used in place of the final
        observation's, which the actor never computes. It is the final one where the step `failed`: see `PlayedStep`.
        """
        lanes = np.arange(actions.size)
        values = q_values.max(1)
        for rows in (self._taken, self._rewards):
            rows[1:] = rows[:-1].copy()
        taken = q_values[lanes, actions]
        self._taken[0] = taken + self._advantage_learning * (values - taken)
        if self._munchausen is not None:
            q = torch.from_numpy(q_values)
            self._taken[0] -= self._munchausen.reward(q, torch.from_numpy(actions)).numpy()
            values = self._munchausen.state_values(q[..., None], q)[:, 0].numpy()
        self._rewards[0] = rewards if failed is None else np.where(failed, 0, rewards)
        self._length += 1
        ended = terminated | truncated
        found: list[tuple[NDArray[np.int64], int, NDArray[np.float64]]] = []
        full = np.flatnonzero(self._length > self._n_step)
        if full.size:
            returns = self._discounted(full, self._n_step, 1) + self.gamma**self._n_step * values[full]
            found.append((full, self._n_step, returns - self._taken[self._n_step, full]))
        over = np.flatnonzero(ended)
        counts = np.ones(actions.size, np.int64) if failed is None else 1 - failed  # whether this step does
        for age in range(self._n_step if over.size else 0):
            begun = over[(self._length[over] > age) & (age + counts[over] > 0)]
            bootstrap = np.where(terminated[begun], 0.0, self.gamma ** (age + counts[begun]) * values[begun])
            found.append((begun, age, self._discounted(begun, age, 0) + bootstrap - self._taken[age, begun]))
        self._length[ended] = 0
        return InitialPriorities(
            lanes=np.concatenate([which for which, _, _ in found] or [lanes[:0]]),
            ages=np.concatenate([np.full(which.size, age, np.int64) for which, age, _ in found] or [lanes[:0]]),
            td_errors=np.abs(np.concatenate([errors for _, _, errors in found] or [np.zeros(0)])).astype(np.float32),
        )

    def _discounted(self, lanes: NDArray[np.int64], oldest: int, newest: int) -> NDArray[np.float64]:
        """Discounted sum of the rewards from age `oldest` to age `newest`, float64 like `lanes`."""
        total = np.zeros(lanes.size)
        for power, age in enumerate(range(oldest, newest - 1, -1)):
            total += self.gamma**power * self._rewards[age, lanes]
        return total


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
        seeds = spawned.generate_state(4)
        seed_global_random(int(seeds[2]))
        torch.manual_seed(int(seeds[3]))  # of noisy layers
        env = make_lanes(config, config.parallel_envs, threads=lane_threads, seed=int(seeds[0]))
        self.lanes = env.lanes
        self.network, _ = make_networks(config, env.spec)
        """The policy's network; whoever owns the actor loads newer weights into it."""
        self.network.requires_grad_(False).eval()
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
        self._errors = TDErrors(
            env.lanes, config.n_step, config.gamma, config.advantage_learning, munchausen_of(config)
        )

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
            priorities = self._errors.step(
                q_values, actions, step.rewards, step.terminated, step.truncated, step.failed
            )
        return ActorStep(step.played(frames, actions, masks), priorities, step.game_frames, episodes)

    def close(self) -> None:
        self.actor.close()

    def _q_values(self, obs: Frames) -> torch.Tensor:
        draw_noise(self.network)
        with torch.no_grad(), self._autocast:
            q: torch.Tensor = self.network(torch.from_numpy(obs))
            return q
