"""Lanes of a Gymnasium environment, for trainers and for a person."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.envs.lanes import Frames, Lanes, VectorStep
from engine.games.gym.options import GymOptions, evaluation_limit
from engine.games.gym.spaces import label, parsed
from engine.games.gym.workers import HERE, Way, chosen_way, places
from engine.protocol.messages import Thought
from engine.runtime.threads import user_calls

_LOG = logging.getLogger(__name__)
_said = set[Way]()


class GymLanes(Lanes):
    """Environments of one kind, stepped in some `way`; see `engine.envs.lanes.Lanes`."""

    def __init__(self, options: GymOptions, spec: Spec, lanes: int, *, seed: int, way: Way = HERE) -> None:
        self.lanes, self.spec, self._options = lanes, spec, options
        user_calls.limit_s, user_calls.step_s = options.step_timeout, 2 * lanes * options.step_timeout
        self._places, self._numbers, self._results, self._lanes = places(options, spec, lanes, seed, way)
        self._call("make")
        self._no_task = np.full(lanes, -1, np.int64)
        self._none = np.zeros((lanes, 0), np.float64)
        self.masks = None
        is_image = parsed(options.spaces).kind == "image"
        self._largest = None if is_image else np.full(spec.frame_shape, 1e-3, np.float32)

    def _call(self, name: str, *by_lane: list[Any]) -> list[Any]:
        """Call a method in all places; `by_lane`: arguments, of which each place gets those of its lanes. Returns the
        results."""
        for place, numbers in zip(self._places, self._numbers, strict=True):
            place.send(name, *([each[number] for number in numbers] for each in by_lane))
        found, errors = [], list[Exception]()
        for place in self._places:  # all, so that none has an answer left
            try:
                found.append(place.receive())
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return found

    def _in_order(self, found: list[Any]) -> list[Any]:
        """Results of places, each a list with one for each of its lanes, by lane."""
        if len(found) == 1:
            return list(found[0])
        by_lane = [None] * self.lanes
        for place, numbers in zip(found, self._numbers, strict=True):
            for each, number in zip(place, numbers, strict=True):
                by_lane[number] = each
        return by_lane

    def reset(self) -> Frames:
        self._call("reset")
        self._returns, self._lengths = np.zeros(self.lanes), np.zeros(self.lanes, np.int64)
        self._last, self._rests = np.zeros(self.lanes, np.bool_), np.zeros(self.lanes, np.bool_)
        self.masks = self._results.masks.copy() if self.spec.masked else None
        return self._results.frames.copy()

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        rests, results, masked = self._rests, self._results, self.spec.masked
        moved = self._in_order(self._call("step", actions.tolist(), rests.tolist(), self._last.tolist()))
        rewards, terminated, truncated, own_steps, life_lost, failed, success = map(np.array, zip(*moved, strict=True))
        over, lost = terminated | truncated, life_lost & self._options.life_ends
        self._returns, self._lengths = self._returns + rewards, self._lengths + ~rests
        step_returns, step_lengths = self._returns, self._lengths
        frames = final_frames = results.frames.copy()
        self.masks = final_masks = results.masks.copy() if masked else None
        if over.any():
            self._rests = rests | (over & self._last & ~failed)
            final_frames, final_masks = results.final_frames.copy(), results.final_masks.copy() if masked else None
            self._returns, self._lengths = np.where(over, 0, self._returns), np.where(over, 0, self._lengths)
        if self._largest is not None:
            np.maximum(self._largest, np.abs(frames).max(0), out=self._largest)
        agent = np.sign(rewards) if self._options.reward == "sign" else rewards
        return VectorStep(
            frames=frames,
            final_frames=final_frames,
            rewards=(agent * self._options.reward_scale).astype(np.float32),
            terminated=terminated | lost,
            truncated=truncated,
            returns=step_returns,
            lengths=step_lengths,
            results=self._none,
            success=success,
            from_start=~(lost | failed),
            tasks=self._no_task,
            game_frames=int(own_steps.sum()) if self._options.frame_skip > 1 else 0,
            masks=self.masks,
            final_masks=final_masks,
            failed=failed,
        )

    def rest_after(self, last: NDArray[np.bool_]) -> None:
        self._last = last

    def screen(self, lane: int, thought: Thought | None = None) -> NDArray[np.uint8]:
        place = self._places[lane % len(self._places)]
        place.send("picture", lane // len(self._places), self._largest)
        drawn: NDArray[np.uint8] = place.receive()
        return drawn

    def task_of(self, lane: int) -> str:
        return self._options.env

    def rewind(self) -> None:
        self._call("rewind")

    def state(self) -> dict[str, NDArray[Any]]:
        return {"episodes": np.array(self._in_order(self._call("episodes")))}

    def load_state(self, state: dict[str, NDArray[Any]]) -> Frames:
        """An environment's state can't be saved: this begins the episodes that come next."""
        episodes = state["episodes"]
        if episodes.shape != (self.lanes,) or episodes.dtype != np.int64 or not (episodes >= 0).all():
            raise ValueError(f"episodes must be {self.lanes} numbers of at least 0")
        self._call("load", episodes.tolist())
        return self.reset()

    def close(self) -> None:
        for place in self._places:
            place.close()


def of_run(
    config: RunConfig, lanes: int, *, threads: int, seed: int, device: object = None, evaluation: bool = False
) -> GymLanes:
    """Make the lanes of a run; see `engine.envs.factory.MakeLanes`. Frames are arrays wherever the run learns."""
    options = GymOptions.of(config)
    if evaluation:  # as in `eval`, a lost life does not empty the frame stack
        options = dataclasses.replace(options, life_ends=False, max_episode_steps=evaluation_limit(options))
    way = chosen_way(options, lanes, threads)
    if options.env_workers == "auto" and way not in _said:
        _said.add(way)
        _LOG.info(f"{label(options.env)}: lanes are stepped in {way} (--env-workers auto)")
    return GymLanes(options, config.spec, lanes, seed=seed, way=way)
