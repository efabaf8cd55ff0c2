"""The process that owns one run: starts its runner, serves its clients, commits its checkpoints.

Runs detached from any terminal (`python -m engine.host RUN`). One asyncio loop does everything. Reports are handled one
after the other, so that the run's end is announced only after its last checkpoint is committed.
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
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from engine.config.run_config import RunConfig
from engine.envs.actions import action_names
from engine.envs.emulators.protocol import SCREEN_SHAPE
from engine.errors import UserError
from engine.host.address import socket_path
from engine.host.event_server import EventServer
from engine.host.run_state import RunState
from engine.host.runner_process import RunnerProcess
from engine.monitoring.machine import SystemSampler
from engine.monitoring.memory_budget import available_bytes, is_short
from engine.monitoring.tensorboard import ScalarWriter
from engine.protocol.framing import pack
from engine.protocol.messages import (
    PROTOCOL,
    Changed,
    Command,
    Current,
    Curriculum,
    Done,
    Episode,
    Evaluation,
    Event,
    Failed,
    Finished,
    Frame,
    Hello,
    Lanes,
    Lasting,
    Log,
    Members,
    Pause,
    Phase,
    Point,
    Progress,
    Ready,
    Report,
    Saved,
    Stages,
    Stop,
    Summary,
    Written,
)
from engine.runs import checkpoints
from engine.runs.recording import read_recording
from engine.runs.run import Run
from engine.runtime.files import write_atomically
from engine.runtime.text import printable

log = logging.getLogger("host")

_TICK_S = 1.0
_COMMITS = 3  # tries to commit a checkpoint
_HISTORY_EVERY_S = 30.0


class Host:
    """One run, from start to end. `serve` returns the exit status."""

    def __init__(self, run: Run, resume_from: Path | None, foreground: bool) -> None:
        self._run = run
        self._folder = run.identity()
        self._config: RunConfig = run.config()
        self._resume_from = resume_from
        self._foreground = foreground
        self._runner = RunnerProcess(run.path, self._config)
        self._view = RunState()
        self._server = EventServer(
            hello=self._hello,
            current=self._current,
            obey=self._obey,
            rendering=self._runner.send,
            complain=lambda text: self._log("warning", text),
        )
        self._failure: Failed | None = None
        self._done: Done | None = None
        self._checkpoint: Path | None = resume_from
        self._checkpoint_steps = -1
        self._stops = 0
        self._stopped_at_start: str | None = None
        """The reason of a stop that came while the runner started."""
        self._restarts = 0  # since the last checkpoint
        self._loss = self._q_mean = math.nan
        self._tasks: set[asyncio.Task[None]] = set()
        self._history_at = time.monotonic()
        self._memory_short = self._unreachable = False
        self._notes: list[tuple[str, str]] = []
        """Level and text of what was found at the start; told when clients are there to hear it."""

    @property
    def refused(self) -> bool:
        """Whether a new run ended before its first step, because of how it was asked for."""
        failure = self._failure
        never_began = self._view.progress is None and not checkpoints.committed(self._run)
        return failure is not None and failure.usage and never_began

    async def serve(self) -> int:
        """Run the run. 0 if it finished or was stopped in order with its state saved, 1 if not."""
        self._record = self._run.record()
        self._record.pid, self._record.state, self._record.reason = os.getpid(), "starting", ""
        self._record.steps = self._config.steps
        self._recover()
        if self._resume_from is not None:
            self._recall(self._resume_from)
        self._scalars = ScalarWriter(self._run.path, complain=lambda text: self._log("warning", text))
        self._runner.start(self._resume_from)
        try:
            end = await self._until_the_end()
        finally:
            self._runner.kill()  # it has ended, unless an exception leads here; then this process would wait for it
            self._scalars.close()
        return 0 if isinstance(end, Finished) else 1

    async def _until_the_end(self) -> Finished | Failed:
        """Serve clients and handle reports until the run is over and everybody was told."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, f"received {signal.Signals(number).name}")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self._foreground:
            threading.Thread(target=self._watch_parent, args=(loop,), daemon=True).start()

        await self._listen()
        try:
            self._spawn(self._tick())
            self._spawn(self._show())
            while True:
                while (report := await self._runner.reports.get()) is not None:
                    await self._handle(report)
                if not self._worth_another_start():
                    break
                self._begin_again()
            end = self._conclude()
            self._tell(end)
            return end
        finally:
            await self._server.close()

    # ------------------------------------------------------------------------------------------ the runner

    def _worth_another_start(self) -> bool:
        """Whether the runner was lost in the midst of training, and it may be better next time."""
        return (
            self._done is None
            and self._stops == 0
            and self._runner.ready
            and not (self._failure is not None and self._failure.final)
            and self._restarts < self._config.restarts
        )

    def _begin_again(self) -> None:
        reason = self._failure.reason if self._failure is not None else self._runner.how_it_ended()
        where = "its beginning" if self._checkpoint is None else self._checkpoint.name
        self._restarts += 1
        self._failure = None
        self._resume_from = self._checkpoint
        env_steps = max(0, self._checkpoint_steps)
        if self._view.progress is not None:  # what is lost is not to be counted any more
            self._tell(_back_at(self._view.progress, env_steps))
        self._view.go_back(env_steps)
        self._server.tell_anew()
        self._log(
            "warning", f"{reason}; the run begins again from {where} ({self._restarts} of {self._config.restarts})"
        )
        self._recover()
        self._runner.start(self._resume_from)

    def _recover(self) -> None:
        """Go on from a checkpoint that was written whole but not committed, if it is newer; say which are damaged."""
        recovered = checkpoints.recover(self._run)
        if self._resume_from is None or self._resume_from.parent != self._run.path:
            return
        for path in recovered:
            self._notes.append(("info", f"{path.name} had been written and not committed; it is now"))
            self._resume_from = self._checkpoint = max(self._resume_from, path)
        for path in checkpoints.committed(self._run):
            if path.name > self._resume_from.name:
                try:
                    checkpoints.verify(path)
                except UserError as error:
                    self._notes.append(("warning", f"a newer checkpoint is passed over: {error}"))

    def _watch_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: stop in order when the process that shows the run is gone."""
        while os.read(sys.stdin.fileno(), 4096):  # unbuffered: a buffer's lock would be missed at the end
            pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._parent_gone)

    def _parent_gone(self) -> None:
        if self._stops == 0:  # else it only leaves early; that is no second request
            self._stop("the process that showed the run is gone")

    def _stop(self, reason: str) -> None:
        """Once: in order. Twice, or while the runner starts and there is nothing to save: at once."""
        self._stops += 1
        if not self._runner.is_alive:
            return  # it ended by itself
        if not self._runner.ready:
            self._stopped_at_start = reason
            self._runner.kill()
        elif self._stops == 1:
            self._log("info", f"stopping: {reason}")
            if self._view.progress is not None:  # the runner's next report may take an evaluation
                self._tell(msgspec.structs.replace(self._view.progress, state="stopping"))
            self._runner.send(Stop(reason=reason))
        else:
            self._failure = self._failed("stopped at once, before its last checkpoint was written")
            self._runner.kill()

    async def _listen(self) -> None:
        """Serve clients at a new address, and note it where they look for it."""
        address = socket_path(self._run)
        await self._server.listen(address)
        self._record.socket = str(address)
        self._run.write_record(self._record)

    async def _handle(self, report: Report) -> None:
        match report:
            case Progress():
                if self._stops:
                    report = msgspec.structs.replace(report, state="stopping")
                self._loss = report.loss if math.isfinite(report.loss) else self._loss
                self._q_mean = report.q_mean if math.isfinite(report.q_mean) else self._q_mean
                self._tell(msgspec.structs.replace(report, loss=self._loss, q_mean=self._q_mean))
                if report.state != self._record.state:
                    self._write_record(report)
            case Lanes() | Members() | Stages() | Curriculum() | Phase() | Saved() | Changed():
                self._tell(report)
            case Ready():
                if self._record.state == "paused":  # before it was lost
                    self._runner.send(Pause())
                self._runner.send(self._server.render)
                self._tell(report)
                self._log("info", f"training on {report.device} in {report.precision}")
                while self._notes:
                    self._log(*self._notes.pop(0))
            case Episode():
                self._scalars.episode(report)
                self._tell(report)
            case Evaluation():
                self._scalars.evaluation(report)
                self._tell(report)
            case Written():
                await self._commit(report)
            case Log():
                self._log(report.level, report.text)
            case Failed():
                self._failure = msgspec.structs.replace(
                    self._failed(report.reason), traceback=report.traceback, usage=report.usage, final=report.final
                )
            case Done():
                self._done = report

    async def _commit(self, written: Written) -> None:
        final = Path(written.final)
        for tries_left in range(_COMMITS - 1, -1, -1):
            try:
                await asyncio.to_thread(checkpoints.commit, Path(written.partial), final)
                await asyncio.to_thread(checkpoints.rotate, self._run, self._config.keep)
                break
            except (OSError, UserError) as error:
                if not tries_left:  # it stays where it is; the next start takes it over
                    self._log("error", f"the checkpoint at {written.env_steps:,} could not be committed: {error}")
                    return
                await asyncio.sleep(_TICK_S)  # a table of descriptors that is full has room again in a moment
        self._checkpoint, self._checkpoint_steps = final, written.env_steps
        self._restarts = 0
        self._tell(Saved(kind="checkpoint", path=str(final), env_steps=written.env_steps))
        self._save_history()

    def _conclude(self) -> Finished | Failed:
        """What the run's end was; written down before anybody is told."""
        progress = self._view.progress
        end: Finished | Failed
        if self._failure is not None:
            end = self._failure
        elif self._stopped_at_start is not None:
            if progress is None or self._checkpoint is None:
                end = self._failed("stopped before training began")
            else:
                end = Finished(summary=self._summary(progress, self._stopped_at_start))
        elif self._done is None:
            end = self._failed(self._runner.how_it_ended())
        elif progress is None or self._checkpoint_steps != progress.env_steps:
            end = self._failed("the final checkpoint could not be written")
        else:
            end = Finished(summary=self._summary(progress, self._done.reason))
        self._record.state = "finished" if isinstance(end, Finished) else "failed"
        self._record.reason = end.summary.reason if isinstance(end, Finished) else end.reason
        log.info("%s: %s", self._record.state, self._record.reason)
        self._view.apply(end)
        if progress is not None:
            self._tell(msgspec.structs.replace(progress, state=self._record.state, remaining_s=None))
        self._write_record()
        self._save_history()
        return end

    def _failed(self, reason: str) -> Failed:
        checkpoint = None if self._checkpoint is None else str(self._checkpoint)
        return Failed(reason=reason, traceback="", log_path=str(self._run.log_path), checkpoint=checkpoint)

    def _summary(self, p: Progress, reason: str) -> Summary:
        wall = max(p.wall_s, 1e-9)
        return Summary(
            run=self._run.name,
            reason=reason,
            env_steps=p.env_steps,
            frames=p.frames,
            updates=p.updates,
            episodes=p.episodes,
            wall_s=p.wall_s,
            env_steps_per_s=p.env_steps / wall,
            updates_per_s=p.updates / wall,
            mean_return=p.mean_return if math.isfinite(p.mean_return) else None,
            checkpoint=None if self._checkpoint is None else str(self._checkpoint),
        )

    # ------------------------------------------------------------------------------------------ clients

    def _obey(self, command: Command) -> None:
        if isinstance(command, Stop):
            self._stop(command.reason)
        else:
            self._runner.send(command)

    def _hello(self) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            run=self._run.name,
            path=str(self._run.path),
            game=self._config.game,
            stage=self._config.board or self._config.stage,
            runner=self._config.runner,
            pid=os.getpid(),
            steps=self._config.steps,
            render=self._config.render,
            points=list(self._view.points.items),
            events=list(self._view.events),
            actions=action_names(self._config),
        )

    def _current(self) -> list[Event]:
        view = self._view
        newest = (view.progress, view.lanes, view.members, view.stages, view.curriculum, view.system)
        return [event for event in newest if event is not None]

    def _tell(self, event: Lasting | Current) -> None:
        """Fold an event into the host's view and give it to every client."""
        if not isinstance(event, Finished | Failed):  # the end is folded in by `_conclude`, before it is stored
            self._view.apply(event)
        self._server.put(event)

    def _log(self, level: Any, text: str) -> None:
        text = printable(text)
        log.log(logging.getLevelNamesMapping()[level.upper()], text)
        self._tell(Log(at=time.time(), level=level, text=text))

    # ------------------------------------------------------------------------------------------ by the clock

    async def _tick(self) -> None:
        """Once a second: the machine, a point for the charts, TensorBoard, the record."""
        sampler = SystemSampler()
        try:
            while True:
                self._tell(sampler.sample())
                self._watch_memory()
                if not self._server.is_reachable:
                    await self._listen_again()
                self._watch_folder()
                progress = self._view.progress
                if progress is not None and progress.state == "running":
                    self._tell(_point(progress))
                    self._scalars.progress(progress)
                    self._write_record(progress)
                if time.monotonic() - self._history_at > _HISTORY_EVERY_S:
                    self._save_history()
                await asyncio.sleep(_TICK_S)
        finally:
            sampler.close()

    async def _listen_again(self) -> None:
        """The socket is gone: $XDG_RUNTIME_DIR goes when its user logs out, and temporary folders are cleaned."""
        try:
            await self._listen()
        except (OSError, UserError) as error:
            if not self._unreachable:
                log.warning("the run can't be attached to: %s", error)
            self._unreachable = True
        else:
            self._unreachable = False
            log.info("listening at %s", self._record.socket)

    def _watch_folder(self) -> None:
        """What is written to another folder than the run's own is lost, or may be somebody else's."""
        with contextlib.suppress(OSError):  # a disk that does not answer now may later
            if self._run.identity() != self._folder:
                failure = self._failed("its folder was moved or removed")
                self._failure = msgspec.structs.replace(failure, final=True)
                self._runner.kill()

    def _watch_memory(self) -> None:
        """Warn once when memory gets short, and once more each time it got short again."""
        short = is_short()
        if short and not self._memory_short:
            self._log("warning", f"only {available_bytes() / 2**20:,.0f} MiB of memory are left")
        self._memory_short = short

    async def _show(self) -> None:
        """The rank-0 game's newest picture to the clients that want it."""
        seen = 0
        height, width, _ = SCREEN_SHAPE
        while True:
            await asyncio.sleep(1 / self._server.render.fps)
            picture = self._runner.screen.read(seen) if self._server.render.on else None
            if picture is not None:
                seen, rgb, thought = picture
                self._server.put(Frame(index=seen, height=height, width=width, rgb=rgb, thought=thought))

    def _write_record(self, progress: Progress | None = None) -> None:
        record = self._record
        if progress is not None:
            record.state = progress.state
            record.env_steps, record.episodes = progress.env_steps, progress.episodes
            record.wall_s = progress.wall_s
            record.mean_return = progress.mean_return if math.isfinite(progress.mean_return) else None
        record.checkpoint = None if self._checkpoint is None else str(self._checkpoint)
        try:
            self._run.write_record(record)
        except OSError as error:
            log.warning("run.json could not be written: %s", error)

    def _save_history(self) -> None:
        """What a dashboard of this run shows when nobody serves it any more."""
        self._history_at = time.monotonic()
        recording = b"".join(pack(event) for event in (self._hello(), *self._current()))
        try:
            write_atomically(self._run.history_path, recording)
        except OSError as error:
            log.warning("%s could not be written: %s", self._run.history_path.name, error)

    def _recall(self, checkpoint: Path) -> None:
        """On resume: how far the checkpoint is, and the charts and the log of the earlier sessions up to there."""
        with contextlib.suppress(UserError):  # what is wrong with a checkpoint, the runner tells
            self._checkpoint_steps = checkpoints.verify(checkpoint).env_steps
            for event in read_recording(self._run.history_path):
                if isinstance(event, Hello):
                    for past in (*event.points, *event.events):
                        if (
                            not isinstance(past, Finished | Failed)
                            and getattr(past, "env_steps", 0) <= self._checkpoint_steps
                        ):
                            self._view.apply(past)
                elif isinstance(event, Progress):
                    self._view.apply(_back_at(event, self._checkpoint_steps))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a part of the host failed", exc_info=task.exception())


def _back_at(progress: Progress, env_steps: int) -> Progress:
    """Where a run stands that starts again from a checkpoint."""
    return msgspec.structs.replace(
        progress, state="starting", env_steps=env_steps, env_steps_per_s=0.0, frames_per_s=0.0
    )


def _point(p: Progress) -> Point:
    return Point(
        env_steps=p.env_steps,
        wall_s=p.wall_s,
        mean_return=p.mean_return,
        loss=p.loss,
        q_mean=p.q_mean,
        env_steps_per_s=p.env_steps_per_s,
        beta=p.beta,
    )
