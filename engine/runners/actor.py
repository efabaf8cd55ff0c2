"""The actor: owns lanes, stacks their frames, chooses actions from Q-values, explores, and shows its first lane."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.agents.exploration import Holds, annealed, mask_illegal, random_actions
from engine.envs.episode import EpisodeRecord, add_cleared, ended_episodes
from engine.envs.lanes import Frames, FrameStack, Lanes, VectorStep, on_host
from engine.protocol.messages import Thought
from engine.protocol.outcome import MAX_TASKS
from engine.runners.links import FrameMailbox
from engine.runners.shared_state import SharedState
from engine.runtime.stopwatch import stopwatch
from engine.runtime.stored_arrays import check_numbers, restore_generator, stored_array

Policy = Callable[[Frames], Tensor]
"""Q-values [lanes, actions] of observations [lanes, stack, *frame_shape]."""


def shown_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Frames, planes, height and width in which an observation [stack, *frame_shape] is shown; a vector is one row."""
    stack, *frame_shape, width = shape
    *planes, height = frame_shape or (1,)
    return stack, math.prod(planes), height, width


@dataclass(frozen=True)
class Decision:
    """The next action of every lane and the Q-values behind it. Converted to a message only when it is shown."""

    obs: Frames  # [lanes, stack, *frame_shape]
    q_values: Tensor  # [lanes, actions], -inf where illegal
    actions: NDArray[np.int64]  # [lanes]
    random: NDArray[np.bool_]  # [lanes], chosen at random instead of by the policy

    def of(self, lane: int) -> Thought:
        """The decision in one lane, as a message."""
        obs = self.obs[lane]
        seen = on_host(obs)
        if seen.ndim == 2:  # vectors, as rows of gray cells: 0 in the middle of the scale
            seen = (127.5 + 127.5 * np.tanh(seen)).astype(np.uint8)
        return Thought(
            q_values=self.q_values[lane].tolist(),
            action=int(self.actions[lane]),
            random=bool(self.random[lane]),
            shape=shown_shape(obs.shape),
            seen=seen.tobytes(),
        )


