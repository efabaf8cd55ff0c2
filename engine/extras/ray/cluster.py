"""This process's connection to a Ray cluster, and the cluster's nodes: their cores, their load, and whether the head
still answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from engine.extras.ray.connection import connect, disconnect, own_node
from engine.extras.ray.head import HeadWatch, Nodes
from engine.extras.ray.keeper import keep_cluster
from engine.extras.ray.named_cluster import take_folder
from engine.monitoring.machine import NodeSampler
from engine.protocol.framing import HopelessError
from engine.protocol.messages import Failed, Machine, decode_machine
from engine.runners.links import ParentLink

GET_S = 10.0
"""Seconds to get a reply that has come."""
_LOAD_EVERY_S = 3.0
_WITHOUT_HEAD = "resume with --ray none or on another cluster"
_HEALTH = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}
"""How soon a local cluster notices a lost node; with Ray's defaults after 15 s."""


class RayCluster:
    """A cluster with room for `actors` actors, each on a core. `address`: as `ray.init` takes it."""

    def __init__(self, address: str, actors: int, link: ParentLink) -> None:
        self._link = link
        self._monitors: dict[str, _Monitor] = {}
        self._looked_at = float("-inf")
        self.unfit: list[str] = []
        """Nodes with other sources or another version."""
        if address == "local":
            folder, lock = take_folder()
            keep_cluster(folder, lock)
            link.log(f"Ray: the cluster's files are in {folder}")
            connect(address, include_dashboard=False, _system_config=_HEALTH, _temp_dir=str(folder))
        else:
            connect(address)
        self._head = HeadWatch(ray.get_runtime_context().gcs_address, _nodes, self._head_is_gone)
        nodes, cores = len(self._head.seen.cores_of), int(self._head.seen.cores)
        link.log(f"Ray: {nodes} node{'s' if nodes > 1 else ''} with {cores} cores")
        if cores < actors:
            link.log(f"{actors - cores} of {actors} actors wait for a core", "warning")
        self._head.start()

    @property
    def has_free_core(self) -> bool:
        return self._head.seen.free_cores >= 1

    @property
    def taken_cores(self) -> int:
        return int(self._head.seen.cores - self._head.seen.free_cores)

    def check_head(self, now: float, stall_s: float) -> None:
        """Raises `HopelessError` if the head does not answer. `stall_s`: see `HeadWatch.is_silent`."""
        if self._head.is_silent(now, stall_s):
            raise HopelessError(f"the head of the Ray cluster does not answer; {_WITHOUT_HEAD}")

    def node_with_room(self, used: Sequence[str], suspect: str) -> str:
        """The node, other than `suspect`, with the most cores that are not `used`; empty if there is none."""
        return self._head.seen.node_with_room(used, {suspect, *self.unfit})

    def sample_load(self, now: float, nodes: Iterable[str]) -> None:
        """Ask those of the nodes that are not this machine for their load, once every few seconds."""
        if now - self._looked_at < _LOAD_EVERY_S:
            return
        self._looked_at = now
        others = {*nodes} - {"", own_node()}
        for gone in self._monitors.keys() - others:
            del self._monitors[gone]
        for node in sorted(others - self._monitors.keys()):
            self._monitors[node] = _Monitor(node)
        for monitor in self._monitors.values():
            monitor.look()

    def machines(self) -> list[Machine]:
        """Their newest loads."""
        return [each.newest for each in self._monitors.values() if each.newest is not None]

    def close(self) -> None:
        if self._head.close():
            disconnect()

    def _head_is_gone(self) -> None:
        """End this process with one clear failure. Ray itself would retry for a minute, and then end it silently."""
        reason = f"the head of the Ray cluster at {self._head.address} is gone; {_WITHOUT_HEAD}"
        self._link.send(Failed(reason=reason, final=True))
        os._exit(1)


class _Monitor:
    """Samples the load of one node."""

    def __init__(self, node: str) -> None:
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        sampler: Any = ray.remote(NodeSampler)
        self._handle = sampler.options(num_cpus=0, scheduling_strategy=strategy).remote()
        self._reply = self._handle.sample.remote()
        self.newest: Machine | None = None

    def look(self) -> None:
        """Take the newest sample, if it has come, and ask for the next."""
        ready, _ = ray.wait([self._reply], timeout=0)
        if ready:
            try:
                self.newest = decode_machine(ray.get(self._reply, timeout=GET_S))
            except (ray.exceptions.RayError, ValueError, TypeError):  # gone, perhaps with its node
                self.newest = None
            self._reply = self._handle.sample.remote()


def _nodes() -> Nodes:
    cores_of = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]}
    return Nodes(time.monotonic(), ray.available_resources().get("CPU", 0.0), cores_of)
