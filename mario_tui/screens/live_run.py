"""A run in a comparison: what its host or its recording tells, and the lines of its charts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from engine.errors import UserError
from engine.protocol.metrics import own_metric
from engine.runs.run import Run, read_annotation
from mario_tui.data.differences import matches, options_of, same_but_seed, text_of
from mario_tui.data.feed import Allowance, Feed, read_record
from mario_tui.widgets.charts.chart import Curves
from mario_tui.widgets.charts.comparison import Series

EVALUATION = "evaluation"
"""The metric that evaluations measure; all others are fields of `Point`, or numbers that a loop has named."""
OWN = own_metric("").tag
"""What these begin with, since they may have the name of another metric."""


async def read_again(runs: Sequence[LiveRun]) -> None:
    """Read the records of those without a host: one may have been resumed, or deleted."""
    away = [live for live in runs if not live.seen.connected]
    records = await asyncio.to_thread(lambda: [read_record(live.run) for live in away])
    for live, record in zip(away, records, strict=True):
        live.feed.update(record)


async def connect(runs: Sequence[LiveRun]) -> None:
    """Begin to follow runs: in a thread, because starting one waits for the others."""

    def begin() -> None:
        for live in runs:
            live.feed.connect()

    await asyncio.to_thread(begin)


class LiveRun:
    """Reads options and record at once, and everything else when `refresh` and `update` are called."""

    def __init__(self, run: Run, colour: int, allowance: Allowance) -> None:
        self.run, self.colour = run, colour
        options = options_of(run)
        self.options = options if allowance.may_keep(run, "options", len(str(options))) else {}
        self.configuration = same_but_seed(self.options) or (("", str(run.path)),)
        """Equal for runs that are averaged. A run whose options can't be read stays alone."""
        self.feed = Feed(run, allowance=allowance)
        record = read_record(run)
        self._text = run.name if isinstance(record, UserError) else text_of(run, record, read_annotation(run))
        self.feed.update(record)
        self.seen = self.feed.snapshot()
        self._curves = Curves()
        self._series: dict[str, Series] = {}
        self._shown: object = None

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether the run matches a filter."""
        return matches(words, f"{self._text} {self.seen.status}", lambda: self.options)

    def refresh(self) -> bool:
        """Take the newest snapshot; returns whether anything that is shown has changed."""
        before, self.seen = self.seen, self.feed.snapshot()
        same = self.seen.points is before.points and self.seen.others is before.others
        if self.seen.hello is not None and not same:  # until a new host has answered, the old lines stay
            self._curves, self._series = Curves(self.seen.points, self.seen.others), {}
        shown = (self._curves, self.seen.status, self.seen.problem)
        changed, self._shown = shown != self._shown, shown
        return changed

    @property
    def evaluated(self) -> float | None:
        """The mean return of the best evaluation; None without one."""
        best = self._curves.best
        return best.mean_return if best is not None and math.isfinite(best.mean_return) else None

    @property
    def is_reported(self) -> bool:
        """Return whether a loop outside the program tells of it, and has."""
        return self.seen.hello is not None and self.seen.hello.obeys is not None and bool(self._curves.points)

    @property
    def own(self) -> list[str]:
        """The metrics of the numbers that its loop has named."""
        return [f"{OWN}{name}" for name in self._curves.own]

    def series(self, metric: str) -> Series:
        """The run's line in a chart; the same object until there are new data."""
        series = self._series  # a thread may replace it by an empty one
        if metric not in series:
            series[metric] = self._line(metric)
        return series[metric]

    def _line(self, metric: str) -> Series:
        curves = self._curves
        seed = self.options.get("seed")
        if metric != EVALUATION:
            metric = metric.removeprefix(OWN)
            steps, seconds = tuple(curves.xs("steps", metric)), tuple(curves.xs("time", metric))
            return Series(self.run.name, self.colour, steps, seconds, tuple(curves.values(metric)), seed=seed)
        if not curves.points:  # the time of an evaluation is unknown
            return Series(self.run.name, self.colour)
        at = tuple(float(event.env_steps) for event in curves.evaluations)
        seconds = tuple(curves.x_of(step, "time") for step in at)
        returns = tuple(event.mean_return for event in curves.evaluations)
        return Series(self.run.name, self.colour, at, seconds, returns, seed=seed)
