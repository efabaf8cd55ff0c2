"""Where the time of each of a run's processes goes, as its panel and the profile show it."""

from __future__ import annotations

from engine.messages import Stages
from engine.monitoring.stages import split, stages
from engine.runners.ledger import Ledger

_ROLES = {"single": "player", "parallel": "worker", "ddp": "rank", "apex": "actor"}


class Splits:
    """Call it for each report, in the leading process: the splits since the last one."""

    def __init__(self, runner: str, ledger: Ledger) -> None:
        role = _ROLES[runner]
        self._ledger = ledger
        self._first = 0 if runner == "apex" else 1  # the member that comes after the leading process
        self._leader = {"apex": "learner", "single": role}.get(runner, f"{role} 0")
        self._names = [f"{role} {index}" for index in range(self._first, ledger.members)]
        self._before = self._rows()

    def __call__(self) -> Stages:
        before, self._before = self._before, self._rows()
        names = (self._leader, *self._names)
        return Stages(
            processes=[split(early, late, name) for name, early, late in zip(names, before, self._before, strict=True)]
        )

    def _rows(self) -> list[list[float]]:
        return [stages.row(), *(row.tolist() for row in self._ledger.stages[self._first :])]
