"""Places the runs of a sweep, each as a whole, on the nodes of a Ray cluster.

The queue is Ray's driver. Each run has an actor there, which holds its cores, and a GPU if it uses one, starts the
run's host beside it, and tells every second how far that is. When its actor is gone, the host stops in order, unless
Ray was faster and has killed it; and Ray ends the actors of a queue that is gone. So nothing trains without its queue.

Where a node sees the sweep's folder, its runs work there. On another one they work in a folder of the node's cache,
which is copied back while they train: the record every second, files and checkpoints every half minute, and all,
with the folders of trackers, at the end.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import ray
import ray.exceptions

from engine.config.ray_cluster import prepare, reach
from engine.config.ray_connection import connect, elsewhere, is_nodes_fault, reason_of
from engine.config.reading import make_config
from engine.errors import UserError
from engine.host.client import HostGone, HostProcess, attach
from engine.monitoring.memory_budget import TooLittleMemory
from engine.protocol.commands import Stop
from engine.protocol.greeting import decode_greeting, difference, greeting
from engine.runs.annotation import Annotation
from engine.runs.folder_copy import Changes, Follower, What, write_changes
from engine.runs.registry import register
from engine.runs.run import Run
from engine.runs.sweep import Sweep, SweepPlan
from engine.runs.trust import mark_own
from engine.runtime.files import read_bounded, write_atomically
from engine.runtime.home import program_folder
from mario_tui.data.run_status import RunStatus
from mario_tui.launch import Plan

_LOOK_S = 1.0
_COPY_S = 30.0
"""Seconds between two copies of a folder that this machine does not see."""
_NODES_S = 2.0
_REACH_S, _MISSES = 2.0, 5
"""Time that the head has to accept a connection, and how often in a row it may fail to."""
_GET_S = 60.0
"""Seconds to get a reply that has come; with checkpoints it is large."""
_CLOSE_S = 5.0
_STOP_AGAIN_S = 20.0
"""Seconds after which a run that goes on is told once more to stop: its host may have been too busy to answer."""
_SEEN_FILE = "cluster.seen"


class _Order(msgspec.Struct, frozen=True):
    """What a node is to run."""

    options: dict[str, Any]
    """As in the run's `config.toml`; its `run_dir` is the sweep's folder."""
    name: str
    checkpoint: str | None
    """Its name, to resume from it; None: a new run."""
    annotation: Annotation | None
    notes: tuple[tuple[str, str], ...]
    copy: Changes | None
    """What the run has so far, for a node that does not see the sweep's folder."""


class _News(msgspec.Struct, frozen=True):
    """What a node tells of its run."""

    problem: str = ""
    """Why its host could not be started."""
    is_crowded: bool = False
    """Whether too little memory is free for it."""
    has_ended: bool = False
    changes: Changes | None = None


class NodeRun:
    """A run on a node, wherever that is; an actor of Ray."""

    def greet(self, seen: str, content: bytes) -> tuple[bytes, bool]:
        """What is installed here, and whether the file at the path `seen` can be seen, by its content."""
        self._sees = False
        with contextlib.suppress(OSError):
            self._sees = read_bounded(Path(seen), len(content)) == content
        return msgspec.msgpack.encode(greeting(ray.get_runtime_context().get_node_id())), self._sees

    def begin(self, order: bytes) -> bytes:
        """Start the run's host."""
        wanted = msgspec.msgpack.decode(order, type=_Order)
        try:
            config = make_config(wanted.options)
            folder = Path(config.run_dir) if self._sees else _own_folder()
            self._run = run = Run(folder / wanted.name)
            self._follower = None if self._sees else Follower(run)
            if wanted.copy is not None:
                write_changes(run, wanted.copy)
            if self._follower is not None:
                self._follower.take()  # what the copy has already
            plan = Plan(config.changed(run_dir=str(folder)), name=wanted.name, notes=wanted.notes)
            if wanted.checkpoint is None:
                plan = replace(plan, annotation=wanted.annotation)
            else:
                plan = replace(plan, run=run, checkpoint=run.path / wanted.checkpoint)
            self._host: HostProcess = plan.start(foreground=True)
        except (OSError, UserError) as error:
            news = _News(problem=str(error), is_crowded=isinstance(error, TooLittleMemory))
            return msgspec.msgpack.encode(news)
        return msgspec.msgpack.encode(_News(changes=None if self._follower is None else self._follower.take("files")))

    def look(self, with_files: bool) -> bytes:
        """How far the run is."""
        ended = self._host.ended
        what: What = "all" if ended else "files" if with_files else "record"
        changes = None if self._follower is None else self._follower.take(what)
        return msgspec.msgpack.encode(_News(has_ended=ended, changes=changes))

    def stop(self, reason: str) -> None:
        with contextlib.suppress(UserError, HostGone):
            client = attach(self._run)
            if client is not None:
                with client:
                    client.send(Stop(reason=reason))

    def leave(self) -> None:
        """Remove the folder of a run that has ended and was copied."""
        if not self._sees:
            shutil.rmtree(self._run.path.parent, ignore_errors=True)


