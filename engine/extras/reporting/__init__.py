"""`mario_tui.Reporter`: gives a training loop outside the program a host, and with it dashboard, history and sinks.

The loop stays in its own process, and never waits for the host: a thread reports what it has said. If the host is gone,
the loop goes on unreported. Importing this does not import torch.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsFloat

import msgspec
import numpy as np

from engine.config.fields import LARGEST, NONE, ConfigError
from engine.config.reading import ReportedLoop
from engine.config.run_config import RunConfig
from engine.config.sinks import check_sinks, sink_names
from engine.envs.episode import LARGEST_RETURN, EpisodeRecord
from engine.errors import UserError
from engine.extras.reporting.checked import (
    exit_error,
    float_of,
    number_name_of,
    number_of,
    option_of,
    outcome_of,
    pixels_of,
    program_goes_on,
    text_of,
    watch_exit,
)
from engine.host.client import HostProcess
from engine.protocol.commands import Command, Pause, Render, Resume, Stop
from engine.protocol.framing import failure_of
from engine.protocol.messages import Done, Evaluation, Failed, Frame, Lanes, Log, Obeys, Progress, Report
from engine.protocol.metrics import MOST_NUMBERS
from engine.runners.coordination.stats import Counters, LaneStats
from engine.runners.links import CommandQueue, ParentGoneError, ParentLink, ReportQueue
from engine.runs.registry import create_run, discard_run, name_error
from engine.runs.run import LARGEST_FILE, LOOP_ENDED
from engine.runtime.text import printable, shortened, size_text

_POLL_S = 0.1
_REPORT_EVERY_S = 0.5
_MOST = 4096
"""Episodes, evaluations and log lines that may wait for the host to read them."""
_CLOSE_S = 10.0
_MOST_LANES = 1024


_COUNTS = ("env_steps", "frames", "updates", "replay_size", "replay_capacity")
_KNOWN = (*_COUNTS, "loss", "q_mean", "epsilon", "learning_rate", "beta")
"""Numbers that have a place of their own in panels."""
_BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(_COUNTS, (0, LARGEST)),
    **dict.fromkeys(("epsilon", "beta"), (0, 1)),
    "learning_rate": (0, LARGEST_RETURN),
}
"""Of the numbers that must have some."""


class Reporter:
    """A run of a training loop outside the program, from the start to `close`, or to the end of the `with` block or the
    script, which has failed if its exit status is not 0.

    Its methods return at once, but for `wait_if_paused` and `close`, and may be called from one thread. They raise
    `ValueError`, with the field and its accepted values, for what they can't report. A measured number that is not
    finite ends no loop: the first of each kind is told by a warning.

    Args:
        name: of the run; a number follows if there is such a run.
        total_steps: environment steps after which the loop ends, if that is known.
        actions: names of the actions.
        results: names of numbers that every episode yields besides its return; more is better.
        goal: what an episode has reached that is a success, as a noun that has a plural in s: `flag`.
        lanes: environments that play at the same time.
        game: what is played: name of the environment.
        options: hyperparameters, by which runs are compared.
        sinks: where metrics go besides TensorBoard, as `--sinks`.
        run_dir: folder that holds the runs.

    Raises `UserError` if the folder can't be written or no process can be started.
    """

    def __init__(
        self,
        name: str,
        *,
        total_steps: int | None = None,
        actions: Sequence[str] = (),
        results: Sequence[str] = (),
        goal: str | None = None,
        lanes: int = 1,
        game: str = "external",
        options: Mapping[str, Any] | None = None,
        sinks: str = NONE,
        run_dir: str | os.PathLike[str] = RunConfig.run_dir,
    ) -> None:
        if reason := name_error(text_of("name", name), None):
            raise ValueError(f"name {reason}")
        try:
            check_sinks(sink_names(sinks))
        except ConfigError as error:
            raise ValueError(f"sinks {error.reason}") from None
        described = ReportedLoop(
            game=text_of("game", game),
            steps=0 if total_steps is None else int(number_of("total_steps", total_steps, 1, LARGEST)),
            outcome=outcome_of(results, goal),
            action_names=[text_of("actions", each) for each in actions],
            loop_options={printable(str(name)): option_of(value) for name, value in (options or {}).items()},
            sinks=sinks,
            run_dir=os.fspath(run_dir),
        )
        if len(msgspec.json.format(msgspec.json.encode(described))) > LARGEST_FILE:
            raise ValueError(f"options must take at most {size_text(LARGEST_FILE, binary=True)} as JSON")
        self._outcome, self._steps = described.outcome, described.steps
        self._lanes = int(number_of("lanes", lanes, 1, _MOST_LANES))
        self._counters, self._lane_stats = Counters(), LaneStats(self._outcome, 1, self._lanes)
        self._numbers: dict[str, float] = {}
        self._not_finite: dict[str, int] = {}
        """Environment steps since when a number of the progress is not finite."""
        self._warned: set[str] = set()
        """Names of numbers that were not finite."""
        self._waiting = deque[tuple[int, float, EpisodeRecord] | Report]()
        self._dropped = 0
        self._best: tuple[float, float] = (-math.inf, -math.inf)
        self._frame: Frame | None = None
        self._frames_fail = False
        self._render, self._shown_at = Render(on=False), -math.inf
        self._obeyed: set[str] = set()
        self._stop: Stop | None = None
        self._stopped: Stop | None = None
        """What the loop was told of `_stop`: one that never asks ends by itself."""
        self._resumed = threading.Condition()
        self._runs, self._waits = True, False
        """Under `_resumed`: whether the loop may run, and whether it waits until it may."""
        self._paused = False
        """Whether the clock has stopped since it waits."""
        self._end: Done | Failed | None = None
        commands, reports = CommandQueue(), ReportQueue()
        self._run = create_run(described, name, numbered=True)
        try:
            self._host = HostProcess(self._run, loop=(reports.descriptors[0], commands.descriptors[1]))
        except (OSError, UserError):
            discard_run(self._run)
            raise
        commands.only_read()
        reports.only_write()
        self._queues, self._link = (commands, reports), ParentLink(reports, commands)
        self._thread = threading.Thread(target=self._work, daemon=True, name="mario-tui reporter")
        self._thread.start()
        watch_exit()
        atexit.register(self._close_at_exit)

    @property
    def name(self) -> str:
        """Of the run, with its number."""
        return self._run.name

    @property
    def path(self) -> Path:
        """Of the run's folder."""
        return self._run.path

    # ------------------------------------------------------------------------------------------ from the loop

    def progress(self, **numbers: SupportsFloat) -> None:
        """The newest numbers; those that are not given stay as they are.

        Panels have places for `env_steps`, `frames` (emulated ones, if they are more than environment steps), `updates`
        (of the optimiser), `loss`, `q_mean` (or a value estimate), `epsilon`, `learning_rate`, `replay_size`,
        `replay_capacity` and `beta` (of a prioritized replay). Any other number, of up to 32 names, has a chart, and in
        TensorBoard the tag `loop/NAME`. A number that is never told is left out of panels and charts, and 0 or null in
        JSON lines. One that is not finite, such as the loss of a loop that has diverged, is a gap in its curve, null in
        JSON lines, and told by a warning.
        """
        checked: dict[str, float] = {}
        for name, value in numbers.items():
            if name not in _KNOWN:
                number_name_of(name, taken=Progress.__struct_fields__)
            number = float_of(name, value)
            if name in _BOUNDS and (name in _COUNTS or math.isfinite(number)):
                number = number_of(name, value, *_BOUNDS[name])
            checked[name] = number if math.isfinite(number) else math.inf  # NaN is for those that are not told
        own = {*self._numbers, *checked}.difference(_KNOWN)
        if len(own) > MOST_NUMBERS:
            raise ValueError(f"progress takes at most {MOST_NUMBERS} names besides {', '.join(_KNOWN)}, got {len(own)}")
        program_goes_on()
        self._numbers.update(checked)
        for name, number in checked.items():
            self._watch(name, number)

    def episode(
        self,
        episode_return: float,
        length: int,
        *,
        success: bool = False,
        lane: int = 0,
        results: Mapping[str, float] | None = None,
    ) -> None:
        """An episode has ended after `length` environment steps. `results`: one for each name that was declared."""
        if success and self._outcome.goal is None:
            raise ValueError("success must be False for a Reporter without a goal")
        record = EpisodeRecord(
            lane=int(number_of("lane", lane, 0, self._lanes - 1)),
            episode_return=self._measured("episode_return", episode_return),
            length=int(number_of("length", length, 0, LARGEST)),
            success=bool(success),
            task=-1,
            cleared=0,
            results=self._in_order(results),
        )
        now = self._numbers
        self._put((int(now.get("env_steps", 0)), now.get("epsilon", math.nan), record))

    def evaluation(
        self,
        mean_return: float,
        episodes: int,
        *,
        successes: int = 0,
        seconds: float = 0.0,
        results: Mapping[str, float] | None = None,
    ) -> None:
        """The policy was evaluated over `episodes`, which took `seconds`. `results`: means. The best evaluation is that
        with the most successes, then that with the highest return."""
        count = int(number_of("episodes", episodes, 1, LARGEST))
        clears = int(number_of("successes", successes, 0, count if self._outcome.goal else 0))
        score = clears / count, self._measured("mean_return", mean_return)
        evaluation = Evaluation(
            env_steps=int(self._numbers.get("env_steps", 0)),
            episodes=count,
            clears=clears,
            mean_return=score[1],
            best=math.isfinite(score[1]) and score >= self._best,
            seconds=number_of("seconds", seconds, 0),
            results=self._in_order(results),
        )
        self._best = score if evaluation.best else self._best
        self._put(evaluation)

    def log(self, text: object) -> None:
        """A line for the run's log: text, or any object, as `str` shows it."""
        self._put(Log(at=time.time(), level="info", text=shortened(printable(str(text)))))

    def frame(self, picture: Any) -> None:
        """A picture of what is played, uint8 [height, width, 3], or a function that makes it. The first is made at
        once, so that mistakes show; others only while somebody watches, as often as the dashboard draws. If one of
        those fails, the log says so, and no more are made."""
        is_first = Render.__name__ not in self._obeyed
        render, now = self._render, time.monotonic()
        if not is_first and (self._frames_fail or not render.on or now - self._shown_at < 1 / render.fps):
            return
        try:
            pixels = pixels_of(picture() if callable(picture) else picture)
        except Exception as error:
            if is_first:
                raise
            self._frames_fail = True
            text = shortened(printable(f"no more pictures: {type(error).__name__}: {error}"))
            self._put(Log(at=time.time(), level="warning", text=text))
            return
        self._obeyed.add(Render.__name__)
        self._shown_at = now
        height, width, _ = pixels.shape
        index = 1 if self._frame is None else self._frame.index + 1
        self._frame = Frame(index=index, height=height, width=width, rgb=pixels.tobytes())

    @property
    def stop_requested(self) -> bool:
        """Return whether somebody wants the loop to end. Only a loop that has asked for this can be stopped from
        outside."""
        self._obeyed.add(Stop.__name__)
        self._stopped = self._stop
        return self._stopped is not None

    def wait_if_paused(self) -> None:
        """Wait while somebody has paused the run. Only a loop that has called this can be paused, and it is paused once
        it calls this again."""
        self._obeyed |= {Pause.__name__, Resume.__name__}
        with self._resumed:
            try:
                while not self._runs:
                    self._waits = True
                    self._resumed.wait()
            finally:
                self._waits = False

    def close(self, error: BaseException | None = None) -> None:
        """End the run, which has failed if there is an `error`. Waits some seconds for the host to write the rest."""
        if self._end is not None:
            return
        atexit.unregister(self._close_at_exit)
        if error is None:
            self._end = Done(reason=self._why())
        else:  # whatever failed, the loop had begun: the run is kept
            self._end = msgspec.structs.replace(failure_of(error), usage=False)
        self._thread.join(_CLOSE_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._host.process.wait(_CLOSE_S) > 0 and error is None:  # one that was killed has been told of
                self._tell("could not be recorded to its end; is its disk full?")

    def _tell(self, what: str) -> None:
        """A warning about the run on standard error."""
        text = f"mario-tui: warning: {self.name} {what}; log: {self._run.log_path}"
        with contextlib.suppress(OSError, AttributeError):  # no stderr
            print(printable(text), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._stopped, error = self._stop or Stop(reason="interrupted"), None
        elif isinstance(error, SystemExit) and error.code in (None, 0):
            error = None
        self.close(error)

    def _close_at_exit(self) -> None:
        """End a run that nobody has closed."""
        self.__exit__(None, exit_error(), None)

    def _why(self) -> str:
        steps = int(self._numbers.get("env_steps", 0))
        if self._stopped is not None:
            return self._stopped.reason
        return f"{steps:,} environment steps are done" if self._steps <= steps else LOOP_ENDED

    def _put(self, report: tuple[int, float, EpisodeRecord] | Report) -> None:
        if len(self._waiting) < _MOST:
            self._waiting.append(report)
        else:
            self._dropped += 1

    def _measured(self, name: str, value: Any) -> float:
        """The value as a float; NaN, after a warning, if it is none that can be added up."""
        number = float_of(name, value)
        if abs(number) <= LARGEST_RETURN:
            return number
        self._warn(name)
        return math.nan

    def _watch(self, name: str, number: float) -> None:
        """Remember since when a number of the progress is not finite."""
        if math.isinf(number):
            self._not_finite.setdefault(name, int(self._numbers.get("env_steps", 0)))
            self._warn(name)
        else:
            self._not_finite.pop(name, None)

    def _warn(self, name: str) -> None:
        """Tell, once for each name, that a number is not finite."""
        if name not in self._warned:
            self._warned.add(name)
            steps = int(self._numbers.get("env_steps", 0))
            text = f"{name} is not finite at step {steps:,}: it is left out of means and curves (told once)"
            self._put(Log(at=time.time(), level="warning", text=text))

    def _in_order(self, results: Mapping[str, float] | None) -> tuple[float, ...]:
        names, given = [result.name for result in self._outcome.results], results or {}
        if given.keys() != set(names):
            raise ValueError(f"results must be {', '.join(names) or 'empty'}, got {', '.join(given) or 'none'}")
        return tuple(self._measured(name, given[name]) for name in names)

    # ------------------------------------------------------------------------------------------ in the thread

    def _work(self) -> None:
        try:
            self._report_forever()
        except Exception as error:
            why = "its host is gone" if isinstance(error, ParentGoneError) else f"{type(error).__name__}: {error}"
            self._let_run(True)
            self._render = Render(on=False)
            self._tell(f"is not reported any more: {why}")
        finally:
            for queue in self._queues:
                queue.close()

    def _report_forever(self) -> None:
        told, shown, reported_at = set[str](), self._frame, -math.inf
        while True:
            end = self._end  # before what comes before it
            wait_s = 0.0 if end is not None else min(_POLL_S, 1 / self._render.fps) if self._render.on else _POLL_S
            commands = self._link.commands(wait_s)
            for command in commands:
                self._obey(command)
            if self._obeyed != told:
                told = set(self._obeyed)
                self._link.send(Obeys(commands=sorted(told)))
            self._send_waiting()
            if (frame := self._frame) is not None and frame is not shown:
                shown = frame
                self._link.send(frame)
            has_turned = self._turn_clock()
            if commands or has_turned or end is not None or time.monotonic() - reported_at >= _REPORT_EVERY_S:
                reported_at = time.monotonic()
                self._send_progress(is_last=end is not None)
            if end is not None:
                self._link.send(end)
                return

    def _obey(self, command: Command) -> None:
        match command:
            case Stop():
                self._stop = command
                self._let_run(True)
            case Render():
                self._render = command
            case Pause() if Pause.__name__ in self._obeyed:
                self._let_run(False)
            case Resume() if Resume.__name__ in self._obeyed:
                self._let_run(True)
            case _:
                obeyed = ", ".join(sorted(self._obeyed)).lower() or "nothing"
                self._link.log(f"{type(command).__name__.lower()}: the training loop obeys {obeyed}", "warning")

    def _let_run(self, runs: bool) -> None:
        with self._resumed:
            self._runs = runs
            self._resumed.notify_all()

    def _turn_clock(self) -> bool:
        """Stop the clock once the loop has paused, and start it again after that. Returns whether it was turned."""
        with self._resumed:
            paused = self._waits and not self._runs
        if paused == self._paused:
            return False
        self._paused = paused
        (self._counters.stop_clock if paused else self._counters.start_clock)()
        return True

    def _send_waiting(self) -> None:
        while self._waiting:
            report = self._waiting.popleft()
            if isinstance(report, tuple):
                env_steps, epsilon, record = report
                self._counters.record_episode(record.episode_return)
                self._lane_stats.record_episode(0, record, env_steps)
                number = self._counters.episodes
                report = record.message(self._outcome, env_steps=env_steps, episode=number, epsilon=epsilon)
            self._link.send(report)
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._link.log(f"{dropped:,} reports were dropped: the host was too slow to read them", "warning")

    def _send_progress(self, *, is_last: bool) -> None:
        counters, now = self._counters, dict(self._numbers)
        counters.env_steps, counters.frames = int(now.get("env_steps", 0)), int(now.get("frames", 0))
        epsilon = now.get("epsilon", math.nan)
        progress = counters.report(
            state="stopping" if is_last else "paused" if self._paused else "running",
            steps=self._steps,
            updates=int(now.get("updates", 0)),
            epsilon=epsilon,
            random_share=epsilon,
            learning_rate=now.get("learning_rate", math.nan),
            replay_size=int(now.get("replay_size", 0)),
            replay_capacity=int(now.get("replay_capacity", 0)),
            beta=now.get("beta", math.nan),
            burnin_left=0,
        )
        self._watch("mean_return", progress.mean_return)
        self._link.send(
            msgspec.structs.replace(
                progress,
                loss=now.get("loss", math.nan),
                q_mean=now.get("q_mean", math.nan),
                not_finite=dict(self._not_finite),
                numbers={name: value for name, value in now.items() if name not in _KNOWN},
                remaining_s=progress.remaining_s if self._steps else None,
            )
        )
        self._link.send(Lanes(lanes=self._lane_stats.lanes(np.full(self._lanes, epsilon))))
