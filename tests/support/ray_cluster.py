"""Ray clusters whose head and nodes are processes of this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import psutil

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
from ray.cluster_utils import Cluster  # reads the environment

__all__ = ["Cluster", "ray_cluster", "raylet_of"]


@contextlib.contextmanager
def ray_cluster() -> Iterator[Cluster]:
    """A head without cores. Its health checks notice a lost node after some 4 s."""
    health = {
        "health_check_period_ms": 1000,
        "health_check_initial_delay_ms": 1000,
        "health_check_failure_threshold": 3,
    }
    started = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": health},
    )
    try:
        yield started
    finally:
        started.shutdown()


def raylet_of(node: Any) -> psutil.Process:
    """The process that starts all others of a node."""
    return psutil.Process(node.all_processes["raylet"][0].process.pid)
