"""An actor and a learner in one process: lanes emulate in threads while the learner trains on earlier steps.

The `single` runner has one; `parallel` and `ddp` have one per process. The schedule is fixed, so results depend on the
seed alone: choose actions with the current weights, start the lanes' step, learn from the replay as it was, wait for
both, store the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from engine.agents import Losses
from engine.agents.autotune import BATCH_SIZES
from engine.agents.exploration import epsilon_ladder
from engine.buffers import ReplayBuffer
from engine.config.run_config import RunConfig
from engine.config.torchrun import processes_here
from engine.envs.factory import make_lanes
from engine.errors import UserError
from engine.runners.actor import Actor
from engine.runners.device import resolve_device
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.learner import Learner
from engine.runners.learner_state import read_extra, unchanged
from engine.runners.rehearsal import rehearse_acting, rehearse_learning
from engine.runners.replay_factory import device_of_boards
from engine.runners.shared_state import HEARTBEAT_S, SharedState
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import ThreadBudget, keep_freed_memory, thread_budget

FIRST_S = 15.0
"""Heartbeat limit of the first step and the first update, in which devices load their libraries; kernels are compiled
before (`engine.runners.rehearsal`). Must be less than the host's own limit (`engine.runners.watchdog.SILENCE_LIMIT_S`),
since a coordinator may wait for this process."""
_SAMPLE_S = 0.005
"""Heartbeat limit per sample of an update: about twenty times what one core needs."""

LogLine = Callable[[str], None]


class ActorLearner:
    """Member `index` of the processes in `shared_state`.

    Args:
        seed: seed of everything random in this process; None: the run's.
        beat: called whenever a heartbeat is given.
        learner: further arguments of `Learner`.
    """

    def __init__(
        self,
        run: Path,
        config: RunConfig,
        shared_state: SharedState,
        screen: FrameMailbox,
        *,
        log: LogLine,
        index: int = 0,
        resume_from: Path | None = None,
        seed: Any = None,
        beat: Callable[[], object] = lambda: None,
        **learner: Any,
    ) -> None:
        self.config, self._shared_state, self._index, self._screen = config, shared_state, index, screen
        self.threads = budget(config, processes_here(shared_state.members))
        env_seed, explore_seed, learn_seed = (
            int(each) for each in np.random.SeedSequence(config.seed if seed is None else seed).generate_state(3)
        )
        device = resolve_device(config.device)
        rehearse_acting(config, device, log if index == 0 else lambda text: None)
        env = make_lanes(
            config,
            config.parallel_envs,
            threads=self.threads.lane_threads,
            seed=env_seed,
            device=device_of_boards(config, device),
        )
        self._has_curriculum = config.game_info.make_curriculum(config, 0) is not None
        if self._has_curriculum:
            env.set_curriculum_level(shared_state.level)
        self.learner = Learner(
            config,
            env.spec,
            seed=learn_seed,
            threads=self.threads.learn_threads,
            log=log,
            resume_from=resume_from,
            beat=self._updates_now,
            replay_folder=run / ("replay" if index == 0 else f"replay-{index}"),
            index=index,
            share=shared_state.members,
            **learner,
        )
        if isinstance(self.learner.replay, ReplayBuffer):
            rehearse_learning(config, env.spec)
        self._actor = Actor(
            env,
            ladder=epsilons_of_member(config, index, shared_state.members),
            epsilon_steps=config.epsilon_steps,
            seed=explore_seed,
            noise=config.action_noise,
            guide=config.game_info.make_guide(config, env, np.random.SeedSequence(explore_seed, spawn_key=(0,))),
        )
        self._shown_at = float("-inf")
        self._beat, self._has_acted, self._has_learned = beat, False, False

    def load_play(self, folder: Path, log: LogLine) -> None:
        """Restore the games of a checkpoint, if it has the same task and number of lanes; otherwise start new ones."""
        extra, arrays = read_extra(folder)
        if arrays and unchanged(
            self.config, folder, *self.config.task_options, *self.config.game_info.state_options, "parallel_envs"
        ):
            try:
                self._actor.load_state(msgspec.to_builtins(extra.play), arrays)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{folder}: its games can't be resumed ({error})") from None
        else:
            self.learner.replay.end_episodes()
            log("starting new games: the task or the number of lanes differs from the checkpoint's")

    def search_ways(self, *, stopped: Callable[[], bool], log: LogLine) -> None:
        """With `--guide`: search the ways to the flag, unless `load_play` has restored them."""
        if self._actor.guide is not None:
            self._actor.guide.find_ways(stopped=stopped, log=log)

    def play(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State of the games and of exploration, for a checkpoint."""
        return self._actor.state()

    def iterate(self, learn: Callable[[], list[Losses]] | None = None) -> list[Losses]:
        """Take one environment step in every lane, and meanwhile call `learn` (default: all updates that are due)."""
        actor, learner, shared_state = self._actor, self.learner, self._shared_state
        shared_state.beat(self._index, step_s(self.config) if self._has_acted else max(FIRST_S, step_s(self.config)))
        self._has_acted = True
        apply_tuning(shared_state, learner)
        if self._has_curriculum:
            actor.env.set_curriculum_level(shared_state.level)
        frames, masks = actor.frames, actor.masks
        actions = actor.choose(learner.agent.q_values, shared_state.env_steps, shared_state.tuned("epsilon_scale"))
        self.show()
        pending = actor.begin(actions)
        if not self.config.async_envs:
            with stopwatch.wait("emulate"):
                pending.result()
        losses = (learn or learner.learn)()
        step, ended = actor.finish(pending)
        learner.insert(step.played(frames, actions, masks))
        shared_state.record(self._index, actor.env.lanes, step.game_frames, ended)
        shared_state.publish_times(self._index)
        return losses

    def _updates_now(self) -> None:
        """Give a heartbeat before an update; the first one gets more time."""
        later = HEARTBEAT_S + _SAMPLE_S * self.learner.choices.batch_size
        self._shared_state.beat(self._index, later if self._has_learned else FIRST_S)
        self._has_learned = True
        self._beat()

    def show(self) -> None:
        """Write the frame of lane 0, if a client wants it and this is member 0."""
        self._shown_at = show_screen(self._shared_state, self._index, self._actor, self._screen, self._shown_at)

    def close(self) -> None:
        self._actor.close()
        self.learner.close()


