"""What the first process of every runner does besides acting and learning: between two iterations it counts, reports,
handles the host's commands, evaluates, saves checkpoints, and decides when the run is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from engine.agents.double_dqn import Losses
from engine.config.fields import flag
from engine.protocol.commands import Checkpoint, Command, Evaluate, Pause, Render, Resume, Save, Set, Stop, Trace
from engine.protocol.framing import failure_of
from engine.protocol.messages import Done, Ready, State, Trained
from engine.runners.coordination.evaluation import Evaluator, FinalEvaluator, StopWaits
from engine.runners.coordination.reporter import MemberInfo, Reporter
from engine.runners.coordination.tuning import Tuning
from engine.runners.learning.checkpoint import CheckpointWriter
from engine.runners.learning.learner import Learner
from engine.runners.links import ParentGoneError, ParentLink
from engine.runners.shared_state import SharedState
from engine.runners.start import Start, changed
from engine.runs.checkpoint_state import Extra, read_state
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import ThreadBudget

_SAVE_EVERY, _SAVE_APART_S = 50_000, 30.0
"""Without `--save-every`: environment steps between checkpoints, and seconds that they are at least apart. On a GPU
that plays 50,000 steps in a second, a run would otherwise do little but save."""


class Coordinator:
    """A runner calls `proceed` between two iterations, and `finish` once that has returned False.

    `start.config` is the run's own. `member_info`: see `Reporter`.
    """

    def __init__(
        self,
        start: Start,
        link: ParentLink,
        learner: Learner,
        shared_state: SharedState,
        threads: ThreadBudget,
        member_info: MemberInfo | None = None,
    ) -> None:
        config, resume_from = start.config, start.resume_from
        self._config, self._link, self._learner, self._shared_state = config, link, learner, shared_state
        extra = Extra() if resume_from is None else read_state(resume_from).extra
        self.reporter = Reporter(start, extra, link, learner, shared_state, member_info)
        self._counters = self.reporter.counters
        self._tuning = Tuning(config, link, learner, shared_state, self._counters)
        self._evaluator = Evaluator(start.run, config, link, learner, threads.lane_threads)
        self._judge = FinalEvaluator(start.run, config, link, learner, threads.lane_threads)
        self._writer = CheckpointWriter(start.run, config, link, learner)
        self.games_state: Callable[[], tuple[dict[str, Any], dict[str, NDArray[Any]]]] = lambda: ({}, {})
        """Returns the state of the games for a checkpoint, in runners that resume in the middle of episodes: JSON
        values and arrays."""
        self._saved: tuple[int, int] | None = None
        """Environment steps, and changes of settings, at the newest checkpoint."""
        if resume_from is not None:
            before = changed(config, resume_from, *config.task_options)
            if before:
                self._counters.forget_returns()
                link.log(_on_another_task(before))
            self.reporter.lane_stats.load_state([] if before else extra.records, extra.tasks)
            self._tuning.resume(resume_from, extra, same_task=not before)
            self._saved = self._now
        self._just_saved: tuple[int, int] | None = None
        """The same at a checkpoint that was due since the last commands were handled, so that it answers them."""
        self._state: State = "running"
        self._stop_reason: str | None = None
        self._is_complete = False
        """Whether it ends because its steps or episodes are done."""
        self._updates_before = learner.updates  # in earlier sessions
        self._plan_save()
        self._next_save_at = -math.inf
        self._next_evaluation = _next_multiple(self._counters.env_steps, config.eval_every)
        if extra.evaluation_due and config.eval_every:
            self._next_evaluation = self._counters.env_steps
        agent = learner.agent
        link.send(
            Ready(
                device=str(agent.device),
                precision=agent.precision,
                lane_threads=threads.lane_threads,
                torch_threads=threads.learn_threads * threads.torch_threads,
                batch_size=learner.choices.batch_size,
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
        config, counters = self._config, self._counters
        self._link.beat()
        self._shared_state.record_trace()
        self.reporter.record(losses)
        self.reporter.report(self._state)
        if counters.env_steps >= self._next_evaluation and self._evaluate(scheduled=True):
            self._next_evaluation = _next_multiple(counters.env_steps, config.eval_every)
        self._just_saved = None
        if counters.env_steps >= self._next_save and time.monotonic() >= self._next_save_at:
            self._checkpoint()
            self._just_saved = self._now
            self._plan_save()
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

    def finish(self) -> None:
        """Write the last checkpoint and the last report, after all members have stopped. If training was not stopped
        before its end, judge the policy."""
        self._state = "stopping"
        self.reporter.record(self._learner.unread_losses())
        self.reporter.report(self._state, at_once=True)
        if self._saved != self._now:
            self._checkpoint()
        reason = self._stop_reason or "the runner ended"
        if self._is_complete and self._config.final_episodes:
            self._link.send(Trained(reason=reason))
            self._evaluate_finally()
        self._link.send(Done(reason=reason))

    def close(self) -> None:
        self._evaluator.close()

    @property
    def _now(self) -> tuple[int, int]:
        return self._counters.env_steps, self._shared_state.changes

    def _end(self, limit: str, reason: str) -> None:
        """Stop because the option `limit` says so, and warn if that was before the first update."""
        learner = self._learner
        if self._stop_reason is None and learner.updates == self._updates_before and learner.pace.burnin_left:
            config = learner.config  # whose batch size is known
            fills = {
                "burnin": config.burnin,
                "batch_size": config.batch_size,
                "parallel_envs": config.parallel_envs * (config.n_step + 1),
            }
            name = max(fills, key=lambda each: fills[each])
            lower, more = (f"{flag(each)} ({getattr(config, each):,})" for each in (name, limit))
            self._link.log(
                f"nothing was learned: the run ended after {self._counters.env_steps:,} environment steps, before its "
                f"first update; lower {lower} or raise {more}",
                "warning",
            )
        self._is_complete = self._is_complete or self._stop_reason is None
        self.stop(reason)

    def _handle(self, command: Command) -> None:
        match command:
            case Pause() if self._state == "running":
                self._counters.stop_clock()
                self._shared_state.pause()
                self._state = "paused"
                self.reporter.report(self._state, at_once=True)
            case Resume() if self._state == "paused":
                self._counters.start_clock()
                self._shared_state.resume()
                self._state = "running"
                self.reporter.report(self._state, at_once=True)
            case Save():
                self._writer.save_policy(self._counters.env_steps)
            case Checkpoint() if self._just_saved != self._now:
                self._checkpoint()
            case Evaluate() if self._stop_reason is None:
                self._evaluate()
            case Set():
                self._tuning.set(command)
            case Render():
                self._shared_state.show_screen(command.fps if command.on else 0.0)
            case Trace():
                self._shared_state.trace(command.seconds)
            case Stop():
                self.stop(command.reason)
            case _:
                pass  # such as a pause of a paused run

    @stopwatch("evaluate")
    def _evaluate(self, *, scheduled: bool = False) -> bool:
        """Evaluate the policy. Returns False if a Stop command ended the evaluation early."""
        if not self.paused:
            self._shared_state.pause()  # members that do not wait for this process anyway
        score = self._evaluator.evaluate(self._counters.env_steps)
        if not self.paused:
            self._shared_state.resume()
        if score is not None and scheduled:
            self._tuning.follow_schedule(score)
        return score is not None

    @stopwatch("evaluate")
    def _evaluate_finally(self) -> None:
        """Judge the policy that the run has chosen. Nothing that happens here makes the run fail: all is saved."""
        self._counters.stop_clock()
        self._state = "judging"
        try:
            judged = self._judge.evaluate(self._counters.env_steps, self._counters.wall_s, self._report_judging)
            self._link.send(judged)
        except StopWaits:
            self._link.log("the final evaluation was stopped: the run has no result")
        except ParentGoneError:
            raise
        except Exception as error:  # such as that of an environment
            self._link.log(
                f"the final evaluation failed, so the run has no result: {failure_of(error).reason}", "warning"
            )

    def _report_judging(self, judged: int, to_judge: int) -> None:
        self.reporter.judged = judged, to_judge
        self.reporter.report(self._state)

    @stopwatch("save")
    def _plan_save(self) -> None:
        """Set from how many environment steps, and not before which time, the next checkpoint is due."""
        every = self._config.save_every
        self._next_save = _next_multiple(self._counters.env_steps, every or _SAVE_EVERY)
        self._next_save_at = time.monotonic() + (_SAVE_APART_S if every is None else 0.0)

    def _checkpoint(self) -> None:
        self._counters.record_losses(self._learner.unread_losses())  # or raises, and no damaged weights are written
        play, arrays = self.games_state()
        extra = {
            **self.reporter.state(),
            **self._tuning.state(),
            "play": play,
            "evaluation_due": self._counters.env_steps >= self._next_evaluation,
        }
        if self._writer.write(self._counters.env_steps, extra, arrays):
            self._saved = self._now


def _on_another_task(before: Mapping[str, Any]) -> str:
    """The log line of a run that is resumed with another task; `before`: their earlier values."""
    options = ", ".join(f"{flag(name)} was {value}" for name, value in before.items())
    return (
        f"another task ({options}): learning rate, gamma, returns and stored transitions start anew; "
        "weights, optimiser and exploration are kept"
    )


def _next_multiple(env_steps: int, every: int) -> float:
    """The next multiple of `every` after `env_steps`; infinity if `every` is 0."""
    return (env_steps // every + 1) * every if every else math.inf