class Actor:
    """Acts in all lanes of one environment. `begin` starts a step in the background, `finish` waits for it."""

    def __init__(
        self,
        env: Lanes,
        *,
        ladder: NDArray[np.float64],
        epsilon_steps: int,
        seed: int,
        noise: float = 0.0,
        level: float | None = None,
    ) -> None:
        """
        Args:
            ladder: final epsilon of each lane [lanes], reached after `epsilon_steps` environment steps.
            noise: probability that a random action is carried out. The replay still gets the chosen one, so the agent
                learns what to do where that may happen.
            level: the curriculum's, with which the first episodes begin; None without a curriculum.
        """
        self.env, self._spec = env, env.spec
        self._step = stopwatch("emulate")(env.step)
        self._ladder = ladder
        self._epsilon_steps = epsilon_steps
        self._noise = noise
        self.epsilons = annealed(self._ladder, 0, epsilon_steps)  # [lanes]
        self._random = np.random.default_rng(seed)
        self._holds = Holds(self._spec.hold, self._spec.hold_power)
        self._held = np.zeros(env.lanes, np.int64)  # [lanes], the random action being held
        self._hold_left = np.zeros(env.lanes, np.int64)  # [lanes], environment steps left to hold it
        self._cleared = np.zeros(env.lanes, np.int64)  # [lanes], tasks cleared in this episode, one bit each
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="actor")
        self._has_curriculum = level is not None
        if level is not None:
            env.set_curriculum_level(level)
        self.frames = env.reset()  # [lanes, *frame_shape]
        self.masks = env.masks
        self.decision: Decision | None = None
        """The latest."""
        self._stack = FrameStack(self.frames, self._spec.stack)

    def follow_level(self, level: float) -> None:
        """Apply the level of the curriculum, if there is one."""
        if self._has_curriculum:
            self.env.set_curriculum_level(level)

    @stopwatch("act")
    def choose(self, policy: Policy, env_steps: int, scale: float | None = None) -> NDArray[np.int64]:
        """Actions [lanes]: the policy's, or a random legal one that is held for some steps; see `Holds`. `scale`
        multiplies every epsilon."""
        self.epsilons = annealed(self._ladder, env_steps, self._epsilon_steps, scale)
        lanes, spec = self.env.lanes, self._spec
        starts = (self._hold_left == 0) & (self._random.random(lanes) < self._holds.starts(self.epsilons))
        self._held = np.where(starts, random_actions(self._random, lanes, spec.actions, self.masks), self._held)
        self._hold_left = np.where(starts, self._holds.drawn(self._random, lanes), self._hold_left)
        obs, explores = self._stack.obs, self._hold_left > 0
        q_values = mask_illegal(policy(obs), self.masks)
        actions = np.where(explores, self._held, q_values.argmax(1).cpu().numpy())
        self.decision = Decision(obs, q_values, actions, explores)
        self._hold_left = np.maximum(self._hold_left - 1, 0)
        return actions

    def show(self, lane: int) -> tuple[NDArray[np.uint8], Thought | None]:
        """A picture of a lane and the latest decision in it. Between a step and the next decision, the picture is one
        step ahead, and does not show the decision."""
        if self.decision is None:
            return self.env.screen(lane), None
        thought = msgspec.structs.replace(self.decision.of(lane), facts=self.env.facts(lane))
        return self.env.screen(lane, thought if self.decision.obs is self._stack.obs else None), thought

    @stopwatch.wait("emulate")  # handing the step to the thread counts as waiting
    def begin(self, actions: NDArray[np.int64]) -> Future[VectorStep]:
        """Start a step of the environment in the actor's thread."""
        if self._noise:
            replaced = self._random.random(self.env.lanes) < self._noise
            others = random_actions(self._random, self.env.lanes, self._spec.actions, self.masks)
            actions = np.where(replaced, others, actions)
        return self._thread.submit(self._step, actions)

    def finish(self, pending: Future[VectorStep]) -> tuple[VectorStep, list[EpisodeRecord]]:
        """Wait for a step and stack its frames. Returns the step and the episodes that ended."""
        with stopwatch.wait("emulate"):
            step = pending.result()
        ended = step.terminated | step.truncated
        self.frames, self.masks = step.frames, step.masks
        with stopwatch("preprocess"):
            self._stack.push(step.frames, ended)
        self._hold_left[ended] = 0
        add_cleared(self._cleared, step)
        episodes = ended_episodes(step, self._cleared)
        self._cleared[ended] = 0
        return step, episodes

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State for a checkpoint: JSON values and arrays."""
        arrays = {f"env.{name}": array for name, array in self.env.state().items()} | self._own_arrays()
        numbers: dict[str, Any] = {"explore": dict(self._random.bit_generator.state)}
        return numbers, arrays

    def _own_arrays(self) -> dict[str, NDArray[Any]]:
        """The actor's own arrays, without the environment's."""
        obs = on_host(self._stack.obs)
        return {"obs": obs, "held": self._held, "hold_left": self._hold_left, "cleared": self._cleared}

    def load_state(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bool:
        """Restore the `state` of an actor with the same game and number of lanes. Returns whether its games go on;
        those that can't be stored begin new episodes. Raises `KeyError` or `ValueError` if it can't be one: actions
        reach compiled code and replay."""
        for name, own in self._own_arrays().items():
            stored_array(arrays, name, own.shape, own.dtype)
        check_numbers("held", arrays["held"], 0, self._spec.actions - 1)
        check_numbers("hold_left", arrays["hold_left"], 0, math.inf)  # resumed runs may hold for a shorter time
        check_numbers("cleared", arrays["cleared"], 0, (1 << MAX_TASKS) - 1)
        restore_generator(self._random, state["explore"])
        begun = self.env.load_state({name[4:]: array for name, array in arrays.items() if name.startswith("env.")})
        if begun is not None:
            self.frames, self.masks = begun, self.env.masks
            self._stack = FrameStack(begun, self._spec.stack)
            return False
        self._stack.obs = arrays["obs"]
        self._held, self._hold_left = arrays["held"], np.minimum(arrays["hold_left"], self._spec.hold)
        self._cleared = arrays["cleared"]
        self.frames, self.masks = self._stack.obs[:, -1].copy(), self.env.masks
        return True

    def close(self) -> None:
        self._thread.shutdown()
        self.env.close()


class LiveScreen:
    """Writes the frames and decisions of member `index` into a mailbox, if it is member 0 and a client wants them."""

    def __init__(self, shared_state: SharedState, index: int, actor: Actor, mailbox: FrameMailbox) -> None:
        self._shared_state, self._index, self._actor, self._mailbox = shared_state, index, actor, mailbox
        self._shown_at = float("-inf")  # CLOCK_MONOTONIC

    def show(self) -> None:
        """Show the frame if it is time. Called between decision and step, so frame and decision match; in a pause the
        frame is one step ahead."""
        fps = 0.0 if self._index else self._shared_state.screen_fps
        now = time.monotonic()
        if fps and now - self._shown_at >= 1 / fps:
            self._shown_at = now
            self._mailbox.write(*self._actor.show(0))
