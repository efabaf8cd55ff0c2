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
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import ray
import ray.exceptions

from engine.errors import UserError
from engine.extras.ray.connection import connect, disconnect, elsewhere, is_nodes_fault, node_of, reason_of
from engine.extras.ray.greeting import decode_greeting, difference, greeting
from engine.extras.ray.named_cluster import prepare, reach
from engine.runs.marks import mark_own
from engine.runs.registry import register
from engine.runs.run import Run
from engine.runs.sweep import Sweep, SweepPlan
from engine.runtime.files import write_atomically
from mario_tui.data.format import counted
from mario_tui.extras.sweeps.folder_copy import Follower, write_changes
from mario_tui.extras.sweeps.node import PACKAGE, News, NodeRun, Order
from mario_tui.launch import Plan

_LOOK_S = 1.0
_COPY_S = 30.0
"""Seconds between two copies of a folder that this machine does not see."""
_NODES_S = 2.0
_REACH_S, _MISSES = 2.0, 5
"""Time that the head has to accept a connection, and how often in a row it may fail to."""
_GET_S = 60.0
"""Seconds to get a reply that has come; with checkpoints it is large."""
_STOP_AGAIN_S = 20.0
"""Seconds after which a run that goes on is told once more to stop: its host may have been too busy to answer."""
_SEEN_FILE = "cluster.seen"


@dataclass(frozen=True)
class End:
    """A run has left its node."""

    run: Run
    event: Literal["lost", "refused"] | None = None
    """For the journal of the sweep; None: its host has ended, and its record tells how."""
    reason: str = ""
    counts: bool = True
    """Whether that was a try."""


