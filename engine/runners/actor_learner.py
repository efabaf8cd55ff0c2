"""An actor and a learner in one process: lanes emulate in threads while the learner trains on earlier steps, and the
learner begins in threads while the actor chooses actions.

The `single` runner has one; `parallel` and `ddp` have one per process. The schedule is fixed, so results depend on the
seed alone: begin the first update, choose actions with the current weights, start the lanes' step, learn from the
replay as it was, wait for both, store the step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from engine.agents.double_dqn import DoubleDQN, Losses
from engine.agents.exploration import member_ladders
from engine.buffers.replay import ReplayBuffer
from engine.config.game import options_with
from engine.config.run_config import RunConfig
from engine.config.runners import processes_here
from engine.envs.factory import HasWays, make_lanes
from engine.errors import UserError
from engine.runners.actor import Actor, LiveScreen
from engine.runners.learning.checkpoint import read_extra
from engine.runners.learning.factory import (
    MakeAgent,
    device_of_boards,
    make_learner,
    rehearse_acting,
    rehearse_learning,
)
from engine.runners.links import FrameMailbox
from engine.runners.shared_state import FIRST_S, SharedState, step_s, update_s
from engine.runners.start import Start, learning_threads, resolve_device, unchanged
from engine.runs.checkpoint_state import ARRAYS_FILE
from engine.runs.checkpoints import reading
from engine.runtime.formats import safetensors_header
from engine.runtime.stopwatch import stopwatch
from engine.runtime.stored_arrays import global_random_state, load_global_random_state, seed_global_random


def games_fit(config: RunConfig, checkpoint: Path) -> bool:
    """Return whether a checkpoint has games, of the same task and for as many lanes."""
    options = (*config.task_options, *options_with("games", config.game), "parallel_envs")
    with reading(checkpoint / ARRAYS_FILE):
        header, _ = safetensors_header(checkpoint / ARRAYS_FILE)
    names = header.keys() - {"__metadata__"}
    led = any(name == "guided" or name.startswith("guide.") for name in names)  # by actions, in earlier versions
    return unchanged(config, checkpoint, *options) and bool(names) and not led


class ActorLearner:
    """Member `start.index` of the processes in `shared_state`."""

    def __init__(
        self,
        start: Start,
        shared_state: SharedState,
        mailbox: FrameMailbox,
        log: Callable[[str], None],
        make_agent: MakeAgent = DoubleDQN,
    ) -> None:
        config, index = start.config, start.index
        self.config, self._shared_state, self._index, self._log = config, shared_state, index, log
        self.threads = learning_threads(config, processes_here(shared_state.members))
        env_seed, explore_seed, learn_seed, global_seed = (int(each) for each in start.seeds.generate_state(4))
        device = resolve_device(config.device)
        rehearse_acting(config, device, log if index == 0 else lambda text: None)
        seed_global_random(global_seed)
        env = make_lanes(
            config,
            config.parallel_envs,
            threads=self.threads.lane_threads,
            seed=env_seed,
            device=device_of_boards(config, device),
        )
        self.learner = make_learner(
            start,
            env.spec,
            seed=learn_seed,
            threads=self.threads.learn_threads,
            targets_ahead=self.threads.targets_ahead,
            log=log,
            make_agent=make_agent,
        )
        self.learner.before_update = self._beat_before_update
        if isinstance(self.learner.replay, ReplayBuffer):
            rehearse_learning(config, env.spec)
        self._actor = Actor(
            env,
            ladder=member_ladders(config.parallel_envs, config.epsilon, shared_state.members)[index],
            epsilon_steps=config.epsilon_steps,
            seed=explore_seed,
            noise=config.action_noise,
            level=shared_state.level if config.has_curriculum else None,
        )
        self.screen = LiveScreen(shared_state, index, self._actor, mailbox)
        self.before_update: Callable[[], object] = lambda: None
        """Called before every update."""
        self._step_s = step_s(config)
        self._next_step_s = max(FIRST_S, self._step_s)
        self._next_update_s = FIRST_S

    def load_games(self, checkpoint: Path, *, fit: bool) -> None:
        """Restore the games of a checkpoint if they `fit`; otherwise start new ones."""
        if fit:
            extra, arrays = read_extra(checkpoint)
            try:
                load_global_random_state(arrays)
                if not self._actor.load_state(msgspec.to_builtins(extra.play), arrays):
                    self.learner.replay.end_episodes()
                    self._log("starting new episodes: games of this environment can't be stored in a checkpoint")
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{checkpoint}: its games can't be resumed ({error})") from None
        else:
            self.learner.replay.end_episodes()
            self._log(
                "starting new games: the checkpoint has none of this task with as many lanes and the same options "
                "(or a guide of an earlier version led them)"
            )

    def search_ways(self, *, stopped: Callable[[], bool]) -> None:
        """With `--guide`: search the ways to the flag, unless `load_games` has restored them."""
        if isinstance(self.config.game_info, HasWays):
            self.config.game_info.begin_on_ways(self.config, self._actor.env, stopped=stopped, log=self._log)

    def games_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State of the games and of exploration for a checkpoint: JSON values and arrays."""
        numbers, arrays = self._actor.state()
        return numbers, arrays | global_random_state()

    def iterate(self, updates: int | None = None) -> list[Losses]:
        """Take one environment step in every lane, and meanwhile `updates` updates (default: all that are due)."""
        actor, learner, shared_state = self._actor, self.learner, self._shared_state
        shared_state.beat(self._index, self._next_step_s)
        self._next_step_s = self._step_s
        learner.settings.follow(shared_state)
        actor.follow_level(shared_state.level)
        learner.begin(updates)
        frames, masks = actor.frames, actor.masks
        actions = actor.choose(learner.agent.q_values, shared_state.env_steps, shared_state.tuned("epsilon_scale"))
        self.screen.show()
        pending = actor.begin(actions)
        if not self.config.async_envs:
            with stopwatch.wait("emulate"):
                pending.result()
        losses = learner.learn(updates)
        step, ended = actor.finish(pending)
        learner.insert(step.played(frames, actions, masks))
        shared_state.record(self._index, actor.env.lanes, step.game_frames, ended)
        shared_state.publish_times(self._index)
        return losses

    def _beat_before_update(self) -> None:
        """Give a heartbeat; the first update gets more time."""
        self._shared_state.beat(self._index, self._next_update_s)
        self._next_update_s = update_s(self.learner.choices.batch_size)
        self.before_update()

    def close(self) -> None:
        self._actor.close()
        self.learner.close()