def _own_folder() -> Path:
    """A folder for the run of this process; those of earlier ones, which were killed, are removed."""
    parent = program_folder("CACHE") / "sweeps"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    machine = socket.gethostname()  # several may share the cache
    for left in parent.iterdir():
        with contextlib.suppress(OSError, ValueError):  # another process may be removing it, or it is none of ours
            pid = int(left.suffix[1:]) if left.stem == machine else -1
            is_over = pid == os.getpid() or (pid > 0 and not psutil.pid_exists(pid))
            if is_over and not any(Run(run).is_alive() for run in left.iterdir()):
                shutil.rmtree(left, ignore_errors=True)
    folder = parent / f"{machine}.{os.getpid()}"
    folder.mkdir()
    return folder


@dataclass(frozen=True)
class End:
    """A run has left its node."""

    name: str
    reason: str = ""
    """Why it was lost or could not be started; empty: its host has ended."""
    again: bool = False
    """Whether it is to be begun again."""
    counts: bool = True
    """Whether it has used up a try."""


@dataclass
class _Placed:
    """A run that waits for a node or is on one."""

    run: Run
    start: Plan
    handle: Any
    reply: Any
    """Reference to what its actor is to answer next; None while nothing is asked."""
    step: str = "greets"
    machine: str = ""
    sees: bool = False
    asked_at: float = 0.0
    copied_at: float = 0.0
    told_at: float = float("-inf")
    """CLOCK_MONOTONIC when it was last told to stop."""


