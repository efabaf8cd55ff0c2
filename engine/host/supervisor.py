"""The process that owns one run: starts its runner, serves its clients, commits its checkpoints.

Runs detached from any terminal (`python -m engine.host RUN`) on one asyncio loop. Reports are handled one at a time, so
the end of a run is announced only after its last checkpoint is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from engine.config.reading import Description
from engine.config.runners import torchrun_rank
from engine.errors import UserError
from engine.host import host_events
from engine.host.event_server import EventServer, socket_path
from engine.host.run_files import CheckpointKeeper, LogRotation, RunFiles
from engine.host.run_state import RunState
from engine.host.runner_link import ReportingLoop, RunnerLink, RunnerProcess
from engine.monitoring.alerts import AlertRules
from engine.monitoring.machine import SystemSampler
from engine.protocol.alerts import alert_limits
from engine.protocol.commands import Command, Pause, Resume, Stop
from engine.protocol.messages import (
    Alert,
    Changed,
    Current,
    Curriculum,
    Done,
    Episode,
    Evaluation,
    Failed,
    FinalEvaluation,
    Finished,
    KeptEvent,
    Lanes,
    Lasting,
    Log,
    Members,
    Obeys,
    Phase,
    Progress,
    Ready,
    Report,
    Saved,
    TimeSplits,
    Trained,
    Written,
)
from engine.protocol.metrics import METRICS, point_of
from engine.protocol.results import FinalResult
from engine.protocol.sinks import Restart
from engine.runs import checkpoints, marks
from engine.runs.run import NOT_BEGUN, NOT_SAVED, HeldRun
from engine.runtime.text import printable
from engine.sinks.dispatcher import Dispatcher, sinks_of

log = logging.getLogger("host")

_TICK_S = 1.0
_FLUSH_S = 60.0
"""Maximum time for the last files of a run to be written."""


class Host:
    """Supervises one run from start to end. `serve` returns the exit status."""

    def __init__(
        self,
        run: HeldRun,
        resume_from: Path | None,
        foreground: bool,
        notes: Iterable[tuple[str, str]] = (),
        loop: ReportingLoop | None = None,
    ) -> None:
        """`notes`: lines (level, text) for the log. `loop`: what trains, if that is not a process of this one's."""
        self._run = run
        self._files = RunFiles(run)
        self._config: Description = run.config() if loop is None else run.description()
        self._foreground = foreground
        self._runner: RunnerLink = loop or RunnerProcess(run, run.config())
        self._checkpoints = CheckpointKeeper(run, self._config.keep, resume_from)
        self._state = RunState(obeys=None if loop is None else [])
        limits = alert_limits(self._config.alerts)
        self._alerts = AlertRules(limits, self._config.steps, self._config.outcome, run.folder.way_in)
        self._sinks = Dispatcher(sinks_of(self._config.sinks, run.folder.way_in), log=self._log)
        self._server = EventServer(
            hello=lambda: host_events.hello(run, self._config, self._state),
            current=lambda: host_events.current(self._state),
            obey=self._obey,
            rendering=self._runner.send,
            complain=lambda text: self._log("warning", text),
        )
        self._failure: Failed | None = None
        self._done: Done | None = None
        self._result: FinalEvaluation | None = None
        self._judging = False
        """Whether the final evaluation plays: training is done, and can neither fail nor be stopped any more."""
        self._stopping = False
        self._stopped_at_start: str | None = None
        """Why the run was stopped while the runner was starting."""
        self._restarts = 0  # since the last checkpoint
        self._restarted = False
        self._lasting: dict[str, float] = {}
        """The last known values of metrics that last."""
        self._wants: Literal["running", "paused"] = "running"
        self._log_rotation = LogRotation()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sampler: SystemSampler | None = None
        self._unreachable = False
        self._marks = marks.marks_of(run.path)
        self._at = run.path
        """Where the run's folder was when clients, checkpoints and marks were told of it."""
        self._notes = list(notes)
        """Log lines (level, text) from before the runner was ready; sent once clients can receive them."""

    @property
    def refused(self) -> bool:
        """Return whether a new run failed before its first step because of its options."""
        failure, progress = self._failure, self._state.progress
        never_began = (progress is None or not progress.env_steps) and not checkpoints.committed(self._run)
        return failure is not None and failure.usage and never_began and not self._restarted

    async def serve(self) -> int:
        """Supervise until the end. Returns 0 if the run finished or was stopped in order and its files say so, else 1.

        Raises `UserError`, before record and recording are written, if its checkpoint can't be read.
        """
        self._files.begin(self._config.steps)
        self._notes += self._checkpoints.recover()
        if self._checkpoints.newest is not None:
            problem = self._files.restore_history(self._state, self._checkpoints.read_env_steps())
            self._notes += [("warning", problem)] if problem else []
            for event in self._state.events:
                self._alerts.take(event)  # it has alerted of what is wrong
            self._notes.append(("info", f"resumed from {self._checkpoints.newest.name}"))
        self._sinks.begin(host_events.begin(self._run, self._config, self._files.record.created_at))
        if self._checkpoints.newest is None or self._checkpoints.env_steps >= 0:
            self._sinks.put(Restart(env_steps=max(0, self._checkpoints.env_steps)))
        self._runner.start(self._checkpoints.newest)
        try:
            end = await self._until_the_end()
        finally:
            self._runner.kill()  # still alive only after an exception; this process would wait for it at exit
            self._sinks.close()
        return 0 if isinstance(end, Finished) and self._files.work else 1

    async def _until_the_end(self) -> Finished | Failed:
        """Serve clients and handle reports until the run is over and all clients know."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, f"received {signal.Signals(number).name}")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self._foreground:
            threading.Thread(target=self._watch_parent, args=(loop,), daemon=True).start()

        await self._listen()
        try:
            self._spawn(self._tick())
            self._spawn(self._stream_frames())
            while True:
                while (report := await self._runner.reports.get()) is not None:
                    await self._handle(report)
                if not self._should_restart():
                    break
                self._restart()
            end = self._conclude()
            if not await asyncio.to_thread(self._files.flush, _FLUSH_S):
                log.warning("the disk has not answered for %d s; the record of the run may be old", _FLUSH_S)
            elif not self._files.work:
                with contextlib.suppress(OSError):
                    self._files.overwrite_record()
            self._publish(end)
            return end
        finally:
            await self._server.close()

    # ------------------------------------------------------------------------------------------ the runner

    def _should_restart(self) -> bool:
        """Return whether the runner was lost during training and a restart may help."""
        return (
            self._done is None
            and not self._stopping
            and self._runner.ready
            and torchrun_rank() is None  # otherwise torchrun starts all ranks again
            and not (self._failure is not None and self._failure.final)
            and self._restarts < self._config.restarts
        )

    def _restart(self) -> None:
        reason = self._failure.reason if self._failure is not None else self._runner.how_it_ended()
        self._restarts += 1
        self._restarted, self._failure = True, None
        self._notes += self._checkpoints.recover()
        newest = self._checkpoints.newest
        where = "the beginning" if newest is None else newest.name
        env_steps = max(0, self._checkpoints.env_steps)
        if self._state.progress is not None:  # steps since the checkpoint are lost
            self._publish(host_events.back_at(self._state.progress, env_steps))
        self._state.rewind(env_steps)
        self._sinks.put(Restart(env_steps=env_steps))
        self._server.resend_history()
        self._log("warning", f"{reason}; restarting from {where} ({self._restarts} of {self._config.restarts})")
        self._runner.start(newest)

    def _watch_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: stop the run in order once the parent process is gone."""
        while os.read(sys.stdin.fileno(), 4096):  # unbuffered: a buffered reader's lock could block the exit
            pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._parent_gone)

    def _parent_gone(self) -> None:
        if torchrun_rank() is None or self._judging:
            self._stop("the parent process is gone")
        elif not self._stopping:
            # As if this machine was lost: after an orderly stop, torchrun on the others would think it was the end.
            self._stopping = True
            self._failure = self._failed("torchrun is gone")
            self._runner.kill()

    def _stop(self, reason: str, at_once: bool = False) -> None:
        """Stop in order, however often that is requested: a shutdown signals every process, and clients know nothing of
        each other. `at_once`, or while the runner is starting, kill it."""
        first, self._stopping = not self._stopping, True
        if not self._runner.is_alive or (self._done is not None and not self._judging):
            return  # it has already exited, or is about to
        if not self._runner.ready:
            self._stopped_at_start = self._stopped_at_start or reason
            self._runner.kill()
        elif at_once:
            if not self._judging:
                self._failure = self._failed("stopped at once, before its last checkpoint was written")
            self._runner.kill()
        elif first:
            self._log("info", f"stopping: {reason}")
            if (
                self._state.progress is not None and not self._judging
            ):  # the runner's next report may come only after an evaluation
                self._publish(msgspec.structs.replace(self._state.progress, state="stopping"))
            self._runner.send(Stop(reason=reason))

    async def _listen(self) -> None:
        """Listen at the address for the run's path and write it into the record."""
        self._listens_for = self._run.path
        address = socket_path(self._run)
        await self._server.listen(address)
        self._files.record.socket = str(address)
        self._write_record()

    async def _handle(self, report: Report) -> None:
        match report:
            case Progress():
                if self._stopping and not self._judging:
                    report = msgspec.structs.replace(report, state="stopping")
                found = {metric.name: getattr(report, metric.name) for metric in METRICS if metric.lasts}
                self._lasting |= {name: value for name, value in found.items() if not math.isnan(value)}
                self._publish(msgspec.structs.replace(report, **self._lasting, wants=self._wants))
                if report.state != self._files.record.state:
                    self._write_record(report)
            case Lanes() | Members() | TimeSplits() | Curriculum() | Phase() | Saved() | Changed():
                self._publish(report)
            case Ready():
                if self._wants == "paused":  # before it crashed
                    self._runner.send(Pause())
                self._runner.send(self._server.render)
                self._publish(report)
                self._log("info", f"training on {report.device} in {report.precision}")
                while self._notes:
                    self._log(*self._notes.pop(0))
            case Episode() | Evaluation():
                self._sinks.put(report)
                self._publish(report)
                if isinstance(report, Evaluation):
                    self._files.want_history()  # for the queue of a sweep, which may prune the run
                    if report.best:  # it stays the best after a restart from an earlier step, as its policy does
                        self._files.record.best = host_events.recorded(report, self._config.outcome)
            case Written():
                await self._commit(report)
            case Log():
                self._log(report.level, report.text)
            case Obeys():
                self._state.obeys = report.commands
                self._server.resend_history()
            case FinalEvaluation():
                self._result = report
                self._files.record.result = FinalResult.of(report, self._config.outcome)
                self._sinks.put(report)
                self._publish(report)
            case Failed() if self._judging:
                self._log("warning", f"the final evaluation failed, so the run has no result: {report.reason}")
            case Failed() if self._done is not None:  # all is saved
                self._log("warning", report.reason)
            case Failed():
                self._failure = msgspec.structs.replace(
                    self._failed(report.reason), traceback=report.traceback, usage=report.usage, final=report.final
                )
            case Trained():
                self._done, self._judging = Done(reason=report.reason), True
                if not self._is_saved:
                    self._runner.kill()
                record = self._files.record  # which says from now on that the run is finished if this process ends
                record.state, record.reason = "judging", report.reason
                self._write_record()
            case Done():
                self._done, self._judging = report, False

    async def _commit(self, written: Written) -> None:
        error = await self._checkpoints.commit(written)
        if error is not None:  # the next start will commit it
            self._log("error", f"the checkpoint at {written.env_steps:,} could not be committed: {error}")
            return
        self._restarts = 0
        self._publish(Saved(kind="checkpoint", path=str(self._checkpoints.newest), env_steps=written.env_steps))
        self._files.save_history(self._config, self._state)

    @property
    def _is_saved(self) -> bool:
        """Return whether there is a checkpoint of where the run is."""
        progress = self._state.progress
        return not self._config.keep or (progress is not None and self._checkpoints.env_steps == progress.env_steps)

    def _conclude(self) -> Finished | Failed:
        """Determine how the run ended, and have the record written."""
        progress = self._state.progress
        if self._judging and self._is_saved and not self._stopping:
            self._log("warning", f"the run has no result: in its final evaluation {self._runner.how_it_ended()}")
        end: Finished | Failed
        if self._failure is not None:
            end = self._failure
        elif self._stopped_at_start is not None:
            has_trained = progress is not None and self._checkpoints.newest is not None
            end = self._finished(progress, self._stopped_at_start if has_trained else NOT_BEGUN)
        elif self._done is None:
            end = self._failed(self._runner.how_it_ended())
        elif progress is None or not self._is_saved:
            end = self._failed(NOT_SAVED)
        else:
            end = self._finished(progress, self._done.reason)
        record = self._files.record
        record.state = "finished" if isinstance(end, Finished) else "failed"
        record.reason = end.summary.reason if isinstance(end, Finished) else end.reason
        log.info("%s: %s", record.state, record.reason)
        if self._done is not None and progress is not None:  # where the run ended, which `_tick` leaves out
            self._add_point(progress)
        self._sinks.put(end)
        self._state.apply(end)
        if progress is not None:
            progress = msgspec.structs.replace(progress, state=record.state, remaining_s=None)
            self._publish(progress)
        self._write_record(progress)
        self._files.save_history(self._config, self._state)
        return end

    def _failed(self, reason: str) -> Failed:
        log_path, checkpoint = str(self._run.log_path), self._checkpoints.newest_path
        return Failed(reason=reason, log_path=log_path, checkpoint=checkpoint)

    def _finished(self, progress: Progress | None, reason: str) -> Finished:
        checkpoint, result = self._checkpoints.newest_path, self._result
        return Finished(summary=host_events.summary(progress, self._run.name, reason, checkpoint, result))

    # ------------------------------------------------------------------------------------------ clients

    def _obey(self, command: Command) -> None:
        if isinstance(command, Stop):
            self._stop(command.reason, command.at_once)
            return
        obeys = self._state.obeys
        if isinstance(command, Pause | Resume) and (obeys is None or type(command).__name__ in obeys):
            self._wants = "paused" if isinstance(command, Pause) else "running"
            if self._state.progress is not None:  # the runner's next report may come only after an evaluation
                self._publish(msgspec.structs.replace(self._state.progress, wants=self._wants))
        self._runner.send(command)

    def _publish(self, event: Lasting | Current) -> None:
        """Update the state with an event and send it to every client."""
        if not isinstance(event, Finished | Failed):  # `_conclude` has applied the end already
            self._state.apply(event)
            if isinstance(event, KeptEvent):
                self._state.published[type(event).__name__] += 1
        self._server.put(event)
        if self._runner.ready:  # before, clients may not have connected
            for rule, text in self._alerts.take(event):
                self._alert(rule, text)

    def _alert(self, rule: str, text: str) -> None:
        record, progress, run = self._files.record, self._state.progress, self._run
        log.warning("alert: %s", text)
        record.alerts, record.alert, record.alert_at = record.alerts + 1, text, time.time()
        steps = 0 if progress is None else progress.env_steps
        self._publish(Alert(record.alert_at, run.name, str(run.path), rule, text, env_steps=steps))
        self._write_record()
        self._files.want_history()  # in which `mario-tui alerts` finds it

    def _log(self, level: Any, text: str) -> None:
        text = printable(text)
        log.log(logging.getLevelNamesMapping()[level.upper()], text)
        self._publish(Log(at=time.time(), level=level, text=text))

    # ------------------------------------------------------------------------------------------ by the clock

    async def _tick(self) -> None:
        """Once a second: sample the machine, add a chart point, write metrics and the record. What fails is tried
        again the next time (free file descriptors may be back), and keeps nothing else from being done."""
        failing = set[str]()
        try:
            while True:
                await self._listen_again()
                for what, work in (
                    ("show that this process lives", self._server.touch),
                    ("watch the machine", self._sample),
                    ("watch the run's folder", self._watch_folder),
                    ("write metrics", lambda: self._sinks.look(retry=self._files.work)),
                    ("record the progress", self._record),
                    ("empty run.log", lambda: self._log_rotation.look(self._run.folder.way_in)),
                ):
                    try:
                        work()
                        failing.discard(what)
                    except Exception as error:
                        if what not in failing:
                            log.warning("can't %s: %s", what, error, exc_info=not isinstance(error, OSError))
                        failing.add(what)
                await asyncio.sleep(_TICK_S)
        finally:
            if self._sampler is not None:
                self._sampler.close()

    def _sample(self) -> None:
        self._sampler = self._sampler or SystemSampler(self._runner.pid)
        self._publish(self._sampler.sample())

    def _record(self) -> None:
        """Add to charts and files what has changed since the last second."""
        progress = self._state.progress
        is_running = progress is not None and progress.state == "running"
        if progress is not None and is_running:
            self._add_point(progress)
        if self._files.record_is_due:  # also while nothing changes: on another machine, it is a sign of life
            self._write_record(progress if is_running else None)
        if self._files.history_is_due:
            self._files.save_history(self._config, self._state)

    def _add_point(self, progress: Progress) -> None:
        """Add a point to the charts and to the sinks."""
        self._publish(point_of(progress))
        self._sinks.put(progress)

    async def _listen_again(self) -> None:
        """Replace a lost socket: $XDG_RUNTIME_DIR is removed at logout, and temporary folders are cleaned. Another run
        at the earlier path of a renamed one would take its address."""
        try:
            if self._server.is_reachable and self._listens_for == self._run.path:
                return
            await self._listen()
        except Exception as error:
            if not self._unreachable:
                log.warning("the run can't be attached to: %s", error)
            self._unreachable = True
        else:
            self._unreachable = False
            log.info("listening at %s", self._files.record.socket)

    def _watch_folder(self) -> None:
        """Go on where the run's folder is now. End in order if it is gone, or if another one stands in its place."""
        before = self._at
        try:
            self._at = self._run.look()
        except (FileNotFoundError, UserError) as error:
            if self._failure is None:
                gone = isinstance(error, FileNotFoundError)
                reason = "its folder was removed, or moved to where it can't be found" if gone else str(error)
                self._end(reason)
                self._failure = msgspec.structs.replace(self._failed(reason), final=True)
            return
        if self._at == before:
            return
        self._checkpoints.follow(before)
        self._marks |= marks.marks_of(before)  # what is still there
        marks.move(before, self._at, self._marks)
        self._server.resend_history()
        self._log("info", f"the run's folder was moved from {before} to {self._at}")
        if before.exists() and not before.samefile(self._at):
            self._end(f"another folder stands at {before}")

    def _end(self, reason: str) -> None:
        """Stop in order; a loop that can't be told to stop goes on without this host."""
        if self._state.obeys is None or Stop.__name__ in self._state.obeys:
            self._stop(reason)
        else:
            self._failure = self._failed(reason)
            self._runner.kill()

    async def _stream_frames(self) -> None:
        """Send the newest frame of the rank-0 game to clients that want it."""
        seen = 0
        while True:
            await asyncio.sleep(1 / self._server.render.fps)
            frame = self._runner.picture(seen) if self._server.render.on else None
            if frame is not None:
                seen = frame.index
                self._server.put(frame)

    def _write_record(self, progress: Progress | None = None) -> None:
        self._files.write_record(progress, self._checkpoints.newest_path)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the host failed", exc_info=task.exception())
