"""A run in a comparison: what its host or its recording tells, and the lines of its charts."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import UserError
from engine.runs.run import ACTIVE, Run, RunRecord
from mario_tui.data.differences import Options, same_but_seed
from mario_tui.data.feed import Feed, Snapshot
from mario_tui.data.standing import Standing, standing
from mario_tui.widgets.charts.comparison import Series
from mario_tui.widgets.charts.run_curves import Curves

EVALUATION = "evaluation"
"""The metric that evaluations measure; all others are fields of `Point`."""


class FollowedRun:
    """Reads the options at once, and everything else when `refresh` and `update` are called."""

    def __init__(self, run: Run, colour: int) -> None:
        self.run, self.colour = run, colour
        self.options = _options(run)
        self.configuration = same_but_seed(self.options) or (("", str(run.path)),)
        """Equal for runs that are averaged. A run whose options can't be read stays alone."""
        self.seen = Snapshot()
        self.problem = ""
        """Why its host could not be reached, until it is."""
        self._curves = Curves()
        self._series: dict[str, Series] = {}
        self._feed = Feed()
        self._was_live = False
        """Whether this feed has had a host, so that what it tells is newer than the record."""
        self._recorded: Standing = "connecting"
        self._host: int | None = None
        """Process ID of the newest host, 0 if there is none; None until a record has been read."""
        self._shown: object = None

    def connect(self) -> None:
        """Follow the run; see `Feed.connect`."""
        self._feed.connect(self.run)

    def close(self) -> None:
        self._feed.close()

    @property
    def standing(self) -> Standing:
        """What the host says or has said last; without one, what the record says, as in the list of runs."""
        return (self.seen.standing if self._was_live else None) or self._recorded

    def refresh(self) -> bool:
        """Take the newest snapshot; returns whether anything that is shown has changed."""
        if self._host is None:
            return False
        before, self.seen = self.seen, self._feed.snapshot()
        self._was_live |= self.seen.connected
        same = self.seen.points is before.points and self.seen.others is before.others
        if self.seen.hello is not None and not same:  # until a new host has answered, the old lines stay
            self._curves, self._series = Curves(self.seen.points, self.seen.others), {}
        if self.seen.problem or self.seen.connected:
            self.problem = self.seen.problem
        shown = (self._curves, self.standing, self.problem)
        changed, self._shown = shown != self._shown, shown
        return changed

    def update(self, record: RunRecord | None) -> None:
        """Take the newest record, None if the run is gone. If another host has the run now, follow that one; try again
        if the host did not answer before, or has dropped this client."""
        if self.seen.connected:
            return
        host = record.pid if record is not None and record.state in ACTIVE else 0
        failed = self.seen.hello is None and self.seen.problem
        dropped = self._was_live and self.seen.end is None and host
        if dropped or (failed and (host or self._host)) or (host and self._host not in (None, host)):
            self._feed.close()
            self._feed, self.seen, self._was_live = Feed(), Snapshot(), False
            self.connect()
        self._host = host
        self._recorded = "lost" if record is None else standing(record)
        claims_an_answer = self._recorded in ACTIVE and self._recorded not in ("starting", "silent")
        if claims_an_answer:  # which does not come
            gone = self.seen.hello is not None or self.problem
            self._recorded = "unreachable" if gone else "connecting"

    def series(self, metric: str) -> Series:
        """The run's line in a chart; the same object until there are new data."""
        if metric not in self._series:
            self._series[metric] = self._line(metric)
        return self._series[metric]

    def _line(self, metric: str) -> Series:
        curves = self._curves
        if metric != EVALUATION:
            steps, seconds = curves.xs("steps", metric), curves.xs("time", metric)
            return Series(self.run.name, self.colour, steps, seconds, curves.values(metric))
        if not curves.points:  # the time of an evaluation is unknown
            return Series(self.run.name, self.colour)
        at = [float(event.env_steps) for event in curves.evaluations]
        seconds = [curves.x_of(step, "time") for step in at]
        return Series(self.run.name, self.colour, at, seconds, [event.mean_return for event in curves.evaluations])


def read_records(runs: Sequence[Run]) -> list[RunRecord | None]:
    """The record of each run; None if the run is gone."""
    records: list[RunRecord | None] = []
    for run in runs:
        try:
            records.append(run.record())
        except UserError:
            records.append(None)
    return records


def _options(run: Run) -> Options:
    try:
        return run.config().options()
    except UserError:
        return {}
