"""Replay storage that keeps every frame once, as uint8, in one ring per lane.

Invariants. An entry is a frame with the action taken at it and what came of it; entries of a lane are numbered from 0
without gaps, and number t lives in slot t % capacity. Where an episode was truncated, its final frame follows as an
entry without an action (`NO_ACTION`), so that the value behind the cut can be bootstrapped; where it terminated,
nothing follows. A stack reaches back at most to its episode's first frame, which is repeated before it. An entry can
be sampled if the oldest frame of its stack is still in the ring, and its n-step window is complete: n entries follow
it, or its episode's end does. So nothing crosses an episode's border or the write head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NO_ACTION = -1
_GOES_ON, _TERMINATED, _TRUNCATED = 0, 1, 2


@dataclass(frozen=True)
class Batch:
    """n-step transitions. `discounts` is gamma^m for a window of m steps, 0 where the episode terminated in it:
    target = returns + discounts * value(next_obs)."""

    obs: NDArray[np.uint8]  # [batch, stack, height, width]
    actions: NDArray[np.int64]  # [batch]
    returns: NDArray[np.float32]  # [batch], discounted rewards of the window
    next_obs: NDArray[np.uint8]  # [batch, stack, height, width]
    discounts: NDArray[np.float32]  # [batch]


class FrameStorage:
    """Rings of `capacity` entries for each of `lanes` lanes in host memory.

    Args:
        lanes: number of rings.
        capacity: entries per ring; more than n_step + stack.
        frame_shape: (height, width) of a frame.
        stack: frames in an observation.
        n_step: length of a return's window, in environment steps.
        gamma: discount of one environment step.
    """

    def __init__(
        self,
        lanes: int,
        capacity: int,
        frame_shape: tuple[int, int],
        *,
        stack: int,
        n_step: int,
        gamma: float,
    ) -> None:
        if capacity <= n_step + stack:
            raise ValueError(f"capacity is {capacity}; accepted: more than n_step + stack ({n_step + stack})")
        self.lanes, self.capacity, self.stack, self.n_step, self.gamma = lanes, capacity, stack, n_step, gamma
        self.frames = np.zeros((lanes, capacity, *frame_shape), np.uint8)
        self.actions = np.full((lanes, capacity), NO_ACTION, np.int64)
        self.rewards = np.zeros((lanes, capacity), np.float32)
        self.ends = np.zeros((lanes, capacity), np.uint8)
        self.episode_starts = np.zeros((lanes, capacity), np.int64)  # entry number of the episode's first frame
        self.written = np.zeros(lanes, np.int64)  # entries ever written, the next entry's number
        self._last_end = np.full(lanes, -1, np.int64)  # newest entry at which an episode ended
        self._open_start = np.zeros(lanes, np.int64)  # first entry of the episode in progress

    @property
    def size(self) -> int:
        """Entries held."""
        return int(np.minimum(self.written, self.capacity).sum())

    def append(
        self,
        frames: NDArray[np.uint8],
        actions: NDArray[np.int64],
        rewards: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        final_frames: NDArray[np.uint8],
    ) -> None:
        """Add one step of every lane: the frame acted on, the action, and what came of it.

        Arrays have a leading axis of lanes; `final_frames` is read where `truncated` is set.
        """
        ends = np.where(terminated, _TERMINATED, np.where(truncated, _TRUNCATED, _GOES_ON)).astype(np.uint8)
        everyone = np.arange(self.lanes)
        self._write(everyone, frames, actions, rewards, ends)
        cut = np.flatnonzero(ends == _TRUNCATED)
        if cut.size:
            none = np.full(cut.size, NO_ACTION, np.int64)
            self._write(cut, final_frames[cut], none, np.zeros(cut.size, np.float32), np.zeros(cut.size, np.uint8))
        ended = ends != _GOES_ON
        self._last_end[ended] = self.written[ended] - 1 - (ends[ended] == _TRUNCATED)
        self._open_start[ended] = self.written[ended]

    def complete(self) -> NDArray[np.int64]:
        """[lanes]: entries numbered below this have a complete n-step window."""
        return np.maximum(self.written - self.n_step, self._last_end + 1)

    def sampleable(self, lanes: NDArray[np.int64], entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which (lane, entry number) pairs can be sampled now."""
        slots = entries % self.capacity
        oldest = self.written[lanes] - self.capacity
        first_frame = np.maximum(entries - self.stack + 1, self.episode_starts[lanes, slots])
        return (
            (entries >= np.maximum(oldest, 0))
            & (first_frame >= oldest)
            & (entries < self.complete()[lanes])
            & (self.actions[lanes, slots] != NO_ACTION)
        )

    def gather(self, lanes: NDArray[np.int64], entries: NDArray[np.int64]) -> Batch:
        """Build the n-step transitions of sampleable (lane, entry number) pairs."""
        returns = np.zeros(lanes.size, np.float32)
        steps = np.zeros(lanes.size, np.int64)
        going_on = np.ones(lanes.size, np.bool_)
        terminated = np.zeros(lanes.size, np.bool_)
        for k in range(self.n_step):
            slots = (entries + k) % self.capacity
            returns += np.where(going_on, self.gamma**k * self.rewards[lanes, slots], 0).astype(np.float32)
            steps += going_on
            ends = self.ends[lanes, slots]
            terminated |= going_on & (ends == _TERMINATED)
            going_on &= ends == _GOES_ON
        discounts = np.where(terminated, 0.0, self.gamma**steps).astype(np.float32)
        # Behind a termination there is nothing to show; the masked next observation repeats the first.
        next_entries = np.where(terminated, entries, entries + steps)
        return Batch(
            obs=self._stacks(lanes, entries),
            actions=self.actions[lanes, entries % self.capacity],
            returns=returns,
            next_obs=self._stacks(lanes, next_entries),
            discounts=discounts,
        )

    def _write(
        self,
        lanes: NDArray[np.intp],
        frames: NDArray[np.uint8],
        actions: NDArray[np.int64],
        rewards: NDArray[np.float32],
        ends: NDArray[np.uint8],
    ) -> None:
        slots = self.written[lanes] % self.capacity
        self.frames[lanes, slots] = frames
        self.actions[lanes, slots] = actions
        self.rewards[lanes, slots] = rewards
        self.ends[lanes, slots] = ends
        self.episode_starts[lanes, slots] = self._open_start[lanes]
        self.written[lanes] += 1

    def _stacks(self, lanes: NDArray[np.int64], entries: NDArray[np.int64]) -> NDArray[np.uint8]:
        starts = self.episode_starts[lanes, entries % self.capacity]
        back = np.arange(self.stack - 1, -1, -1)
        numbers = np.maximum(entries[:, None] - back, starts[:, None])
        return self.frames[lanes[:, None], numbers % self.capacity]