class Cluster:
    """The nodes of a cluster, and the runs on them. `say` writes a line into the sweep's log.

    Raises `UserError` if there is no cluster to join.
    """

    def __init__(self, sweep: Sweep, plan: SweepPlan, say: Callable[[str], None]) -> None:
        self._sweep, self._say = sweep, say
        self._address = prepare(plan.ray)
        sys.stdout = io.StringIO()  # there Ray prints a page on each node that is lost
        connect(self._address)
        self._seen = secrets.token_bytes(16)
        self._class: Any = ray.remote(NodeRun)
        self._placed = dict[str, _Placed]()
        self._lost = set[str]()
        """Runs whose node was lost: nobody has stopped them, whatever their records say."""
        self._unfit = dict[str, str]()
        """Nodes with other sources or another version, and what is different."""
        self._is_crowded = False
        """Whether a run has found too little memory, and no other has ended since."""
        self._misses = 0
        self._nodes: list[dict[str, float]] = []
        self._nodes_at = self._reached_at = float("-inf")
        self._told = ""

    def status(self, name: str, status: RunStatus | None) -> RunStatus | None:
        """The status of a run, whose own files say `status`."""
        if name in self._placed:  # its record may be on the way, or be dated by another clock
            return status if status is not None and status.is_active else RunStatus.STARTING
        return RunStatus.LOST if name in self._lost and status is RunStatus.STOPPED else status

    def places(self, plan: SweepPlan) -> int:
        """How many runs may be on the cluster at the same time. Raises `UserError` if no node can be used."""
        if self._is_crowded and self._placed:
            return len(self._placed)
        cores, gpus = plan.threads or 1, self._gpus(str(plan.options.get("device", "auto")))
        free = [
            min(int(node.get("CPU", 0)) // cores, int(node.get("GPU", 0)) if gpus else 2**31)
            for node in self._alive_nodes()
        ]
        if not sum(free) and all(each.step == "greets" for each in self._placed.values()):
            if self._unfit:
                raise UserError(f"--ray: {next(iter(self._unfit.values()))}; install the same on every node")
            needed = f"{cores} core{'s' * (cores > 1)}{' and a GPU' * gpus}"
            self._tell_once(f"no node of the cluster has {needed}; the runs wait for one")
        return sum(free) if plan.jobs is None else plan.jobs

    def place(self, run: Run, start: Plan) -> None:
        """Let Ray find a node for a run, now or when one is free."""
        actor = self._class.options(
            num_cpus=start.config.threads or 1, num_gpus=self._gpus(start.config.device), max_restarts=0,
            max_task_retries=0, **elsewhere(self._unfit),
        ).remote()  # fmt: skip
        seen = self._sweep.path / _SEEN_FILE
        write_atomically(seen, self._seen)  # each time, since another queue may have been about to start
        reply = actor.greet.remote(str(seen), self._seen)
        self._placed[run.name] = _Placed(run, start, actor, reply)

    def look(self) -> list[End]:
        """Take what the nodes have told. Raises `UserError` if the cluster's head is gone."""
        self._check_head()
        now, ends = time.monotonic(), list[End]()
        awaited = {each.reply: each for each in self._placed.values() if each.reply is not None}
        ready, _ = ray.wait([*awaited], num_returns=len(awaited), timeout=0) if awaited else ([], [])
        for reply in ready:
            placed = awaited[reply]
            placed.reply = None
            try:
                end = self._take(placed, ray.get(reply, timeout=_GET_S), now)
            except ray.exceptions.RayError as error:
                end = self._was_lost(placed, error)
            if end is not None:
                ends.append(end)
                del self._placed[end.name]
        for placed in self._placed.values():
            if placed.step == "trains" and placed.reply is None and now - placed.asked_at >= _LOOK_S:
                copies = now - placed.copied_at >= _COPY_S
                placed.asked_at, placed.copied_at = now, now if copies else placed.copied_at
                placed.reply = placed.handle.look.remote(copies)
        return ends

    def stop_run(self, name: str, reason: str) -> None:
        """Let a run write its last checkpoint and end. To be called until it has ended."""
        placed = self._placed.get(name)
        if placed is None:
            return
        if placed.step == "greets":
            ray.kill(placed.handle)
            del self._placed[name]
        elif placed.step == "trains" and time.monotonic() - placed.told_at > _STOP_AGAIN_S:
            placed.told_at = time.monotonic()
            placed.handle.stop.remote(reason)

    def stop(self, until: float) -> None:
        """Let all runs write their last checkpoints, and take them back. `until`: by CLOCK_MONOTONIC."""
        while self._placed and time.monotonic() < until:
            for name in [*self._placed]:
                self.stop_run(name, "its sweep was stopped")
            self.look()
            time.sleep(_LOOK_S / 4)

    def close(self) -> None:
        """Disconnect; Ray then ends the actors. In a thread, because it may wait for a head that is gone."""
        closing = threading.Thread(target=ray.shutdown, name="ray shutdown", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    # ------------------------------------------------------------------------------------------ one run

    def _take(self, placed: _Placed, data: Any, now: float) -> End | None:
        """Take a reply, and ask for the next. Returns the run's end if it has come."""
        name = placed.run.name
        if placed.step == "greets":
            its = decode_greeting(data[0])
            if unlike := difference(its, greeting()):
                self._unfit[its.node] = unlike
                return End(name, f"was not started: {unlike}", again=True, counts=False)
            placed.machine, placed.sees, placed.step = its.machine, data[1], "begins"
            placed.reply = placed.handle.begin.remote(msgspec.msgpack.encode(self._order(placed)))
            return None
        news = msgspec.msgpack.decode(data, type=_News)
        if news.problem:
            waits = news.is_crowded and len(self._placed) > 1
            self._is_crowded = waits
            why = f"can't be started on {placed.machine}: {news.problem}"
            return End(name, why, again=waits, counts=not waits)
        if news.changes is not None:
            write_changes(placed.run, news.changes)
            if left := news.changes.left_out:
                self._say(f"{name}: not copied from {placed.machine}, too large: {', '.join(left)}"[:500])
        if placed.step == "begins":
            placed.step, placed.copied_at = "trains", now
            register(placed.run)
            mark_own(placed.run, placed.start.config)
            checkpoint = placed.start.checkpoint
            anew = " again, from the beginning" if name in self._lost else ""
            how = f" again, from {checkpoint.name}" if checkpoint else anew
            self._lost.discard(name)
            where = "" if placed.sees else ", which does not see this folder: it is copied"
            self._say(f"{name} started{how}, on {placed.machine}{where}")
        if not news.has_ended:
            return None
        self._is_crowded = False
        if not placed.sees:
            placed.handle.leave.remote()
        return End(name)

    def _order(self, placed: _Placed) -> _Order:
        start = placed.start
        return _Order(
            # After a copy from a node, its own file names a folder there.
            options={**start.config.options(), "run_dir": str(self._sweep.path)},
            name=placed.run.name,
            checkpoint=None if start.checkpoint is None else start.checkpoint.name,
            annotation=start.annotation,
            notes=start.notes,
            copy=None if start.checkpoint is None or placed.sees else Follower(placed.run).take(),
        )

    def _was_lost(self, placed: _Placed, error: ray.exceptions.RayError) -> End:
        self._lost.add(placed.run.name)
        self._is_crowded = False
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(placed.handle)
        where = f" on {placed.machine}" if placed.machine else ""
        if is_nodes_fault(error):
            return End(placed.run.name, f"was lost{where}: its node does not answer", again=True, counts=False)
        return End(placed.run.name, f"was lost{where}: {reason_of(error)}", again=True)

    # ------------------------------------------------------------------------------------------ the cluster

    def _check_head(self) -> None:
        now = time.monotonic()
        if now - self._reached_at < _REACH_S:
            return
        self._reached_at = now
        try:
            reach(self._address, _REACH_S)
            self._misses = 0
        except OSError:
            self._misses += 1
        if self._misses >= _MISSES:
            raise UserError(f"the head of the Ray cluster at {self._address} is gone; sweep resume goes on")

    def _alive_nodes(self) -> list[dict[str, float]]:
        """The resources of each node that can be used."""
        now = time.monotonic()
        if not self._misses and now - self._nodes_at >= _NODES_S:
            self._nodes_at = now
            alive = [node for node in ray.nodes() if node["Alive"]]
            self._nodes = [node["Resources"] for node in alive if node["NodeID"] not in self._unfit]
        return self._nodes

    def _gpus(self, device: str) -> int:
        """GPUs of a run with this `--device`."""
        wants = device.startswith("cuda")
        return int(wants or (device == "auto" and any(node.get("GPU", 0) for node in self._alive_nodes())))

    def _tell_once(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._say(text)
