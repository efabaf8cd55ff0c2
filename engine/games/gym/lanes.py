"""Lanes of a Gymnasium environment."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from engine.config.game import Spec
from engine.envs.lanes import Frames, VectorStep
from engine.games.gym.lane import Lane
from engine.games.gym.making import make_environment
from engine.games.gym.observations import Observations
from engine.games.gym.options import FALLBACK_STEPS, GymOptions
from engine.games.gym.spaces import label, parsed
from engine.games.gym.view import view_of
from engine.protocol.messages import Thought

_LOG = logging.getLogger(__name__)
_SLOW_S, _SLOWEST_S = 3.0, 10.0
"""Seconds after which a step is said to hang: at first, and where steps have been slow. Processes that give no
heartbeat are ended somewhat later."""


class GymLanes:
    """Environments of one kind, stepped one after the other; see `engine.envs.lanes.Lanes`."""

    def __init__(self, options: GymOptions, spec: Spec, lanes: int, *, seed: int) -> None:
        self.lanes, self.spec, self._options = lanes, spec, options
        self._spaces = parsed(options.spaces)
        observations = Observations(self._spaces, view_of(options))
        make = maker(options)
        self._lanes = [Lane(lane, make, options, self._spaces, observations, seed) for lane in range(lanes)]
        self._no_task = np.full(lanes, -1, np.int64)
        self._none = np.zeros((lanes, 0), np.float64)
        self.masks: NDArray[np.bool_] | None = None
        self._largest = np.full(spec.frame_shape, 1e-3, np.float32) if self._spaces.kind != "image" else None
        self._watch = _Watch(label(options.env), self._lanes)

    def reset(self) -> Frames:
        frames, masks = self._begin(range(self.lanes))
        self._returns, self._lengths = np.zeros(self.lanes), np.zeros(self.lanes, np.int64)
        self.masks = np.stack(masks) if self.spec.masked else None
        return np.stack(frames)

    def _begin(self, lanes: Iterable[int]) -> tuple[list[Any], list[Any]]:
        """Begin an episode in some lanes. Returns its first frame and mask in each."""
        begun = []
        for lane in lanes:
            with self._watch.at(lane, "reset"):
                begun.append(self._lanes[lane].begin())
        return [frame for frame, _ in begun], [mask for _, mask in begun]

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        moved = []
        for lane, action in enumerate(actions.tolist()):
            with self._watch.at(lane):
                moved.append(self._lanes[lane].step(action))
        rewards = np.array([each.reward for each in moved])
        over = np.array([each.terminated or each.truncated for each in moved])
        lost = np.array([each.life_lost for each in moved]) & self._options.life_ends
        self._returns, self._lengths = self._returns + rewards, self._lengths + 1
        final_frames = np.stack([each.frame for each in moved])
        final_masks = np.stack([each.mask for each in moved]) if self.spec.masked else None  # type: ignore[misc]
        frames, masks = final_frames, final_masks
        step_returns, step_lengths = self._returns, self._lengths
        if over.any():
            frames = final_frames.copy()
            ended = np.flatnonzero(over)
            first, first_masks = self._begin(ended.tolist())
            frames[ended] = first
            if masks is not None:
                masks = masks.copy()
                masks[ended] = first_masks
            self._returns, self._lengths = np.where(over, 0, self._returns), np.where(over, 0, self._lengths)
        self.masks = masks
        if self._largest is not None:
            np.maximum(self._largest, np.abs(frames).max(0), out=self._largest)
        agent = np.sign(rewards) if self._options.reward == "sign" else rewards
        return VectorStep(
            frames=frames,
            final_frames=final_frames,
            rewards=(agent * self._options.reward_scale).astype(np.float32),
            terminated=np.array([each.terminated for each in moved]) | lost,
            truncated=np.array([each.truncated for each in moved]),
            returns=step_returns,
            lengths=step_lengths,
            results=self._none,
            success=np.zeros(self.lanes, np.bool_),
            from_start=~(lost | np.array([each.failed for each in moved])),
            tasks=self._no_task,
            game_frames=sum(each.own_steps for each in moved) if self._options.frame_skip > 1 else 0,
            masks=masks,
            final_masks=final_masks,
        )

    def set_curriculum_level(self, level: float) -> None:
        pass  # there is no curriculum

    def screen(self, lane: int, thought: Thought | None = None) -> NDArray[np.uint8]:
        with self._watch.at(lane, "render"):
            return self._lanes[lane].picture(self._largest)

    def facts(self, lane: int) -> dict[str, int]:
        return {}

    def task_of(self, lane: int) -> str:
        return self._options.env

    def spread_starts(self) -> None:
        pass  # each episode has a seed of its own

    def rewind(self) -> None:
        for lane in self._lanes:
            lane.rewind()

    def state(self) -> dict[str, NDArray[Any]]:
        return {"episodes": np.array([lane.episode for lane in self._lanes])}

    def load_state(self, state: dict[str, NDArray[Any]]) -> Frames:
        """An environment's state can't be saved: this begins the episodes that come next."""
        episodes = state["episodes"]
        if episodes.shape != (self.lanes,) or episodes.dtype != np.int64 or not (episodes >= 0).all():
            raise ValueError(f"episodes must be {self.lanes} numbers of at least 0")
        for lane, episode in zip(self._lanes, episodes.tolist(), strict=True):
            lane.episode = episode
        return self.reset()

    def close(self) -> None:
        self._watch.close()
        for lane in self._lanes:
            lane.close()


def maker(options: GymOptions) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Makes the environment that the options name."""
    others: dict[str, Any] = {}
    if parsed(options.spaces).renders:
        others["render_mode"] = "rgb_array"
    if limit := options.max_episode_steps or (None if parsed(options.spaces).step_limit else FALLBACK_STEPS):
        others["max_episode_steps"] = limit
    return lambda: make_environment(options.env, options.env_args, options.env_import, **others)


class _Watch:
    """Says in which lane and step an environment hangs. What waits for this process ends it then."""

    def __init__(self, name: str, lanes: list[Lane]) -> None:
        self._name, self._lanes = name, lanes
        self._lane, self._since, self._what = -1, 0.0, ""
        self._slow_s, self._has_told = _SLOW_S, False
        self._closed = threading.Event()
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def at(self, lane: int, what: str = "") -> _Watch:
        """Watches the lane until the end of the `with` block. `what` it does; empty: the next step."""
        self._lane, self._since, self._what = lane, time.monotonic(), what
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._lane = -1
        if self._has_told:  # it was only slow, and is likely to be so again
            self._slow_s = min(_SLOWEST_S, max(self._slow_s, 2 * (time.monotonic() - self._since)))
            self._has_told = False

    def _look(self) -> None:
        told = 0.0
        while not self._closed.wait(1.0):
            lane, since, what = self._lane, self._since, self._what
            if lane >= 0 and since != told and (silent_s := time.monotonic() - since) > self._slow_s:
                told, self._has_told, at = since, True, self._lanes[lane]
                _LOG.warning(
                    "%s: lane %d, episode %s, %s: no answer for %.0f s",
                    self._name, lane, f"{at.episode:,}", what or f"step {at.steps + 1:,}", silent_s,
                )  # fmt: skip

    def close(self) -> None:
        self._closed.set()
