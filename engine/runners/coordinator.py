"""What the first process of every runner does besides acting and learning: it counts, reports, handles the host's
commands, evaluates, saves checkpoints, and decides when the run is over.
"""

from __future__ import annotations

import contextlib
import functools
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.agents import Losses
from engine.agents.exploration import annealed, epsilon_ladder, random_share
from engine.config.run_config import TUNABLE_BOUNDS, RunConfig, flag
from engine.envs.curriculum import Curriculum, report
from engine.protocol.commands import (
    Checkpoint,
    Command,
    Evaluate,
    Pause,
    Render,
    Resume,
    Save,
    Set,
    Stop,
    Trace,
    Tunable,
)
from engine.protocol.messages import Changed, Done, Lane, Lanes, Members, Phase, Ready, Saved, State, Written
from engine.runners.evaluator import Evaluator
from engine.runners.host_link import HostLink
from engine.runners.learner import Learner
from engine.runners.learner_state import changed, unchanged
from engine.runners.learning_rates import CUT, Schedule, Score, make_schedule
from engine.runners.shared_state import SharedState
from engine.runners.stats.counters import Counters
from engine.runners.stats.lanes import LaneStats
from engine.runners.stats.replay import ReplayStats
from engine.runners.stats.time_split import TimeSplits
from engine.runs import checkpoints
from engine.runs.checkpoint_state import Extra, KeptSchedule, read_state
from engine.runs.run import Run
from engine.runtime.files import is_full
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import ThreadBudget

_REPORT_EVERY_S = 0.5
_SAVING_S = 600.0
"""Seconds that writing one piece of a checkpoint may take before the host treats this process as hung."""
_KEPT: dict[Tunable, tuple[str, ...]] = {
    "learning_rate": ("learning_rate",),
    "epsilon_scale": ("epsilon",),
    "replay_ratio": ("replay_ratio",),
    "gamma": ("gamma",),
}
"""Settings changed while running that a resumed run keeps, with the options that override each. Beta is not among them:
it anneals, and the replay restores it."""
_SET_BY_SCHEDULE = ("learning_rate", "gamma")
"""Those that another task overrides as well, because a schedule may have set them for the task."""

Play = Callable[[], tuple[dict[str, Any], dict[str, NDArray[Any]]]]
"""Returns the state of the games for a checkpoint: JSON values and arrays."""


