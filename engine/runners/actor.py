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
from engine.envs.stack import FrameStack
from engine.envs.step import Frames, Lanes, VectorStep
from engine.messages import Lane

_SHOWN_RETURNS = 20


Act = Callable[[Frames, NDArray[np.bool_] | None], NDArray[np.int64]]
"""Actions [lanes] for observations uint8 [lanes, stack, *frame_shape] among the legal ones, bool [lanes, actions]."""


def random_actions(
    random: np.random.Generator, lanes: int, actions: int, masks: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    """An action for each lane [lanes], every legal one with the same probability."""
    if masks is None:
        return random.integers(0, actions, lanes)
    nth = (random.random(lanes) * masks.sum(1)).astype(np.int64)
    return (masks.cumsum(1) > nth[:, None]).argmax(1)


@dataclass
class _LaneRecord:
    episodes: int = 0
    best: float = float("-inf")
    best_x: int = 0
    best_score: int = 0
    clears: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=_SHOWN_RETURNS))


@dataclass(frozen=True)
class EndedEpisode:
    lane: int
    episode_return: float
    length: int
    x_pos: int
    flag: bool
    score: int


class Actor:
    """Acts in all lanes of one environment. `begin` starts a step in the background, `finish` waits for it."""

    def __init__(self, env: Lanes, *, index: int, epsilon_steps: int, seed: int) -> None:
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
        self.frames = env.reset()  # uint8 [lanes, *frame_shape]
        self.masks = env.masks
        self._stack = FrameStack(self.frames, env.spec.stack)

    def choose(self, policy: Act, env_steps: int) -> NDArray[np.int64]:
        """Actions [lanes]: the policy's, or a random legal one that is held for 1 to `hold` steps.

        A hold begins with probability 2 epsilon / hold a step, so that about epsilon of the steps are random.
        """
        self.epsilons = annealed(self._ladder, env_steps, self._epsilon_steps)
        lanes, spec = self.env.lanes, self.env.spec
        begins = self.epsilons * min(1.0, 2 / spec.hold)
        starts = (self._hold_left == 0) & (self._random.random(lanes) < begins)
        self._held = np.where(starts, random_actions(self._random, lanes, spec.actions, self.masks), self._held)
        self._hold_left = np.where(starts, self._random.integers(1, spec.hold + 1, lanes), self._hold_left)
        actions = np.where(self._hold_left > 0, self._held, policy(self._stack.obs, self.masks))
        self._hold_left = np.maximum(self._hold_left - 1, 0)
        return actions

    def begin(self, actions: NDArray[np.int64]) -> Future[VectorStep]:
        """Step the environment in the actor's thread."""
        return self._thread.submit(self.env.step, actions)

    def finish(self, pending: Future[VectorStep]) -> tuple[VectorStep, list[EndedEpisode]]:
        """Wait for a step, take its pictures into the observations and book ended episodes."""
        step = pending.result()
        ended = step.terminated | step.truncated
        self.frames, self.masks = step.frames, step.masks
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
                best_score=record.best_score,
                clears=record.clears,
                returns=list(record.returns),
            )
            for lane, record in enumerate(self._records)
        ]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """For a checkpoint: what goes into JSON, and arrays."""
        records = [{**vars(record), "returns": list(record.returns)} for record in self._records]
        arrays = {f"env.{name}": array for name, array in self.env.state().items()}
        obs = self._stack.obs
        arrays |= {"obs": obs if isinstance(obs, np.ndarray) else obs.cpu().numpy()}
        arrays |= {"held": self._held, "hold_left": self._hold_left}
        if self.masks is not None:
            arrays["masks"] = self.masks
        return {"explore": dict(self._random.bit_generator.state), "records": records}, arrays

    def load_state(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from the `state` of an actor with as many lanes of the same game."""
        self._random.bit_generator.state = state["explore"]
        for record, kept in zip(self._records, state["records"], strict=True):
            vars(record).update(kept, returns=deque(kept["returns"], maxlen=_SHOWN_RETURNS))
        self.env.load_state({name[4:]: array for name, array in arrays.items() if name.startswith("env.")})
        self._stack.obs = arrays["obs"]
        self._held, self._hold_left = arrays["held"], arrays["hold_left"]
        self.frames, self.masks = self._stack.obs[:, -1].copy(), arrays.get("masks")

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
            int(step.scores[lane]),
        )
        record = self._records[lane]
        record.episodes += 1
        record.returns.append(episode.episode_return)
        record.best = max(record.best, episode.episode_return)
        record.best_x = max(record.best_x, episode.x_pos)
        record.best_score = max(record.best_score, episode.score)
        record.clears += episode.flag
        return episode
