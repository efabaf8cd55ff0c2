"""A process that plays and learns in turns: lanes emulate in threads while the learner learns from what they brought
before. The single runner is one of these; `parallel` and `ddp` are several.

The schedule is fixed, so the numbers of one that nobody interferes with depend on its seed alone: choose actions with
the weights there are, let the lanes step, learn meanwhile from the replay as it was, wait for both, store the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.agents import Losses
from engine.agents.autotune import BATCH_SIZES
from engine.agents.double_dqn import resolve_device
from engine.agents.exploration import epsilon_ladder
from engine.config.run_config import RunConfig
from engine.envs.factory import games_of, make_lanes
from engine.envs.vec_env import Lanes
from engine.errors import UserError
from engine.runners.actor import Actor
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.learner import Learner, device_of_boards, read_extra
from engine.runners.shared_state import BEAT_S, SharedState
from engine.runtime.jit import is_cold
from engine.runtime.stopwatch import stages
from engine.runtime.threads import ThreadBudget, keep_freed_memory, thread_budget

_FIRST_S = 15.0
"""For the first step and the first update, in which a device loads its libraries and torch compiles. Less than what a
leader has who waits for this one (`engine.runners.watchdog.BEAT_S`)."""
_SAMPLE_S = 0.005
"""Seconds that a sample of an update may take: some twenty times what it takes one core."""

Tell = Callable[[str], None]


class ActorLearner:
    """Member `index` of the processes in `shared_state`.

    Args:
        seed: of everything random in this process; None: the run's.
        beat: called like the shared_state's heartbeat.
        learner: options of `Learner` beside those that follow from the others.
    """

    def __init__(
        self,
        run: Path,
        config: RunConfig,
        shared_state: SharedState,
        screen: FrameMailbox,
        *,
        tell: Tell,
        index: int = 0,
        resume_from: Path | None = None,
        seed: Any = None,
        beat: Callable[[], object] = lambda: None,
        **learner: Any,
    ) -> None:
        self.config, self._shared_state, self._index, self._screen = config, shared_state, index, screen
        self.threads = budget(config, shared_state.members)
        env_seed, explore_seed, learn_seed = (
            int(each) for each in np.random.SeedSequence(config.seed if seed is None else seed).generate_state(3)
        )
        env = lanes_of_member(config, index, seed=env_seed, threads=self.threads.lane_threads, tell=tell)
        if config.curriculum:
            env.follow(shared_state.level)
        self.learner = Learner(
            config,
            env.spec,
            seed=learn_seed,
            threads=self.threads.learn_threads,
            tell=tell,
            resume_from=resume_from,
            beat=self._updates_now,
            replay_folder=run / ("replay" if index == 0 else f"replay-{index}"),
            index=index,
            share=shared_state.members,
            **learner,
        )
        self._actor = Actor(
            env,
            ladder=ladder_of_member(config, index, shared_state.members),
            epsilon_steps=config.epsilon_steps,
            seed=explore_seed,
        )
        self._shown_at = float("-inf")
        self._beat, self._has_acted, self._has_learned = beat, False, False

    def load_play(self, folder: Path, tell: Tell) -> None:
        """Go on in the games of a checkpoint, if they are the same."""
        extra, arrays = read_extra(folder)
        if extra["games"] == games_of(self.config) and arrays:
            try:
                self._actor.load_state(extra["play"], arrays)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{folder}: the games in it can't be continued ({error})") from None
        else:
            self.learner.replay.cut()
            tell("the games begin anew: they are others, or another number, than in the checkpoint")

    def play(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The games and exploration, for a checkpoint."""
        return self._actor.state()

    def iterate(self, learn: Callable[[], list[Losses]] | None = None) -> list[Losses]:
        """One environment step of every lane, and what `learn` (all updates that are due) does meanwhile."""
        actor, learner, shared_state = self._actor, self.learner, self._shared_state
        shared_state.beat(self._index, step_s(self.config) if self._has_acted else max(_FIRST_S, step_s(self.config)))
        self._has_acted = True
        follow(shared_state, learner)
        if self.config.curriculum:
            actor.env.follow(shared_state.level)
        frames, masks = actor.frames, actor.masks
        actions = actor.choose(learner.agent.q_values, shared_state.env_steps, shared_state.tuned("epsilon_scale"))
        self.show()
        pending = actor.begin(actions)
        if not self.config.async_envs:
            with stages.wait("emulate"):
                pending.result()
        losses = (learn or learner.learn)()
        step, ended = actor.finish(pending)
        learner.insert(frames, actions, step, masks)
        shared_state.book(self._index, actor.env.lanes, step.emulated, ended)
        shared_state.note_stages(self._index)
        return losses

    def _updates_now(self) -> None:
        """Give heartbeats before an update; the first one compiles, where a machine has not done that yet."""
        later = BEAT_S + _SAMPLE_S * self.learner.choices.batch_size
        self._shared_state.beat(self._index, later if self._has_learned else _FIRST_S)
        self._has_learned = True
        self._beat()

    def show(self) -> None:
        """Show the first game, if that is asked for and this is the process that does."""
        self._shown_at = show_screen(self._shared_state, self._index, self._actor, self._screen, self._shown_at)

    def close(self) -> None:
        self._actor.close()
        self.learner.close()


def budget(config: RunConfig, processes: int) -> ThreadBudget:
    """The threads of each of `processes` that play and learn; torch is told its part."""
    most_learners = 1 if config.runner == "ddp" else None  # a rank adds up gradients while it finds them
    threads = thread_budget(config.parallel_envs, config.batch_size or BATCH_SIZES[-1], processes, most_learners)
    torch.set_num_threads(threads.torch_threads)
    keep_freed_memory()
    return threads


def lanes_of_member(config: RunConfig, index: int, *, seed: int, threads: int, tell: Tell) -> Lanes:
    """The games of one process that learns, too; boards are played where they are learned from."""
    if index == 0 and is_cold():
        tell("compiling; only the first start on a machine does this, about 12 s")
    device = device_of_boards(config, resolve_device(config.device))
    return make_lanes(config, config.parallel_envs, threads=threads, seed=seed, device=device)


def step_s(config: RunConfig) -> float:
    """Seconds in which a member certainly makes its next step: more than BEAT_S where episodes may begin at other
    stages on nes-py, which plays the log of such a start again, lane by lane."""
    return BEAT_S + (config.parallel_envs if config.emulator == "nes-py" else 0)


def ladder_of_member(config: RunConfig, index: int, members: int) -> NDArray[np.float64]:
    """The part of the epsilon ladder over all lanes of all processes that is this one's, [lanes]."""
    lanes = config.parallel_envs
    return epsilon_ladder(members * lanes, config.epsilon)[index * lanes : (index + 1) * lanes]


def follow(shared_state: SharedState, learner: Learner) -> None:
    """Take over the numbers that were changed by hand."""
    for name in ("learning_rate", "beta", "replay_ratio"):
        tuning = shared_state.tunings(name)  # before the value, which then is of that time or later
        value = shared_state.tuned(name)
        if value is not None:
            learner.tune(name, value, tuning)


def show_screen(shared_state: SharedState, index: int, actor: Actor, screen: FrameMailbox, shown_at: float) -> float:
    """Write the first game's picture and what is decided there, if it is member 0's turn; when that was done last,
    CLOCK_MONOTONIC. Between decision and step both belong together; in a pause the picture is a step further."""
    fps, now = shared_state.screen_fps, time.monotonic()
    if index or not fps or now - shown_at < 1 / fps:
        return shown_at
    screen.write(actor.env.screen(0), None if actor.decision is None else actor.decision.of(0))
    return now