def budget(config: RunConfig, processes: int) -> ThreadBudget:
    """The thread budget of each of `processes` that play and learn. Also sets torch's thread count."""
    most_learners = (
        1 if config.runner_info.averages_gradients else None
    )  # a rank averages gradients during its backward pass
    threads = thread_budget(config.parallel_envs, config.batch_size or BATCH_SIZES[-1], processes, most_learners)
    torch.set_num_threads(threads.torch_threads)
    keep_freed_memory()
    return threads


def step_s(config: RunConfig) -> float:
    """Upper limit for the seconds between two steps of a member."""
    return HEARTBEAT_S + (config.parallel_envs if config.game_info.starts_slowly(config) else 0)


def epsilons_of_member(config: RunConfig, index: int, members: int) -> NDArray[np.float64]:
    """This member's part [lanes] of the epsilon ladder over all lanes of all processes."""
    lanes = config.parallel_envs
    return epsilon_ladder(members * lanes, config.epsilon)[index * lanes : (index + 1) * lanes]


def apply_tuning(shared_state: SharedState, learner: Learner) -> None:
    """Apply the settings that the user has changed."""
    for name in ("learning_rate", "beta", "replay_ratio", "gamma"):
        tuning = shared_state.tunings(name)  # read before the value, which is then at least as new
        value = shared_state.tuned(name)
        if value is not None:
            learner.tune(name, value, tuning)


def show_screen(shared_state: SharedState, index: int, actor: Actor, screen: FrameMailbox, shown_at: float) -> float:
    """Write the frame and the decision of lane 0, if this is member 0 and it is time. Returns when that was last done
    (CLOCK_MONOTONIC). Called between decision and step, so frame and decision match; in a pause the frame is one step
    ahead."""
    fps, now = shared_state.screen_fps, time.monotonic()
    if index or not fps or now - shown_at < 1 / fps:
        return shown_at
    screen.write(*actor.show(0))
    return now
