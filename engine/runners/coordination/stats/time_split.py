"""Where the time of each of a run's processes goes, for the panel and the profile."""

from __future__ import annotations

from engine.config.runners import RUNNERS
from engine.monitoring.time_split import split
from engine.protocol.messages import TimeSplits as TimeSplitsMessage
from engine.runners.shared_state import SharedState
from engine.runtime.stopwatch import stopwatch


class TimeSplits:
    """Call it once per report, in the coordinator: the splits since the last call."""

    def __init__(self, runner: str, shared_state: SharedState) -> None:
        info = RUNNERS[runner]
        self._shared_state = shared_state
        self._first = 0 if info.learner else 1  # the first member that is not the coordinator
        self._coordinator = info.coordinator
        self._names = [f"{info.member} {index}" for index in range(self._first, shared_state.members)]
        self._before = self._rows()

    def __call__(self) -> TimeSplitsMessage:
        before, self._before = self._before, self._rows()
        names = (self._coordinator, *self._names)
        return TimeSplitsMessage(
            processes=[split(early, late, name) for name, early, late in zip(names, before, self._before, strict=True)]
        )

    def _rows(self) -> list[list[float]]:
        return [stopwatch.row(), *(row.tolist() for row in self._shared_state.times[self._first :])]
