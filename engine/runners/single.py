"""One process: lanes emulate in threads while the learner learns from what they brought before.

The schedule is fixed, so a run's numbers depend on its seed alone: choose actions with the weights there are, let the
lanes step, learn meanwhile from the replay as it was, wait for both, store the step.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import checkpoints
from engine.agents.double_dqn import resolve_device
from engine.agents.probe import BATCH_SIZES
from engine.config import RunConfig
from engine.envs.make import describe_task, make_lanes
from engine.jit import is_cold
from engine.messages import (
    Checkpoint,
    Command,
    Done,
    Episode,
    Lanes,
    Pause,
    Ready,
    Render,
    Resume,
    Save,
    Saved,
    State,
    Stop,
    Written,
)
from engine.runners.actor import Actor
from engine.runners.channel import Channel, SharedScreen
from engine.runners.counters import Counters
from engine.runners.evaluator import Evaluator
from engine.runners.learner import Learner, device_of_boards, read_extra
from engine.threads import keep_freed_memory, thread_budget

_REPORT_EVERY_S = 0.5


class Runner:
    """Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, channel: Channel, screen: SharedScreen, resume_from: Path | None
    ) -> None:
        self._run, self._config, self._channel, self._screen = run, config, channel, screen
        threads = thread_budget(config.parallel_envs, config.batch_size or BATCH_SIZES[-1])
        torch.set_num_threads(threads.torch_threads)
        keep_freed_memory()
        env_seed, explore_seed, learn_seed = (
            int(seed) for seed in np.random.SeedSequence(config.seed).generate_state(3)
        )
        if is_cold():
            channel.log("compiling; only the first start on a machine does this, about 12 s")
        env = make_lanes(
            config,
            config.parallel_envs,
            threads=threads.lane_threads,
            seed=env_seed,
            device=device_of_boards(config, resolve_device(config.device)),
        )
        self._learner = Learner(
            config,
            env.spec,
            seed=learn_seed,
            threads=threads.learn_threads,
            tell=channel.log,
            resume_from=resume_from,
            replay_folder=run / "replay",
        )
        self._actor = Actor(env, index=0, epsilon_steps=config.epsilon_steps, seed=explore_seed)
        extra = None
        if resume_from is not None:
            extra, arrays = read_extra(resume_from)
            if extra["games"] == self._games():
                self._actor.load_state(extra["actor"], arrays)
            else:
                self._learner.replay.cut()
                channel.log("the games begin anew: they are others, or another number, than in the checkpoint")
        self._counters = Counters(None if extra is None else extra["counters"])
        self._evaluator = Evaluator(run, config, channel, self._learner, threads.lane_threads)
        if extra is not None:
            self._evaluator.best = tuple(extra["best"])
        self._state: State = "running"
        self._stop_reason: str | None = None
        self._render = Render(on=False)
        self._shown_at = self._reported_at = float("-inf")
        self._saved_at = self._counters.env_steps if resume_from is not None else None
        agent = self._learner.agent
        channel.send(
            Ready(
                device=str(agent.device),
                precision=agent.precision,
                lane_threads=threads.lane_threads,
                torch_threads=threads.learn_threads * threads.torch_threads,
            )
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        config, counters = self._config, self._counters
        next_save = _next_multiple(counters.env_steps, config.save_every)
        next_evaluation = _next_multiple(counters.env_steps, config.eval_every)
        while self._stop_reason is None:
            self._iterate()
            self._report()
            if counters.env_steps >= next_evaluation:
                self._evaluator.evaluate(counters)
                next_evaluation = _next_multiple(counters.env_steps, config.eval_every)
            if counters.env_steps >= next_save:
                self._checkpoint()
                next_save = _next_multiple(counters.env_steps, config.save_every)
            for command in self._channel.commands():
                self._obey(command)
            if counters.env_steps >= config.steps:
                self._stop_reason = self._stop_reason or f"{config.steps:,} environment steps are done"
            if config.episodes is not None and counters.episodes >= config.episodes:
                self._stop_reason = self._stop_reason or f"{config.episodes:,} episodes are done"
            while self._state == "paused" and self._stop_reason is None:
                for command in self._channel.commands(wait=True):
                    self._obey(command)
        self._state = "stopping"
        self._report(at_once=True)
        if self._saved_at != counters.env_steps:
            self._checkpoint()
        self._channel.send(Done(reason=self._stop_reason))

    def close(self) -> None:
        self._actor.close()
        self._learner.close()

    def _iterate(self) -> None:
        actor, learner, counters = self._actor, self._learner, self._counters
        frames, masks = actor.frames, actor.masks
        actions = actor.choose(learner.agent.act, counters.env_steps)
        pending = actor.begin(actions)
        if not self._config.async_envs:
            pending.result()
        counters.book_losses(learner.learn())
        step, ended = actor.finish(pending)
        learner.insert(frames, actions, step, masks)
        counters.env_steps += actor.env.lanes
        counters.frames += step.emulated
        for episode in ended:
            counters.book_episode(episode.episode_return)
            self._channel.send(
                Episode(
                    actor=0,
                    lane=episode.lane,
                    env_steps=counters.env_steps,
                    episode=counters.episodes,
                    episode_return=episode.episode_return,
                    length=episode.length,
                    x_pos=episode.x_pos,
                    flag=episode.flag,
                    score=episode.score,
                    epsilon=float(actor.epsilons[episode.lane]),
                )
            )
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if self._render.on and now - self._shown_at >= 1 / self._render.fps:
            self._shown_at = now
            self._screen.write(self._actor.env.screen(0))

    def _report(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._reported_at < _REPORT_EVERY_S:
            return
        self._reported_at = now
        learner = self._learner
        self._channel.send(
            self._counters.report(
                state=self._state,
                steps=self._config.steps,
                updates=learner.updates,
                epsilon=float(self._actor.epsilons.mean()),
                learning_rate=self._config.learning_rate,
                replay_size=learner.replay.size,
                replay_capacity=learner.replay.capacity,
                beta=learner.replay.beta,
                burnin_left=learner.burnin_left,
            )
        )
        self._channel.send(Lanes(lanes=self._actor.lanes()))

    def _obey(self, command: Command) -> None:
        match command:
            case Pause() if self._state == "running":
                self._counters.stop_clock()
                self._state = "paused"
                self._report(at_once=True)
            case Resume() if self._state == "paused":
                self._counters.start_clock()
                self._state = "running"
                self._report(at_once=True)
            case Save():
                self._save_policy()
            case Checkpoint():
                self._checkpoint()
            case Render():
                self._render = command
                self._shown_at = float("-inf")
                self._show()
            case Stop():
                self._stop_reason = command.reason
            case _:
                pass  # a pause of a paused run, say

    def _save_policy(self) -> None:
        folder = self._run / "policies"
        path = folder / f"policy-{self._counters.env_steps:012d}.safetensors"
        try:
            folder.mkdir(exist_ok=True)
            self._learner.save_policy(path, self._counters.env_steps)
        except Exception as error:  # safetensors raises its own kinds for a full disk
            self._channel.log(f"the policy could not be saved: {error}", "warning")
            return
        self._channel.send(Saved(kind="policy", path=str(path), env_steps=self._counters.env_steps))

    def _games(self) -> dict[str, Any]:
        """What must be the same for the games of a checkpoint to go on."""
        return {**describe_task(self._config), "lanes": self._config.parallel_envs, "rom": self._config.rom}

    def _checkpoint(self) -> None:
        """Write aside; the host verifies, renames and announces. A failed write is the host's to judge, too."""
        name = checkpoints.folder_name(self._counters.env_steps)
        partial, final = self._run / f".{name}.partial", self._run / name
        actor, arrays = self._actor.state()
        extra = {
            "counters": self._counters.state(),
            "games": self._games(),
            "actor": actor,
            "best": self._evaluator.best,
        }
        try:
            self._learner.write_checkpoint(partial, self._counters.env_steps, extra, arrays)
        except Exception as error:  # see _save_policy
            self._channel.log(f"the checkpoint at {self._counters.env_steps:,} could not be written: {error}", "error")
            return
        self._saved_at = self._counters.env_steps
        self._channel.send(Written(partial=str(partial), final=str(final), env_steps=self._counters.env_steps))


def _next_multiple(env_steps: int, every: int) -> float:
    """The next multiple of `every` after `env_steps`; never for 0."""
    return (env_steps // every + 1) * every if every else math.inf
