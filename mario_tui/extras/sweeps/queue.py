"""The queue of a sweep: a process that starts its runs, a few at a time, until all are done.

`python -m mario_tui.extras.sweeps.queue FOLDER` outlives the terminal. It keeps all state in the sweep's folder, so a
new queue can resume after a kill or a reboot. On SIGTERM it shuts the runs down cleanly and exits.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from engine.config.features import feature
from engine.errors import NO_THREAD, RemovedError, ScarceError, UserError
from engine.host.client import HostProcess, ask_to_stop
from engine.monitoring.memory_budget import TooLittleMemory
from engine.runs.checkpoints import committed, read_manifest
from engine.runs.marks import is_run
from engine.runs.run import CONFIG_FILE, MOST_TAGS, NOT_SAVED, Annotation, Run
from engine.runs.sweep import LOCK_FILE, Event, Member, Sweep, SweepPlan
from engine.runtime.files import is_full, open_lock, open_regular
from engine.runtime.text import printable, size_text
from engine.runtime.threads import available_cores
from mario_tui.data.run_status import RunStatus, failure
from mario_tui.extras.sweeps.folder import journal_of, problem_of, set_aside, stored_record
from mario_tui.extras.sweeps.results import WAITING, member_states, results_of, setting_text, state_of
from mario_tui.extras.sweeps.search import Evaluations, Pruner, check_optuna, next_setting
from mario_tui.launch import make_plan

if TYPE_CHECKING:
    from mario_tui.extras.sweeps.cluster import Cluster, End

_PRUNED = "its setting was pruned"
_POLL_S = 0.5
_RETRY_S = 10.0
"""Until a run that lacks something is tried again: each time its checkpoint is read."""
_RUN_NEEDS = 2**26, 32
"""Bytes of disk space, and threads and processes, without which no run is started: a small one has two checkpoints of
24 MB, and 20 threads."""
_MORE = 8
"""How many times as much is looked for once a run has failed for want of it."""
_START_S = 30.0
_STOP_S = 600.0
"""Seconds that runs have to write their last checkpoints."""
_ASK_AGAIN_S = 20.0
_REMOVAL_S = 30.0
"""After a run's folder was removed, until another one begins: what removes the whole sweep may still be at work, and
would miss a new folder."""


def alive_runs(sweep: Sweep) -> list[Run]:
    """The runs of a sweep that have a host."""
    runs = map(sweep.run, range(len(sweep.plan().members)))
    return [run for run in runs if not problem_of(sweep, run) and is_run(run.path) and run.is_alive()]


def stop_runs(sweep: Sweep, until: float) -> list[str]:
    """Ask all training runs of a sweep to save a final checkpoint and exit, and wait until `until` (CLOCK_MONOTONIC).
    Returns the names of those that have not ended by then."""
    asked_at = -math.inf
    while left := alive_runs(sweep):
        if (now := time.monotonic()) - asked_at > _ASK_AGAIN_S:  # a host may just be starting, or be suspended
            asked_at = now
            _ask_to_stop(left, "its sweep was stopped")
        if now > until:
            break
        time.sleep(_POLL_S)
    with contextlib.suppress(UserError):  # where the journal can't be written, whoever comes next notes them
        note_ends(sweep)
    return [run.name for run in left]


def _ask_to_stop(runs: Sequence[Run], reason: str) -> None:
    """Ask at once: a host that is suspended takes long not to answer."""
    ask = partial(ask_to_stop, reason=reason)
    try:
        with ThreadPoolExecutor(max(1, len(runs))) as threads:
            list(threads.map(ask, runs))
    except RuntimeError:  # no thread is left
        for run in runs:
            ask(run)


def note_ends(sweep: Sweep) -> None:
    """Note how runs have ended while the sweep had no queue."""
    for member in member_states(sweep, sweep.plan()):
        if member.history.is_open and not member.run.is_alive():
            note_end(sweep, member.run)


def note_end(
    sweep: Sweep, run: Run, is_try: Callable[[str], bool] = lambda reason: True, *, removed: bool = False
) -> str:
    """Note how a run that was begun has ended; `is_try`: whether it counts as a try if it has failed for that reason;
    `removed`: its folder was, or is just being removed. Returns it in words."""
    record = None if removed else stored_record(sweep, run)
    status = None if record is None else RunStatus.of_record(record)
    problem = problem_of(sweep, run)
    reason = problem if record is None else failure(record) or record.reason
    event: Event = "failed"
    if record is None and not problem:
        event, reason = "deleted", "its folder was removed"
    if status in (RunStatus.FINISHED, RunStatus.STOPPED):
        event = "finished" if status is RunStatus.FINISHED else "stopped"
    sweep.note(event, run, reason=reason, counts=event != "failed" or is_try(reason))
    return f"{run.name} {event}: {reason}"


def start_queue(sweep: Sweep) -> None:
    """Start the queue of a sweep. Raises `UserError` if it has one, or none can be started."""
    plan = sweep.own_plan()
    if sweep.queue_pid() is not None:
        raise UserError(f"{sweep.name}: is running already")
    if plan.ray != "none":
        feature("ray", "--ray").check_cluster(plan.ray)
    if plan.search is not None:
        check_optuna("--search")
    if plan.prune_after is not None:
        check_optuna("--prune")
    sweep.note("started")
    open_lock(sweep.path / LOCK_FILE).close()  # without it, each of two queues that start would find the other
    try:
        with open_regular(sweep.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mario_tui.extras.sweeps.queue", str(sweep.path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=sweep.path,
            )  # fmt: skip
    except OSError as error:
        raise UserError(f"{sweep.name}: its queue can't be started ({error.strerror or error})") from None
    until = time.monotonic() + _START_S
    while sweep.queue_pid() != process.pid and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    if process.poll() and sweep.queue_pid() is None:  # somebody else may have started one at the same time
        raise UserError(f"{sweep.name}: its queue ended at once; see {sweep.log_path}")


def _has_host(run: Run, status: RunStatus | None) -> bool:
    """Return whether a run trains or is paused, or its host has just been started or is about to end."""
    return status is not None and (status.is_active or (status is not RunStatus.FINISHED and run.is_alive()))


def close_if_done(run: Run, newest: Path) -> bool:
    """Return whether a run had done all its steps or episodes when it was lost; then its record says so from now on."""
    config, steps, record = run.config(), read_manifest(newest).env_steps, run.record()
    if steps >= config.steps:
        record.env_steps, record.reason = steps, f"{steps:,} environment steps are done"
    elif config.episodes is not None and record.episodes >= config.episodes:
        record.reason = f"{record.episodes:,} episodes are done"
    else:
        return False
    record.state, record.checkpoint = "finished", str(newest)
    run.write_record(record)
    return True


class Queue:
    """Starts the runs of a sweep. A failed run is restarted once, from its newest checkpoint."""

    def __init__(self, sweep: Sweep, tell: Callable[[str], None]) -> None:
        """`tell`: tells others what it waits for."""
        self._sweep, self._tell = sweep, tell
        self._journal = journal_of(sweep, plan := sweep.own_plan())
        self._runs = list[Run]()
        self._hosts: list[HostProcess] = []
        self._evaluations = Evaluations()
        self._pruner = Pruner(self._evaluations)
        self._ended = set[Run]()
        """Pruned runs that were stopped. One that somebody resumes is left alone."""
        self._is_stopping = False
        self._waits_for = ""
        """What there is too little of to start more runs."""
        self._retry_at = -math.inf
        """When that is looked at again."""
        self._hold_until = -math.inf
        self._needed = _RUN_NEEDS
        self._begun = list[Run]()
        """Runs whose start is not noted yet, because the disk is full."""
        self._cluster: Cluster | None = None
        if plan.ray != "none":
            from mario_tui.extras.sweeps.cluster import Cluster  # imports Ray, which may not be installed

            self._cluster = Cluster(sweep, plan, self._say)

    def stop(self, signal_number: int, frame: FrameType | None) -> None:
        """A handler of signals: stop the runs and end."""
        self._is_stopping = True

    def work(self, at_end: contextlib.ExitStack) -> None:
        """Return when nothing is left to start and nothing trains, or after `stop`.

        `at_end` then holds the plan: it is to be closed once the sweep has no queue any more, so that whoever adds runs
        either finds this queue at work, or none.
        """
        while not self._is_stopping:
            try:
                pause_s = self._turn(at_end)
            except (OSError, ScarceError) as error:
                if isinstance(error, OSError) and not is_full(error):
                    raise
                self._wait(f"disk space: {error}")
                pause_s = _POLL_S
            if pause_s is None:
                return
            time.sleep(pause_s)
        with contextlib.suppress(UserError):
            self._sweep.note("stopping")
        until = time.monotonic() + _STOP_S
        if self._cluster is not None:
            self._note_nodes(self._cluster.stop(until))
        if left := stop_runs(self._sweep, until):
            raise UserError(f"{', '.join(left)} did not end in {_STOP_S:.0f} s")

    def _turn(self, at_end: contextlib.ExitStack) -> float | None:
        """Look at the runs, and start what there is room for. Returns the seconds until the next turn; None at the end.
        Raises `ScarceError` or `OSError` if the disk is full."""
        plan = self._sweep.own_plan()  # it may have got more runs
        runs = self._runs
        runs += [self._sweep.run(number) for number in range(len(runs), len(plan.members))]
        self._note_begun()
        self._look_at_nodes()
        self._journal.read()
        statuses = [self._status_of(run) for run in runs]
        jobs = self._jobs(plan)
        training = [run for run, status in zip(runs, statuses, strict=True) if _has_host(run, status)]
        if self._note_ends(training):
            return 0.0
        if plan.prune_after is not None:
            if self._prune([run for run in training if not self._journal.of(run.name).is_pruned]):
                return 0.0
            self._stop_pruned(training)
        # A paused run gives its place to the next.
        trains = len(training) - statuses.count(RunStatus.PAUSED)
        waiting = [
            number
            for number, run in enumerate(runs)
            if run not in training and state_of(self._journal.of(run.name), statuses[number]) == WAITING
        ]
        if plan.is_searching and len(waiting) < jobs - trains and self._add_setting():
            return 0.0
        if not waiting:
            self._wait("")
        holds = time.monotonic() < max(self._retry_at, self._hold_until)
        for number in waiting[: 0 if holds else max(0, jobs - trains)]:
            if self._is_stopping or not self._begin(plan, number, alone=not (trains or training)):
                break
            trains += 1
        if not (waiting or training or plan.is_searching):
            last, _ = at_end.enter_context(self._sweep.changed_plan())
            if last.members == plan.members:
                return None
            at_end.close()
        self._hosts = [host for host in self._hosts if not host.ended]  # and the kernel forgets them
        return _POLL_S

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _jobs(self, plan: SweepPlan) -> int:
        """Return how many runs may train at the same time."""
        if self._cluster is not None:
            return self._cluster.places(plan)
        return plan.jobs or max(1, available_cores() // (plan.threads or 1))

    def _look_at_nodes(self) -> None:
        """Take over which runs have left their nodes."""
        if self._cluster is not None:
            self._note_nodes(self._cluster.look())

    def _note_nodes(self, ends: Iterable[End]) -> None:
        for end in ends:
            if end.event is not None:
                self._sweep.note(end.event, end.run, reason=end.reason, counts=end.counts)
                self._say(f"{end.run.name} {end.reason}")

    def _status_of(self, run: Run) -> RunStatus | None:
        """Return where a run is; None if it has not begun. The records of finished ones, maybe thousands, are not
        read."""
        if self._journal.of(run.name).last == "finished":
            return RunStatus.FINISHED
        record = stored_record(self._sweep, run)
        status = None if record is None else RunStatus.of_record(record)
        if self._cluster is not None and self._cluster.has(run) and not (status is not None and status.is_active):
            return RunStatus.STARTING  # its record may be on the way, or be dated by another clock
        return status

    def _note_ends(self, training: Sequence[Run]) -> bool:
        """Note how those have ended that train no more. Returns whether there are any."""
        ended = [run for run in self._runs if self._journal.of(run.name).is_open and run not in training]
        for run in ended:
            self._retry_at = -math.inf  # it has left room
            self._note_end(run)
        return bool(ended)

    def _note_end(self, run: Run, *, removed: bool = False) -> None:
        removed = removed or self._lacks_files(run)
        self._say(note_end(self._sweep, run, self._is_try, removed=removed))
        if removed or not run.record_path.exists():
            self._hold_until = time.monotonic() + _REMOVAL_S

    def _lacks_files(self, run: Run) -> bool:
        """Return whether somebody has removed the folder of a run that was begun here, or is just removing it: that may
        make its host crash. Of a run on a node, the files may not be copied yet."""
        return self._cluster is None and not (run.record_path.exists() and (run.path / CONFIG_FILE).exists())

    def _is_try(self, reason: str) -> bool:
        """Return whether a run that has failed for this reason would fail again. It would not if the machine lacks what
        a run needs; that may be more than was thought."""
        size, threads = self._needed
        if reason == NOT_SAVED:
            size *= _MORE
        elif any(text in reason for text in (NO_THREAD, os.strerror(errno.EAGAIN))):
            threads *= _MORE
        lacks = shortage(self._sweep.path, size, threads)
        if lacks:
            self._needed = size, threads
            self._wait(lacks)
        return not lacks

    def _wait(self, what: str) -> None:
        """Wait for what is lacking to start runs; empty: for nothing any more."""
        if what:
            self._retry_at = time.monotonic() + _RETRY_S
        if what == self._waits_for:
            return
        with contextlib.suppress(OSError):
            self._tell(what)
        kind, before = what.partition(":")[0], self._waits_for.partition(":")[0]
        self._waits_for = what
        if kind != before:  # what is free of it changes all the time
            self._say(f"waits for {what}" if what else f"there is enough again ({before})")

    def _note_begun(self) -> None:
        while self._begun:
            self._sweep.note("begun", self._begun[0])
            del self._begun[0]

    def _prune(self, training: list[Run]) -> bool:
        """Give up settings that are worse than the others, before their runs are stopped."""
        if not self._evaluations.have_news(training):
            return False
        with self._sweep.changed_plan() as (plan, _):
            worse = self._pruner.worse(results_of(self._sweep, plan), plan.prune_after or 0)
            for result, step in worse:
                reason = f"below the median of the others at {step:,} steps"
                self._sweep.note("pruned", *(member.run for member in result.members), reason=reason)
                self._say(f"pruned, {reason}: {setting_text(result.settings)}")
        return bool(worse)

    def _stop_pruned(self, training: Sequence[Run]) -> None:
        """Stop the runs that were given up, until they have ended; also those that an earlier queue has not stopped."""
        pruned = {run for run in self._runs if self._journal.of(run.name).is_pruned}
        left = [run for run in training if run in pruned - self._ended]
        if self._cluster is None:
            _ask_to_stop(left, _PRUNED)
        else:
            for run in left:
                self._cluster.stop_run(run.name, _PRUNED)
        self._ended |= pruned.difference(training)

    def _add_setting(self) -> bool:
        """Add the next setting of a search, if there is to be one."""
        with self._sweep.changed_plan() as (plan, write):
            search = plan.search
            if search is None or len(results := results_of(self._sweep, plan)) >= search.count:
                return False
            setting = next_setting(search, results, self._evaluations)
            if setting is None:
                self._say(f"no other setting was found; {len(results)} instead of {search.count}")
                write(msgspec.structs.replace(plan, search=msgspec.structs.replace(search, count=len(results))))
                return False
            self._say(f"next: {setting_text(setting)}")
            members = (*plan.members, *(Member(setting, seed) for seed in search.seeds))
            write(msgspec.structs.replace(plan, members=members))
            return True

    def _begin(self, plan: SweepPlan, number: int, *, alone: bool) -> bool:
        """Start or resume a run. Returns False if it must wait."""
        run = self._runs[number]
        if lacks := shortage(self._sweep.path, *self._needed):
            self._wait(lacks)
            return False
        try:
            if problem := problem_of(self._sweep, run):
                raise UserError(problem)
            if self._journal.of(run.name).last in ("failed", "lost") and self._lacks_files(run):
                raise RemovedError(f"{run.path}: was removed")
            newest = committed(run)[-1:] if stored_record(self._sweep, run) is not None else []
            if newest and close_if_done(run, newest[0]):
                self._say(note_end(self._sweep, run))
                return True
            if newest:
                start, how = make_plan({}, resume=str(run.path)), f" again, from {newest[0].name}"
            else:
                left = set_aside(self._sweep, run)
                how = f" again, from the beginning; the files of the try before are in {left}" * bool(left)
                values = plan.values(plan.members[number]) | {"run_dir": str(self._sweep.path)}
                tags = dict.fromkeys((self._sweep.name[:24].lower().replace(".", "-"), *plan.annotation.tags))
                annotation = Annotation(tuple(tags)[:MOST_TAGS], plan.annotation.note)
                start = replace(make_plan(values, name=run.name), annotation=annotation)
            if self._cluster is not None:  # it tells once a node has begun the run
                self._cluster.place(run, start, how)
                return True
            self._hosts.append(start.start(keep_refused=True))
        except RemovedError:
            self._note_end(run, removed=True)
            return False
        except (OSError, UserError) as error:
            is_memory = isinstance(error, TooLittleMemory)
            if (isinstance(error, ScarceError) and not (is_memory and alone)) or is_full(error):
                self._wait(f"{'memory' if is_memory else 'resources'}: {error}")
                return False
            self._sweep.note("refused", run, reason=str(error))
            self._say(f"{run.name} can't be started: {error}")
            return True
        self._wait("")
        self._begun.append(run)
        self._say(f"{run.name} started{how}")
        self._note_begun()
        return True

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the disk is full
            print(printable(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"), file=sys.stderr, flush=True)


def main() -> int:
    sweep = Sweep(Path(sys.argv[1]))
    try:
        with contextlib.ExitStack() as at_end, sweep.lock() as tell, contextlib.closing(Queue(sweep, tell)) as queue:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, queue.stop)
            queue.work(at_end)
    except (OSError, UserError) as error:  # such as a full disk; `sweep resume` goes on. Its runs here train on
        print(printable(f"the queue ends: {error}"), file=sys.stderr, flush=True)
        return 1
    return 0


def shortage(folder: Path, size: int, threads: int) -> str:
    """Return what there is too little of for a run in the folder to train and be kept: it needs `size` bytes and so
    many threads and processes. Empty if there is enough. Both are tried out, since quotas and limits count, too."""
    if not _can_be_written(folder, size):
        return f"disk space: {folder} has room for less than {size_text(size, binary=True)}"
    began, end = list[threading.Thread](), threading.Event()
    try:
        for _ in range(threads):
            thread = threading.Thread(target=end.wait)
            thread.start()
            began.append(thread)
    except RuntimeError:
        return f"processes: fewer than {threads} can be started; `ulimit -u` limits processes and threads"
    finally:
        end.set()
        for thread in began:
            thread.join()
    return ""


def _can_be_written(folder: Path, size: int) -> bool:
    try:
        if shutil.disk_usage(folder).free < size:
            return False
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        return not (is_full(error) or error.errno == errno.EFBIG)  # of others, the start tells more
    return True


if __name__ == "__main__":
    sys.exit(main())
