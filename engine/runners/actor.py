"""The actor: owns lanes, stacks their pictures, explores, and keeps each lane's record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.agents.schedules import annealed, epsilon_ladder
from engine.envs.mario import MarioLanes, VectorStep
from engine.envs.stack import FrameStack
from engine.messages import Lane

_LONGEST_HOLD = 8
_SHOWN_RETURNS = 20


@dataclass
class _LaneRecord:
    episodes: int = 0
    best: float = float("-inf")
    best_x: int = 0
    clears: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=_SHOWN_RETURNS))


@dataclass(frozen=True)
class EndedEpisode:
    lane: int
    episode_return: float
    length: int
    x_pos: int
    flag: bool


class Actor:
    """Acts in all lanes of one environment. `begin` starts a step in the background, `finish` waits for it."""

    def __init__(self, env: MarioLanes, *, index: int, epsilon_steps: int, seed: int) -> None:
        self.env = env
        self._index = index
        self._ladder = epsilon_ladder(env.lanes)
        self._epsilon_steps = epsilon_steps
        self.epsilons = annealed(self._ladder, 0, epsilon_steps)  # [lanes]
        self._random = np.random.default_rng(seed)
        self._held = np.zeros(env.lanes, np.int64)  # [lanes], action of a random hold
        self._hold_left = np.zeros(env.lanes, np.int64)  # [lanes], environment steps it still lasts
        self._records = [_LaneRecord() for _ in range(env.lanes)]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="actor")
        self.frames = env.reset()  # uint8 [lanes, height, width]
        self._stack = FrameStack(self.frames)

    def choose(self, policy: Callable[[NDArray[np.uint8]], NDArray[np.int64]], env_steps: int) -> NDArray[np.int64]:
        """Actions [lanes]: the policy's, or a random one that is held for 1 to 8 steps.

        A hold begins with probability epsilon / 4 a step. Held buttons explore a platform game better than single
        random presses: a full jump needs A for half a second.
        """
        self.epsilons = annealed(self._ladder, env_steps, self._epsilon_steps)
        lanes = self.env.lanes
        starts = (self._hold_left == 0) & (self._random.random(lanes) < self.epsilons / 4)
        self._held = np.where(starts, self._random.integers(0, self.env.actions, lanes), self._held)
        self._hold_left = np.where(starts, self._random.integers(1, _LONGEST_HOLD + 1, lanes), self._hold_left)
        actions = np.where(self._hold_left > 0, self._held, policy(self._stack.obs))
        self._hold_left = np.maximum(self._hold_left - 1, 0)
        return actions

    def begin(self, actions: NDArray[np.int64]) -> Future[VectorStep]:
        """Step the environment in the actor's thread."""
        return self._thread.submit(self.env.step, actions)

    def finish(self, pending: Future[VectorStep]) -> tuple[VectorStep, list[EndedEpisode]]:
        """Wait for a step, take its pictures into the observations and book ended episodes."""
        step = pending.result()
        ended = step.terminated | step.truncated
        self.frames = step.frames
        self._stack.push(step.frames, ended)
        self._hold_left[ended] = 0
        episodes = [self._book(int(lane), step) for lane in np.flatnonzero(ended)]
        return step, episodes

    def lanes(self) -> list[Lane]:
        """The record of every lane."""
        return [
            Lane(
                actor=self._index,
                lane=lane,
                epsilon=float(self.epsilons[lane]),
                episodes=record.episodes,
                last_return=record.returns[-1] if record.returns else float("nan"),
                mean_return=float(np.mean(record.returns)) if record.returns else float("nan"),
                best_return=record.best if record.episodes else float("nan"),
                best_x=record.best_x,
                clears=record.clears,
                returns=list(record.returns),
            )
            for lane, record in enumerate(self._records)
        ]

    def state(self) -> dict[str, Any]:
        """Random states, for a checkpoint."""
        return {"explore": dict(self._random.bit_generator.state), "env": self.env.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._random.bit_generator.state = state["explore"]
        self.env.load_state(state["env"])

    def close(self) -> None:
        self._thread.shutdown()
        self.env.close()

    def _book(self, lane: int, step: VectorStep) -> EndedEpisode:
        episode = EndedEpisode(
            lane,
            float(step.returns[lane]),
            int(step.lengths[lane]),
            int(step.furthest[lane]),
            bool(step.clears[lane]),
        )
        record = self._records[lane]
        record.episodes += 1
        record.returns.append(episode.episode_return)
        record.best = max(record.best, episode.episode_return)
        record.best_x = max(record.best_x, episode.x_pos)
        record.clears += episode.flag
        return episode
