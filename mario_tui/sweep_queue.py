"""The queue of a sweep: a process that starts its runs, a few at a time, until all are done.

`python -m mario_tui.sweep_queue FOLDER` outlives the terminal. All it knows is in the sweep's folder, so after a kill
or a reboot another one goes on. On SIGTERM it stops the runs in order, and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

import msgspec

from engine.errors import UserError
from engine.host.client import HostGone, HostProcess, attach
from engine.protocol.commands import Stop
from engine.runs.annotation import Annotation
from engine.runs.checkpoints import committed
from engine.runs.registry import delete_run
from engine.runs.run import Run
from engine.runs.sweep import TRIES, Member, Sweep, SweepPlan, has_begun
from engine.runtime.files import open_regular
from engine.runtime.text import printable
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_table import results_of, setting_text
from mario_tui.launch import make_plan
from mario_tui.sweep_search import next_setting

_LOOK_S = 0.5
"""Time between two looks at the runs."""
_START_S = 30.0


def status_of(run: Run) -> RunStatus | None:
    """Where a run of a sweep is; None if it has not begun."""
    return RunStatus.of_record(run.record()) if has_begun(run) else None


def is_waiting(status: RunStatus | None, tries: int) -> bool:
    """Whether a run that is in this state, and was begun so often, is still to be begun. One that somebody has stopped
    is, once `sweep resume` has forgotten how often that was."""
    if status is RunStatus.STOPPED:
        return tries == 0
    return tries < TRIES and status in (None, RunStatus.FAILED, RunStatus.LOST, RunStatus.DAMAGED)


def stop_runs(sweep: Sweep) -> None:
    """Let all runs of a sweep that train write their last checkpoints and end."""
    for number in range(len(sweep.plan().members)):
        run = sweep.run(number)
        with contextlib.suppress(UserError, HostGone):
            client = attach(run) if has_begun(run) else None
            if client is not None:
                with client:
                    client.send(Stop(reason="its sweep was stopped"))
                    for _ in client.events():
                        pass


def start_queue(sweep: Sweep) -> None:
    """Start the queue of a sweep. Raises `UserError` if it has one, or none can be started."""
    sweep.check_own()
    if sweep.queue_pid() is not None:
        raise UserError(f"{sweep.name}: is running already")
    with open_regular(sweep.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mario_tui.sweep_queue", str(sweep.path)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=sweep.path,
        )  # fmt: skip
    until = time.monotonic() + _START_S
    while sweep.queue_pid() != process.pid and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    if process.poll():
        raise UserError(f"{sweep.name}: its queue ended at once; see {sweep.log_path}")


class Queue:
    """Starts the runs of a sweep. Of a run that fails it goes on from the newest checkpoint, once."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._tries = sweep.tries()
        self._hosts: list[HostProcess] = []
        self._finished = set[str]()
        self._is_stopping = False

    def stop(self, signal_number: int, frame: FrameType | None) -> None:
        """A handler of signals: stop the runs and end."""
        self._is_stopping = True

    def work(self) -> None:
        """Return when nothing is left to start and nothing trains, or after `stop`."""
        while not self._is_stopping:
            plan = self._sweep.plan()  # it may have got more runs
            runs = [self._sweep.run(number) for number in range(len(plan.members))]
            found = [self._status_of(run) for run in runs]
            # A paused run gives its place to the next.
            free = plan.jobs - sum(
                each is not None and each.is_active and each is not RunStatus.PAUSED for each in found
            )
            waiting = [
                number for number, run in enumerate(runs) if is_waiting(found[number], self._tries.get(run.name, 0))
            ]
            if len(waiting) < free and self._add_setting(plan):
                continue
            for number in waiting[: max(0, free)]:
                if self._is_stopping or not self._begin(number, others=free < plan.jobs):
                    break
            if not waiting and not any(each is not None and each.is_active for each in found):
                return
            self._hosts = [host for host in self._hosts if not host.ended]  # and the kernel forgets them
            time.sleep(_LOOK_S)
        stop_runs(self._sweep)

    def _status_of(self, run: Run) -> RunStatus | None:
        """`status_of`; of a run that is finished it is remembered, since there may be thousands."""
        if run.name in self._finished:
            return RunStatus.FINISHED
        status = status_of(run)
        if status is RunStatus.FINISHED:
            self._finished.add(run.name)
        return status

    def _add_setting(self, plan: SweepPlan) -> bool:
        """Add the next setting of a search, if there is to be one."""
        search = plan.search
        results = results_of(self._sweep, plan) if search is not None else []
        if search is None or len(results) >= search.count:
            return False
        setting = next_setting(search, results)
        if setting is None:
            self._say(f"no other setting was found; {len(results)} instead of {search.count}")
            self._sweep.write_plan(
                msgspec.structs.replace(plan, search=msgspec.structs.replace(search, count=len(results)))
            )
            return False
        self._say(f"next: {setting_text(setting)}")
        members = (*plan.members, *(Member(setting, seed) for seed in search.seeds))
        self._sweep.write_plan(msgspec.structs.replace(plan, members=members))
        return True

    def _begin(self, number: int, *, others: bool) -> bool:
        """Start a run, or go on with it. Returns False if it must wait until `others` that train have ended."""
        plan, run = self._sweep.plan(), self._sweep.run(number)
        newest = committed(run)[-1:] if has_begun(run) else []
        try:
            if newest:
                start = make_plan({}, resume=str(run.path))
            else:
                if has_begun(run):
                    delete_run(run)
                values = plan.values(plan.members[number]) | {"run_dir": str(self._sweep.path)}
                tag = Annotation((self._sweep.name[:24].lower().replace(".", "-"),))
                start = replace(make_plan(values, name=run.name), annotation=tag)
            host = start.start()
        except UserError as error:
            if others and "memory" in str(error):
                return False
            self._say(f"{run.name} can't be started: {error}")
            self._count(run, TRIES)
            return True
        self._hosts.append(host)
        self._count(run, self._tries.get(run.name, 0) + 1)
        again = f" again, from {newest[0].name}" if newest else ""
        self._say(f"{run.name} started{again}")
        return True

    def _count(self, run: Run, tries: int) -> None:
        self._tries[run.name] = tries
        self._sweep.write_tries(self._tries)

    def _say(self, text: str) -> None:
        print(printable(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"), flush=True)


def main() -> int:
    sweep = Sweep(Path(sys.argv[1]))
    sweep.check_own()
    queue = Queue(sweep)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, queue.stop)
    with sweep.lock():
        queue.work()
    return 0


if __name__ == "__main__":
    sys.exit(main())
