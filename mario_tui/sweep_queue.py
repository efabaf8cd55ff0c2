"""The queue of a sweep: a process that starts its runs, a few at a time, until all are done.

`python -m mario_tui.sweep_queue FOLDER` outlives the terminal. It keeps all state in the sweep's folder, so a new
queue can resume after a kill or a reboot. On SIGTERM it shuts the runs down cleanly and exits.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from engine.config.ray_cluster import check_cluster
from engine.errors import UserError
from engine.host.client import HostProcess, ask_to_stop
from engine.monitoring.memory_budget import TooLittleMemory
from engine.runs.annotation import MOST_TAGS, Annotation
from engine.runs.checkpoints import committed, read_manifest
from engine.runs.registry import delete_run
from engine.runs.run import Run, is_run, record_if_begun
from engine.runs.sweep import TRIES, Member, Sweep, SweepPlan
from engine.runtime.files import open_regular
from engine.runtime.text import printable
from engine.runtime.threads import available_cores
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_table import is_waiting, results_of, setting_text
from mario_tui.launch import make_plan
from mario_tui.sweep_pruning import Evaluations, Pruner
from mario_tui.sweep_search import check_optuna, next_setting

if TYPE_CHECKING:
    from mario_tui.sweep_cluster import Cluster

_PRUNED = "its setting was pruned"
_POLL_S = 0.5
_RETRY_S = 10.0
"""Until a run that lacks memory is tried again: each time its checkpoint is read."""
_START_S = 30.0
_STOP_S = 600.0
"""Seconds that runs have to write their last checkpoints."""
_ASK_AGAIN_S = 20.0


def status_of(run: Run) -> RunStatus | None:
    """Where a run of a sweep is; None if it has not begun."""
    record = record_if_begun(run)
    return None if record is None else RunStatus.of_record(record)


def stop_runs(sweep: Sweep) -> None:
    """Ask all training runs of a sweep to save a final checkpoint and exit. Raises `UserError` that names those that
    have not ended in time."""
    runs = [sweep.run(number) for number in range(len(sweep.plan().members))]
    until, asked_at = time.monotonic() + _STOP_S, -math.inf
    while left := [run for run in runs if is_run(run.path) and run.is_alive()]:
        if (now := time.monotonic()) > until:
            raise UserError(f"{sweep.name}: {', '.join(run.name for run in left)} did not end in {_STOP_S:.0f} s")
        if now - asked_at > _ASK_AGAIN_S:  # a host may just be starting, or be suspended
            asked_at = now
            for run in left:
                ask_to_stop(run, "its sweep was stopped")
        time.sleep(_POLL_S)


def start_queue(sweep: Sweep) -> None:
    """Start the queue of a sweep. Raises `UserError` if it has one, or none can be started."""
    plan = sweep.own_plan()
    if sweep.queue_pid() is not None:
        raise UserError(f"{sweep.name}: is running already")
    if plan.ray != "none":
        check_cluster(plan.ray)
    if plan.search is not None:
        check_optuna("--search")
    if plan.prune_after is not None:
        check_optuna("--prune")
    with open_regular(sweep.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mario_tui.sweep_queue", str(sweep.path)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=sweep.path,
        )  # fmt: skip
    until = time.monotonic() + _START_S
    while sweep.queue_pid() != process.pid and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    if process.poll() and sweep.queue_pid() is None:  # somebody else may have started one at the same time
        raise UserError(f"{sweep.name}: its queue ended at once; see {sweep.log_path}")


def _has_host(run: Run, status: RunStatus | None) -> bool:
    """Whether a run trains or is paused, or its host has just been started or is about to end."""
    return status is not None and (status.is_active or (status is not RunStatus.FINISHED and run.is_alive()))


def _make_way(run: Run) -> None:
    """Remove what is left of a run that has no checkpoint, or of one whose creation or removal was interrupted."""
    if is_run(run.path):
        delete_run(run)
    elif run.path.is_dir() and not run.is_alive():
        shutil.rmtree(run.path)


def close_if_done(run: Run, newest: Path) -> bool:
    """Whether a run had done all its steps or episodes when it was lost; then its record says so from now on."""
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

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._tries = sweep.tries()
        self._runs = list[Run]()
        self._hosts: list[HostProcess] = []
        self._finished = set[str]()
        self._evaluations = Evaluations()
        self._pruner = Pruner(self._evaluations)
        self._ended = set[str]()
        """Pruned runs that were stopped. One that somebody resumes is left alone."""
        self._is_stopping = False
        self._retry_at = -math.inf
        """When a run that lacks memory is tried again."""
        self._cluster: Cluster | None = None
        plan = sweep.own_plan()
        if plan.ray != "none":
            from mario_tui.sweep_cluster import Cluster  # imports Ray, which may not be installed

            self._cluster = Cluster(sweep, plan, self._say, self._count)

    def stop(self, signal_number: int, frame: FrameType | None) -> None:
        """A handler of signals: stop the runs and end."""
        self._is_stopping = True

    def work(self, at_end: contextlib.ExitStack) -> None:
        """Return when nothing is left to start and nothing trains, or after `stop`.

        `at_end` then holds the plan: it is to be closed once the sweep has no queue any more, so that whoever adds runs
        either finds this queue at work, or none.
        """
        while not self._is_stopping:
            plan = self._sweep.own_plan()  # it may have got more runs
            runs = self._runs
            runs += [self._sweep.run(number) for number in range(len(runs), len(plan.members))]
            self._look_at_nodes()
            statuses = [self._status_of(run) for run in runs]
            jobs = self._jobs(plan)
            training = [run for run, status in zip(runs, statuses, strict=True) if _has_host(run, status)]
            if plan.prune_after is not None:
                if self._prune([run for run in training if run.name not in plan.pruned]):
                    continue
                self._stop_pruned(plan, training)
            # A paused run gives its place to the next.
            trains = len(training) - statuses.count(RunStatus.PAUSED)
            waiting = [
                number
                for number, run in enumerate(runs)
                if not (run in training or run.name in plan.pruned)
                and is_waiting(statuses[number], self._tries.get(run.name))
            ]
            if plan.is_searching and len(waiting) < jobs - trains and self._add_setting():
                continue
            lacks_memory = bool(training) and time.monotonic() < self._retry_at
            for number in waiting[: 0 if lacks_memory else max(0, jobs - trains)]:
                if self._is_stopping or not self._begin(plan, number, alone=not (trains or training)):
                    break
                trains += 1
            if not (waiting or training or plan.is_searching):
                last, _ = at_end.enter_context(self._sweep.changed_plan())
                if last.members == plan.members:
                    return
                at_end.close()
            self._hosts = [host for host in self._hosts if not host.ended]  # and the kernel forgets them
            time.sleep(_POLL_S)
        if self._cluster is not None:
            self._cluster.stop(time.monotonic() + _STOP_S)
        stop_runs(self._sweep)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _jobs(self, plan: SweepPlan) -> int:
        """How many runs may train at the same time."""
        if self._cluster is not None:
            return self._cluster.places(plan)
        return plan.jobs or max(1, available_cores() // (plan.threads or 1))

    def _look_at_nodes(self) -> None:
        """Take over which runs have left their nodes."""
        for end in [] if self._cluster is None else self._cluster.look():
            if end.reason:
                self._count(end.name, 0 if end.again else TRIES)
                self._say(f"{end.name} {end.reason}")

    def _status_of(self, run: Run) -> RunStatus | None:
        """`status_of`; of a run that is finished it is remembered, since there may be thousands."""
        if run.name in self._finished:
            return RunStatus.FINISHED
        status = status_of(run)
        if self._cluster is not None:
            status = self._cluster.status(run.name, status)
        if status is RunStatus.FINISHED:
            self._finished.add(run.name)
        return status

    def _prune(self, training: list[Run]) -> bool:
        """Give up settings that are worse than the others; the plan says so before their runs are stopped."""
        if not self._evaluations.have_news(training):
            return False
        with self._sweep.changed_plan() as (plan, write):
            worse = self._pruner.worse(results_of(self._sweep, plan), plan.prune_after or 0)
            names = [member.run.name for result, _ in worse for member in result.members]
            if names:
                write(msgspec.structs.replace(plan, pruned=(*plan.pruned, *names)))
        for result, step in worse:
            self._say(f"pruned, below the median of the others at {step:,} steps: {setting_text(result.settings)}")
        return bool(worse)

    def _stop_pruned(self, plan: SweepPlan, training: list[Run]) -> None:
        """Stop the runs that were given up, until they have ended; also those that an earlier queue has not stopped."""
        for run in training:
            if run.name in plan.pruned and run.name not in self._ended:
                if self._cluster is None:
                    ask_to_stop(run, _PRUNED)
                else:
                    self._cluster.stop_run(run.name, _PRUNED)
        self._ended |= set(plan.pruned) - {run.name for run in training}

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
        """Start or resume a run. Returns False if it must wait until others that train have ended."""
        run = self._sweep.run(number)
        newest = committed(run)[-1:] if is_run(run.path) else []
        try:
            if newest and close_if_done(run, newest[0]):
                self._say(f"{run.name}: {run.record().reason}")
                return True
            if newest:
                start = make_plan({}, resume=str(run.path))
            else:
                _make_way(run)
                values = plan.values(plan.members[number]) | {"run_dir": str(self._sweep.path)}
                tags = dict.fromkeys((self._sweep.name[:24].lower().replace(".", "-"), *plan.annotation.tags))
                annotation = Annotation(tuple(tags)[:MOST_TAGS], plan.annotation.note)
                start = replace(make_plan(values, name=run.name), annotation=annotation)
            if self._cluster is not None:  # it counts the try once a node has begun the run
                self._cluster.place(run, start)
                return True
        except UserError as error:
            self._give_up(run, error)
            return True
        self._count(run.name, 1)  # first, so that after a kill none is begun too often
        try:
            self._hosts.append(start.start())
        except UserError as error:
            if isinstance(error, TooLittleMemory) and not alone:
                self._count(run.name, -1)
                self._retry_at = time.monotonic() + _RETRY_S
                return False
            self._give_up(run, error)
            return True
        self._say(f"{run.name} started" + (f" again, from {newest[0].name}" if newest else ""))
        return True

    def _give_up(self, run: Run, error: UserError) -> None:
        self._count(run.name, TRIES)
        self._say(f"{run.name} can't be started: {error}")

    def _count(self, name: str, tries: int) -> None:
        self._tries[name] = min(TRIES, self._tries.get(name, 0) + tries)
        self._sweep.write_tries(self._tries)

    def _say(self, text: str) -> None:
        print(printable(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"), file=sys.stderr, flush=True)


def main() -> int:
    sweep = Sweep(Path(sys.argv[1]))
    try:
        with contextlib.ExitStack() as at_end, sweep.lock(), contextlib.closing(Queue(sweep)) as queue:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, queue.stop)
            queue.work(at_end)
    except (OSError, UserError) as error:  # such as a full disk; `sweep resume` goes on. Its runs here train on
        print(printable(f"the queue ends: {error}"), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
