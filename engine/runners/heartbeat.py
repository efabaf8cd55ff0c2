"""How soon a member of a run must give its next heartbeat."""

from __future__ import annotations

from engine.config.run_config import RunConfig

HEARTBEAT_S = 4.0
"""Seconds between two heartbeats."""
FIRST_S = 15.0
"""The same for the first step and the first update, in which devices load their libraries; kernels are compiled before
(`engine.runners.rehearsal`). Must be less than the host's own limit (`engine.runners.watchdog.SILENCE_LIMIT_S`), since
a coordinator may wait for this process."""
_SAMPLE_S = 0.005
"""For each sample of an update: about twenty times what one core needs."""


def step_s(config: RunConfig) -> float:
    """Upper limit for the seconds between two steps of a member."""
    return HEARTBEAT_S + (config.parallel_envs if config.game_info.starts_slowly(config) else 0)


def update_s(batch_size: int) -> float:
    """Upper limit for the seconds that an update takes."""
    return HEARTBEAT_S + _SAMPLE_S * batch_size