class Coordinator:
    """A runner calls `proceed` between two iterations, and `finish` once that has returned False."""

    def __init__(
        self,
        run: Path,
        config: RunConfig,
        link: HostLink,
        learner: Learner,
        shared_state: SharedState,
        *,
        threads: ThreadBudget,
        resume_from: Path | None,
        play: Play = lambda: ({}, {}),
        members: Callable[[list[Lane]], Members] | None = None,
    ) -> None:
        """`play` returns the games' state, for runners that resume in the middle of episodes; `members` returns the
        message for the processes panel, for runners with several processes."""
        self._run, self._config, self._link = run, config, link
        self._learner, self._shared_state, self._play, self._members = learner, shared_state, play, members
        extra = Extra() if resume_from is None else read_state(resume_from).extra
        self.counters = Counters(extra.counters)
        self._before = self.counters.env_steps, self.counters.frames  # of earlier sessions
        self._time_splits = TimeSplits(config.runner, shared_state)
        self._replay_stats = ReplayStats(learner.replay)
        self._lane_stats = LaneStats(config.game_info.outcome, shared_state.members, config.parallel_envs)
        before = {} if resume_from is None else changed(config, resume_from, *config.task_options)
        if before:
            self.counters.forget_returns()
            link.log(_on_another_task(before))
        self._lane_stats.load_state([] if before else extra.records, extra.tasks)
        self._ladder = epsilon_ladder(shared_state.members * config.parallel_envs, config.epsilon)
        self._curriculum = _curriculum_at(config, extra)
        self._phase = 0 if self._curriculum is None else int(self._curriculum.level)
        self._judged = self._ladder <= np.sort(self._ladder)[max(1, self._ladder.size // 4) - 1]
        """[lanes of all members]: whether a curriculum counts a lane's episodes (the quarter that explores least)."""
        self._epsilon_scale: float | None = None
        self._writes = 0
        self._evaluator = Evaluator(run, config, link, learner, threads.lane_threads)
        for name, value in extra.tuned.items():
            is_kept = not (before and name in _SET_BY_SCHEDULE)
            if is_kept and resume_from is not None and unchanged(config, resume_from, *_KEPT[name]):
                self._tune(name, value)
            else:  # so that the run's history does not suggest that the old value still holds
                now = {"epsilon_scale": 1.0, **learner.tuned}[name]
                link.send(Changed(name=name, value=now, before=value, env_steps=self.counters.env_steps))
        begin = self.counters.env_steps if before else 0
        self._schedule = make_schedule(config.learning_rate_schedule, config.learning_rate, begin)
        same = resume_from is not None and unchanged(config, resume_from, *schedule_options(config))
        if self._schedule is not None and same:
            self._load_schedule(extra.schedule)
        self._state: State = "running"
        self._stop_reason: str | None = None
        self._reported_at = float("-inf")
        self._updates_before = learner.updates  # in earlier sessions
        self._saved_at = self.counters.env_steps if resume_from is not None else None
        """Environment steps of the newest checkpoint; None without one, or if a setting has changed since."""
        self._has_just_saved = False
        """Whether a checkpoint was due and written since the last commands were handled, so that it answers them."""
        self._next_save = _next_multiple(self.counters.env_steps, config.save_every)
        self._next_evaluation = _next_multiple(self.counters.env_steps, config.eval_every)
        if extra.evaluation_due and config.eval_every:
            self._next_evaluation = self.counters.env_steps
        shared_state.publish(self.counters.env_steps, learner.updates, learner.replay.beta)
        agent = learner.agent
        link.send(
            Ready(
                device=str(agent.device),
                precision=agent.precision,
                lane_threads=threads.lane_threads,
                torch_threads=threads.learn_threads * threads.torch_threads,
            )
        )

    @property
    def paused(self) -> bool:
        return self._state == "paused"

    @stopwatch("log")
    def proceed(self, losses: list[Losses]) -> bool:
        """Do what is due after an iteration that produced `losses`. Returns whether to run another iteration.

        While paused it still returns True, but the runner must not act or learn.
        """
        config, counters = self._config, self.counters
        self._link.beat()
        self._shared_state.publish_times(None)
        self._record(losses)
        self._report()
        if counters.env_steps >= self._next_evaluation and self._evaluate(scheduled=True):
            self._next_evaluation = _next_multiple(counters.env_steps, config.eval_every)
        self._has_just_saved = counters.env_steps >= self._next_save
        if self._has_just_saved:
            self._checkpoint()
            self._next_save = _next_multiple(counters.env_steps, config.save_every)
        with stopwatch("wait" if self.paused else "log"):
            commands = self._link.commands(wait_s=0.2 if self.paused else 0.0)
        for command in sorted(commands, key=lambda each: not isinstance(each, Stop)):  # nothing delays a stop
            self._handle(command)
        if counters.env_steps >= config.steps:
            self._end("steps", f"{config.steps:,} environment steps are done")
        if config.episodes is not None and counters.episodes >= config.episodes:
            self._end("episodes", f"{config.episodes:,} episodes are done")
        return self._stop_reason is None

    def stop(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason

    def _end(self, limit: str, reason: str) -> None:
        """Stop because the option `limit` says so, and warn if that was before the first update."""
        if self._stop_reason is None and self._learner.updates == self._updates_before and self._learner.burnin_left:
            config = self._config
            fills = {
                "burnin": config.burnin,
                "batch_size": config.batch_size,
                "parallel_envs": config.parallel_envs * (config.n_step + 1),
            }
            name = max(fills, key=lambda each: fills[each])
            lower, more = (f"{flag(each)} ({getattr(config, each):,})" for each in (name, limit))
            self._link.log(
                f"nothing was learned: the run ended after {self.counters.env_steps:,} environment steps, before its "
                f"first update; lower {lower} or raise {more}",
                "warning",
            )
        self.stop(reason)

    def finish(self) -> None:
        """Write the last checkpoint and the last report, after all members have stopped."""
        self._state = "stopping"
        self._record(self._learner.unread_losses())
        self._report(at_once=True)
        if self._saved_at != self.counters.env_steps:
            self._checkpoint()
        self._link.send(Done(reason=self._stop_reason or "the runner ended"))

    def _record(self, losses: list[Losses]) -> None:
        counters, shared_state = self.counters, self._shared_state
        counters.record_losses(losses)
        counters.env_steps, counters.frames = (
            self._before[0] + shared_state.played,
            self._before[1] + shared_state.frames,
        )
        shared_state.publish(counters.env_steps, self._learner.updates, self._learner.replay.beta)
        ended = list(shared_state.new_episodes())
        epsilons, outcome = self._epsilons() if ended else None, self._config.game_info.outcome
        for member, episode in ended:
            assert epsilons is not None
            place = member * self._config.parallel_envs + episode.lane
            counters.record_episode(episode.episode_return)
            self._lane_stats.record_episode(member, episode, counters.env_steps)
            if self._curriculum is not None and self._judged[place]:
                self._curriculum.record_episode(episode.task_name(outcome), episode.success)
            self._link.send(
                episode.message(
                    outcome,
                    actor=member,
                    env_steps=counters.env_steps,
                    episode=counters.episodes,
                    epsilon=float(epsilons[place]),
                )
            )
        if self._curriculum is not None:
            self._advance(self._curriculum)

    def _advance(self, curriculum: Curriculum) -> None:
        """Advance the curriculum; members read its level from the shared state."""
        curriculum.advance(self.counters.env_steps)
        self._shared_state.publish_level(curriculum.level)
        env_steps, names = self.counters.env_steps, curriculum.phases
        while self._phase < int(curriculum.level):
            self._phase += 1
            self._link.send(
                Phase(env_steps=env_steps, phase=self._phase + 1, phases=len(names), name=names[self._phase])
            )

    def _report(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._reported_at < _REPORT_EVERY_S:
            return
        self._reported_at = now
        learner, epsilons = self._learner, self._epsilons()
        self._link.send(
            self.counters.report(
                state=self._state,
                steps=self._config.steps,
                episodes=self._config.episodes,
                updates=learner.updates,
                epsilon=float(epsilons.mean()),
                random_share=float(random_share(epsilons, learner.hold).mean()),
                learning_rate=learner.agent.learning_rate,
                replay_size=learner.replay.size,
                replay_capacity=learner.replay.capacity,
                beta=learner.replay.beta,
                burnin_left=learner.burnin_left,
                replay=self._replay_stats(at_once),
            )
        )
        lanes = self._lane_stats.lanes(epsilons)
        self._link.send(Lanes(lanes=lanes, tasks=self._lane_stats.tasks()))
        self._link.send(self._time_splits())
        if self._curriculum is not None:
            self._link.send(report(self._curriculum))
        if self._members is not None:
            self._link.send(self._members(lanes))

    def _epsilons(self) -> NDArray[np.float64]:
        return annealed(self._ladder, self.counters.env_steps, self._config.epsilon_steps, self._epsilon_scale)

    def _handle(self, command: Command) -> None:
        match command:
            case Pause() if self._state == "running":
                self.counters.stop_clock()
                self._shared_state.pause()
                self._state = "paused"
                self._report(at_once=True)
            case Resume() if self._state == "paused":
                self.counters.start_clock()
                self._shared_state.resume()
                self._state = "running"
                self._report(at_once=True)
            case Save():
                self._save_policy()
            case Checkpoint() if not self._has_just_saved:
                self._checkpoint()
            case Evaluate() if self._stop_reason is None:
                self._evaluate()
            case Set():
                self._set(command)
            case Render():
                self._shared_state.show_screen(command.fps if command.on else 0.0)
            case Trace():
                self._shared_state.trace(command.seconds)
            case Stop():
                self.stop(command.reason)
            case _:
                pass  # such as a pause of a paused run

    def _set(self, wanted: Set) -> None:
        low, high = TUNABLE_BOUNDS[wanted.name]
        if not low <= wanted.value <= high:
            self._link.log(f"{wanted.name}: must be between {low:g} and {high:g}, got {wanted.value:g}", "warning")
            return
        if wanted.name == "beta" and not self._config.prioritized_replay:
            self._link.log("beta: has no effect on uniform replay; needs --prioritized-replay", "warning")
            return
        if wanted.name == "learning_rate":
            self._schedule = None  # the user's own value holds
        self._change(wanted.name, wanted.value)

    def _change(self, name: Tunable, value: float) -> None:
        """Change a setting in all processes, and report it."""
        before = {"epsilon_scale": 1.0 if self._epsilon_scale is None else self._epsilon_scale, **self._learner.tuned}
        share = self._learner.agent.advantage_learning
        self._tune(name, value)
        self._link.send(Changed(name=name, value=value, before=before[name], env_steps=self.counters.env_steps))
        if self._learner.agent.advantage_learning != share:
            self._link.log(f"advantage learning is now {self._learner.agent.advantage_learning:g} instead of {share:g}")

    def _tune(self, name: Any, value: float) -> None:
        self._saved_at, self._has_just_saved = None, False
        self._shared_state.tune(name, value)
        if name == "epsilon_scale":
            self._epsilon_scale = value
        else:
            self._learner.tune(name, value, self._shared_state.tunings(name))

    @stopwatch("evaluate")
    def _evaluate(self, *, scheduled: bool = False) -> bool:
        """Evaluate the policy. Returns False if a Stop command ended the evaluation early."""
        score = self._evaluator.evaluate(self.counters)
        if score is not None and self._schedule is not None and scheduled:
            self._follow(self._schedule, score)
        return score is not None

    def _follow(self, schedule: Schedule, score: Score) -> None:
        """Set what the schedule of the learning rate says after an evaluation."""
        before = self._learner.agent.learning_rate
        after = schedule.after(score, before, self.counters.env_steps)
        if after != before:
            self._change("learning_rate", after)
        low, final_gamma = CUT * self._config.learning_rate, self._config.final_gamma
        set_by_user = self._learner.tuned["gamma"] != self._config.gamma
        if after <= low < before and final_gamma is not None and not set_by_user:
            self._change("gamma", final_gamma)

    def _load_schedule(self, kept: KeptSchedule | msgspec.UnsetType | None) -> None:
        """Resume the schedule of the learning rate. Without a state it had ended, or the checkpoint is older."""
        assert self._schedule is not None
        if kept is None:
            self._schedule = None
        elif isinstance(kept, KeptSchedule):
            with _refused("schedule"):
                self._schedule.load_state(msgspec.to_builtins(kept))

    def _save_policy(self) -> None:
        folder = self._run / "policies"
        path = folder / f"policy-{self.counters.env_steps:012d}.safetensors"
        partial = folder / f".{path.name}.partial"
        try:
            folder.mkdir(exist_ok=True)
            self._learner.save_policy(partial, self.counters.env_steps)
            partial.replace(path)
        except Exception as error:  # safetensors raises exceptions of its own when the disk is full
            self._link.log(f"the policy could not be saved: {error}", "warning")
            return
        self._link.send(Saved(kind="policy", path=str(path), env_steps=self.counters.env_steps))

    @stopwatch("save")
    def _checkpoint(self) -> None:
        """Write a partial folder, which the host checks, renames and announces. If that fails, training continues,
        and the host decides what a missing final checkpoint means."""
        self.counters.record_losses(self._learner.unread_losses())  # or raises, and no damaged weights are written
        env_steps = self.counters.env_steps
        name = checkpoints.folder_name(env_steps)
        self._writes += 1  # the host may still be committing one of the same step
        partial, final = self._run / f".{name}.{self._writes}.partial", self._run / name
        play, arrays = self._play()
        extra = {
            "counters": self.counters.state(),
            "records": self._lane_stats.state(),
            "stages": self._lane_stats.tasks_state(),
            "play": play,
            "tuned": {name: value for name in _KEPT if (value := self._shared_state.tuned(name)) is not None},
            "evaluation_due": self.counters.env_steps >= self._next_evaluation,
            "schedule": None if self._schedule is None else self._schedule.state(),
            "curriculum": None if self._curriculum is None else self._curriculum.state(),
        }
        beat = functools.partial(self._link.beat, _SAVING_S)
        beat()
        try:
            while True:
                try:
                    self._learner.write_checkpoint(partial, env_steps, self._config, extra, arrays, beat)
                    break
                except Exception as error:  # see _save_policy
                    shutil.rmtree(partial, ignore_errors=True)  # frees space on a full disk
                    if not (is_full(error) and self._give_way(env_steps)):
                        self._link.log(f"the checkpoint at {env_steps:,} could not be written: {error}", "error")
                        return
        finally:
            self._link.beat()
        self._saved_at = env_steps
        self._link.send(Written(partial=str(partial), final=str(final), env_steps=env_steps))

    def _give_way(self, env_steps: int) -> bool:
        """Remove the oldest checkpoint, as the disk is full. Returns whether that made room for a newer one."""
        removed = checkpoints.give_way(Run(self._run), lambda done: self._link.beat(_SAVING_S))
        if removed is not None:
            text = f"the disk is full: {removed.name} was removed to make room for the checkpoint at {env_steps:,}"
            self._link.log(text, "warning")
        return removed is not None


def schedule_options(config: RunConfig) -> tuple[str, ...]:
    """Options with which the schedule of the learning rate starts anew if they have changed."""
    return (*config.task_options, "learning_rate", "learning_rate_schedule", *config.game_info.evaluation_options)


def _on_another_task(before: Mapping[str, Any]) -> str:
    """The log line of a run that is resumed with another task; `before`: their earlier values."""
    options = ", ".join(f"{flag(name)} was {value}" for name, value in before.items())
    return (
        f"another task ({options}): learning rate, gamma, returns and stored transitions start anew; "
        "weights, optimiser and exploration are kept"
    )


def curriculum_level_at(config: RunConfig, checkpoint: Path | None) -> float:
    """The level of the run's curriculum at a checkpoint; 0 without a curriculum or a checkpoint."""
    curriculum = _curriculum_at(config, Extra() if checkpoint is None else read_state(checkpoint).extra)
    return 0.0 if curriculum is None else curriculum.level


def _curriculum_at(config: RunConfig, extra: Extra) -> Curriculum | None:
    """The run's curriculum with the state from a checkpoint's `extra`; a new one if that has none."""
    env_steps = extra.counters.env_steps
    curriculum = config.game_info.make_curriculum(config, env_steps)
    if curriculum is not None and extra.curriculum is not None:
        with _refused("curriculum"):
            curriculum.load_state(msgspec.to_builtins(extra.curriculum))
    if curriculum is not None:
        curriculum.advance(env_steps)
    return curriculum


@contextlib.contextmanager
def _refused(what: str) -> Iterator[None]:
    """Raise `CheckpointError` if the state of a schedule or a curriculum is that of another kind."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise checkpoints.CheckpointError(f"the checkpoint's {what} is damaged ({error})") from None


def env_steps_of(checkpoint: Path | None) -> int:
    """Environment steps of the run at a checkpoint; 0 without one."""
    return 0 if checkpoint is None else checkpoints.read_manifest(checkpoint).env_steps


def _next_multiple(env_steps: int, every: int) -> float:
    """The next multiple of `every` after `env_steps`; infinity if `every` is 0."""
    return (env_steps // every + 1) * every if every else math.inf