@dataclass
class _Placed:
    """A run that waits for a node or is on one."""

    run: Run
    start: Plan
    how: str
    """How it is begun, for the log."""
    handle: Any
    reply: Any
    """Reference to what its actor is to answer next; None while nothing is asked."""
    step: str = "greets"
    node: str = ""
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
        self._unfit = dict[str, str]()
        """Nodes with other sources or another version, or which can't start an actor, and what is wrong there."""
        self._refusals = dict[str, set[str]]()
        """By run, the nodes on which its host could not be started."""
        self._is_crowded = False
        """Whether a run has found too little memory, and no other has ended since."""
        self._misses = 0
        self._nodes = dict[str, dict[str, float]]()
        self._nodes_at = self._reached_at = float("-inf")
        self._told = ""

    def has(self, run: Run) -> bool:
        """Return whether a run waits for a node or is on one."""
        return run.name in self._placed

    def places(self, plan: SweepPlan) -> int:
        """Return how many runs may be on the cluster at the same time. Raises `UserError` if no node can be used."""
        if self._is_crowded and self._placed:
            return len(self._placed)
        cores, gpus = plan.threads or 1, self._gpus(str(plan.options.get("device", "auto")))
        free = [
            min(int(node.get("CPU", 0)) // cores, int(node.get("GPU", 0)) if gpus else 2**31)
            for node in self._alive_nodes().values()
        ]
        if not sum(free) and all(each.step == "greets" for each in self._placed.values()):
            if self._unfit:
                raise UserError(f"--ray: {next(iter(self._unfit.values()))}; install the same on every node")
            needed = f"{counted(cores, 'core')}{' and a GPU' * gpus}"
            self._tell_once(f"no node of the cluster has {needed}; the runs wait for one")
        return sum(free) if plan.jobs is None else plan.jobs

    def place(self, run: Run, start: Plan, how: str) -> None:
        """Let Ray find a node for a run, now or when one is free. `how` it is begun is told then."""
        actor = self._class.options(
            num_cpus=start.config.threads or 1, num_gpus=self._gpus(start.config.device), max_restarts=0,
            max_task_retries=0, **elsewhere(self._unfit.keys() | self._refusals.get(run.name, set())),
        ).remote()  # fmt: skip
        seen = self._sweep.path / _SEEN_FILE
        write_atomically(seen, self._seen)  # each time, since another queue may have been about to start
        reply = actor.greet.remote(str(seen), self._seen)
        self._placed[run.name] = _Placed(run, start, how, actor, reply)

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
                del self._placed[end.run.name]
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

    def stop(self, until: float) -> list[End]:
        """Let all runs write their last checkpoints, and take them back. `until`: by CLOCK_MONOTONIC."""
        ends = list[End]()
        while self._placed and time.monotonic() < until:
            for name in [*self._placed]:
                self.stop_run(name, "its sweep was stopped")
            ends += self.look()
            time.sleep(_LOOK_S / 4)
        return ends

    def close(self) -> None:
        disconnect()

    # ------------------------------------------------------------------------------------------ one run

    def _take(self, placed: _Placed, data: Any, now: float) -> End | None:
        """Take a reply, and ask for the next. Returns the run's end if it has come."""
        run, name = placed.run, placed.run.name
        if placed.step == "greets":
            try:
                its = decode_greeting(data[0])
                placed.node, unlike = its.node, difference(its, greeting("", PACKAGE))
            except ValueError:
                placed.node, unlike = node_of(placed.handle), "a node has another version of mario-tui"
            if unlike:
                if placed.node:
                    self._unfit[placed.node] = unlike
                # Where the node has no name, the run may be placed there again.
                return End(run, "lost", f"was not started: {unlike}", counts=not placed.node)
            placed.machine, placed.sees, placed.step = its.machine, data[1], "begins"
            placed.reply = placed.handle.begin.remote(msgspec.msgpack.encode(self._order(placed)))
            return None
        news = msgspec.msgpack.decode(data, type=News)
        if news.problem:
            waits = news.is_crowded and len(self._placed) > 1
            self._is_crowded = waits
            if not waits:
                self._refusals.setdefault(name, set()).add(placed.node)
            why = f"can't be started on {placed.machine}: {news.problem}"
            again = waits or self._has_node(placed)
            return End(run, "lost" if again else "refused", why, counts=not again)
        if news.changes is not None:
            write_changes(placed.run, news.changes)
            if left := news.changes.left_out:
                self._say(f"{name}: not copied from {placed.machine}, too large: {', '.join(left)}"[:500])
        if placed.step == "begins":
            placed.step, placed.copied_at = "trains", now
            self._sweep.note("begun", run)
            register(placed.run)
            mark_own(placed.run.path, placed.start.config.values())
            where = "" if placed.sees else ", which does not see this folder: it is copied"
            self._say(f"{name} started{placed.how}, on {placed.machine}{where}")
        if not news.has_ended:
            return None
        self._is_crowded = False
        if not placed.sees:
            placed.handle.leave.remote()
        return End(run)

    def _order(self, placed: _Placed) -> Order:
        start = placed.start
        return Order(
            # After a copy from a node, its own file names a folder there.
            options={**start.config.options(), "run_dir": str(self._sweep.path)},
            name=placed.run.name,
            checkpoint=None if start.checkpoint is None else start.checkpoint.name,
            annotation=start.annotation,
            notes=start.notes,
            copy=None if start.checkpoint is None or placed.sees else Follower(placed.run).take(),
        )

    def _was_lost(self, placed: _Placed, error: ray.exceptions.RayError) -> End:
        self._is_crowded = False
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(placed.handle)
        if placed.step == "greets" and not is_nodes_fault(error) and (node := node_of(placed.handle)):
            self._unfit[node] = f"node {node[:8]} can't start a process of mario-tui ({reason_of(error)})"
            return End(placed.run, "lost", f"was not started: {self._unfit[node]}", counts=False)
        where = f" on {placed.machine}" if placed.machine else ""
        if is_nodes_fault(error):
            return End(placed.run, "lost", f"was lost{where}: its node does not answer", counts=False)
        return End(placed.run, "lost", f"was lost{where}: {reason_of(error)}")

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

    def _alive_nodes(self) -> dict[str, dict[str, float]]:
        """The resources of each node that can be used, by its ID."""
        now = time.monotonic()
        if not self._misses and now - self._nodes_at >= _NODES_S:
            self._nodes_at = now
            alive = [node for node in ray.nodes() if node["Alive"]]
            self._nodes = {node["NodeID"]: node["Resources"] for node in alive if node["NodeID"] not in self._unfit}
        return self._nodes

    def _has_node(self, placed: _Placed) -> bool:
        """Return whether there is a node for a run, busy or not, that has not refused it."""
        refused, config = self._unfit.keys() | self._refusals[placed.run.name], placed.start.config
        return any(
            node not in refused
            and has.get("CPU", 0) >= (config.threads or 1)
            and has.get("GPU", 0) >= self._gpus(config.device)
            for node, has in self._alive_nodes().items()
        )

    def _gpus(self, device: str) -> int:
        """GPUs of a run with this `--device`."""
        wants = device.startswith("cuda")
        return int(wants or (device == "auto" and any(node.get("GPU", 0) for node in self._alive_nodes().values())))

    def _tell_once(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._say(text)
