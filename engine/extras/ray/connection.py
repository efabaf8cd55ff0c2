"""This process's connection to a Ray cluster, and what Ray's errors say. Imports Ray, so the environment must be
prepared first (`engine.extras.ray.named_cluster.prepare`)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from engine.errors import UserError
from engine.runtime.processes import handling
from engine.runtime.threads import CLOSE_S, call_within

_NODE_LABEL = "ray.io/node-id"


def connect(address: str, **options: Any) -> None:
    """Connect to a cluster, or start a local one with these options. Raises `UserError` in one line."""
    # Ray's workers import from the driver's working directory: that is the run's folder, which may come from someone
    # else.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}  # Ray replaces them
    with contextlib.chdir(Path.cwd().anchor), handling(handlers):
        try:
            ray.init(
                address=address,
                namespace=f"mario-tui-{os.getpid()}",
                configure_logging=False,
                log_to_driver=False,
                **options,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise UserError(f"--ray: {address}: {lines[0]}") from None


def disconnect() -> None:
    """Leave the cluster; Ray then ends the actors of this process. It hangs if the head is gone."""
    call_within(CLOSE_S, ray.shutdown)


def elsewhere(nodes: Collection[str]) -> dict[str, Any]:
    """Options of an actor that is to be on none of these nodes."""
    return {"label_selector": {_NODE_LABEL: f"!in({','.join(nodes)})"}} if nodes else {}


def own_node() -> str:
    """The ID of the node that this process is on."""
    return str(ray.get_runtime_context().get_node_id())


def node_of(actor: Any) -> str:
    """The ID of the node on which an actor is or was; empty if it is unknown. Also of one that could not start."""
    with contextlib.suppress(Exception):  # Ray has no public way to ask without its dashboard
        return str(ray._private.state.actors(actor._actor_id.hex())["Address"]["NodeID"])
    return ""


def reason_of(error: ray.exceptions.RayError) -> str:
    """Why an actor was lost, in one line."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}".splitlines()[0]
    # Ray lists fields of the error in lines that begin with a tab.
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    return (lines or [type(error).__name__])[-1].strip()[:300]


def is_nodes_fault(error: ray.exceptions.RayError) -> bool:
    """Return whether the node of an actor may be gone, and not only its process."""
    lost = ray.exceptions.ActorUnavailableError, ray.exceptions.NodeDiedError, ray.exceptions.GetTimeoutError
    return isinstance(error, lost) or "node has died" in str(error) or "node was terminated" in str(error)
