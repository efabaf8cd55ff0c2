"""The state of a run as screens and `mario-tui runs` show it. Imports nothing of Textual."""

from __future__ import annotations

from typing import Literal

from engine.protocol.messages import State
from engine.runs.run import RunRecord

Standing = State | Literal["stopped", "connecting", "unreachable"]
"""A run's state; `stopped` is a finished run with steps left, the other two are a dashboard's view of an active run."""


def standing(record: RunRecord) -> Standing:
    """The state to show for a run's record."""
    return end_state(record.env_steps, record.steps, record.reason) if record.state == "finished" else record.state


def end_state(env_steps: int, steps: int, reason: str) -> Literal["finished", "stopped"]:
    """`stopped` if a run ended before its steps or episodes were done."""
    return "finished" if env_steps >= steps or is_complete(reason) else "stopped"


def is_complete(reason: str) -> bool:
    """Whether a run ended because its steps or its episodes are done."""
    return reason.endswith("are done")
