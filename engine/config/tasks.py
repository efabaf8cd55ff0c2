"""The tasks of a policy: the stages or boards that it plays. Imports nothing heavy: the command line uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.config.stages import stages_of


def tasks_of(metadata: Mapping[str, Any], stage: str | None = None) -> tuple[str, ...]:
    """The tasks of the policy with this metadata: several if it learned several stages, or was distilled from policies
    for several boards. `stage` replaces those of Mario."""
    if metadata["game"] == "mario":
        return stages_of(stage or metadata["stage"])
    return tuple(metadata["board"].split(","))


def rounded_up(episodes: int, metadata: Mapping[str, Any], stage: str | None = None) -> int:
    """At least so many episodes, and equally many of each task."""
    tasks = len(tasks_of(metadata, stage))
    return math.ceil(episodes / tasks) * tasks
