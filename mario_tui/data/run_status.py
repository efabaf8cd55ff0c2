"""The state of a run, as all of mario-tui tells it. Imports nothing of Textual."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from engine.runs.run import ACTIVE, RunRecord


class RunStatus(StrEnum):
    """The states of a run, in the order in which the list of runs sorts them, each with its symbol and its colour."""

    symbol: str
    colour: str

    def __new__(cls, name: str, symbol: str = "", colour: str = "") -> Self:
        self = str.__new__(cls, name)
        self._value_, self.symbol, self.colour = name, symbol, colour
        return self

    RUNNING = "running", "●", "green"
    STARTING = "starting", "◌", "cyan"
    STOPPING = "stopping", "◍", "yellow"
    PAUSED = "paused", "‖", "yellow"
    SILENT = "silent", "…", "red"
    """Its host is alive, but has not reported for some seconds."""
    CONNECTING = "connecting", "◌", "cyan"
    """Its host has not answered yet."""
    UNREACHABLE = "unreachable", "?", "red"
    """Its host is alive, but can't be reached."""
    LOST = "lost", "?", "red"
    """Its host is gone without having told of an end."""
    FAILED = "failed", "✗", "red"
    DAMAGED = "damaged", "!", "red"
    """Its record can't be read."""
    STOPPED = "stopped", "■", "yellow"
    """It ended in order before its steps or episodes were done."""
    FINISHED = "finished", "✓", "green"

    @classmethod
    def of_record(cls, record: RunRecord) -> RunStatus:
        """The state that a run's record tells."""
        return cls(record.told_state)

    @property
    def rank(self) -> int:
        """Its place in the order of states."""
        return list(RunStatus).index(self)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, in whatever way."""
        return not self.is_active

    @property
    def has_failed(self) -> bool:
        """Whether the run has ended, but not in order."""
        return self in (RunStatus.FAILED, RunStatus.LOST, RunStatus.DAMAGED)

    @property
    def is_active(self) -> bool:
        """Whether a host is alive, as far as known."""
        return self in (*ACTIVE, RunStatus.CONNECTING, RunStatus.UNREACHABLE)
