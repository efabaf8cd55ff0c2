"""Details and learning curve of the selected run, shown if the terminal is tall enough."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from engine.config.command_line import command_line
from engine.config.reported_loop import ReportedLoop
from engine.errors import UserError
from engine.runs.sweep import SweepPlan
from engine.runtime.home import home
from engine.runtime.text import printable
from mario_tui.data.format import duration, fraction, number, percent, short
from mario_tui.data.listed import Listed
from mario_tui.data.recorded import recorded_state
from mario_tui.data.sweep_table import commands_of
from mario_tui.widgets.charts.comparison import Comparison, Series, reach_of
from mario_tui.widgets.charts.plot import Plot
from mario_tui.widgets.charts.run_curves import Curves
from mario_tui.widgets.charts.view import ChartView
from mario_tui.widgets.panels.header import state_text

_SETTLE_S = 0.1
"""Delay before reading, so that runs the cursor only passes are not read."""


class Preview(Horizontal):
    """Reads the run's recording when the cursor rests on the run. Hosts write it every half minute; newer points come
    from the run's record."""

    def __init__(self) -> None:
        super().__init__(id="preview")
        self._text, self._chart = (
            Static(id="preview-text", classes="plot"),
            Comparison("Mean return", ChartView(), id="preview-chart"),
        )
        self._listed: Listed | None = None
        self._read: tuple[str, int] = ("", 0)
        """Path of the loaded recording, and its modification time in ns."""
        self._points: list[tuple[float, float]] = []
        """(environment steps, mean return), from the recording and from the records read since."""

        self._chart.can_focus = False

    def compose(self) -> ComposeResult:
        yield self._text
        yield self._chart

    def show(self, listed: Listed | None) -> None:
        """Show a run; None clears the preview."""
        self._listed = listed
        if self.display:
            self._load()

    def on_show(self) -> None:
        self._load()

    def on_plot_moved(self, event: Plot.Moved) -> None:
        event.stop()
        self._chart.repaint()

    @work(exclusive=True, group="preview")
    async def _load(self) -> None:
        await asyncio.sleep(_SETTLE_S)
        listed, text = self._listed, self._text
        if not text.is_attached:  # the app may be leaving
            return
        if listed is None:
            text.update("")
            self._draw([])
            return
        text.update(await asyncio.to_thread(describe, listed), layout=False)  # its size does not depend on the text
        path = listed.run.history_path
        try:
            version = (str(path), path.stat().st_mtime_ns)
        except OSError:  # none written yet
            version = (str(path), 0)
        if version != self._read:
            recorded = await asyncio.to_thread(recorded_state, listed.run)
            seen = self._points if version[0] == self._read[0] else []
            self._read = version
            curves = Curves(recorded.points.items)
            steps = curves.xs("steps", "mean_return")
            points = list(zip(steps, curves.values("mean_return"), strict=True))
            self._points = points + [point for point in seen if point[0] > (steps[-1] if steps else 0)]
        record = listed.record
        if record.mean_return is not None and listed.status.is_active:
            kept = [point for point in self._points if point[0] < record.env_steps]  # a restart goes back
            self._points = [*kept, (float(record.env_steps), record.mean_return)]
        xs = [x for x, _ in self._points]
        self._draw([Series(record.name, 0, steps=xs, seconds=xs, values=[y for _, y in self._points])])

    def _draw(self, series: list[Series]) -> None:
        self._chart.view.reach = reach_of(series, "steps")
        self._chart.show(series)


def describe(listed: Listed) -> Text:
    """Details of a run, in a few lines."""
    record = listed.record
    text = Text(overflow="fold")
    text.append(printable(record.name), style="bold")
    text.append("\n").append_text(state_text(listed.status))
    if record.elsewhere:
        text.append(f"  on {printable(record.elsewhere)}")
    if record.reason:
        text.append(f"  {printable(record.reason)}")
    annotation = listed.annotation
    if annotation.tags:
        text.append(f"\n{printable(' '.join(f'#{tag}' for tag in annotation.tags))}", style="cyan")
    if annotation.note:
        text.append(f"\n{printable(annotation.note)}", style="italic")
    share = fraction(record.env_steps, record.steps)
    of = f" of {short(record.steps)} ({percent(share)})" if record.steps else ""
    text.append(f"\nsteps    {short(record.env_steps)}{of}")
    text.append(f"\nepisodes {short(record.episodes)}, in {duration(record.wall_s)}")
    text.append(f"\nreturn   {number(record.mean_return)}")
    text.append(f"\nrunner   {printable(record.runner)}")
    try:
        described = listed.run.description() if listed.sweep is None else listed.sweep.plan
        if isinstance(described, SweepPlan):
            text.append("".join(f"\n{command}" for command in commands_of(described)), style="dim")
        elif isinstance(described, ReportedLoop):
            options = "  ".join(f"{name}={value}" for name, value in described.options().items())
            text.append(f"\n{options}", style="dim")
        else:
            text.append(f"\n{command_line(described)}", style="dim")
    except UserError as error:
        text.append(f"\n{error}", style="red")
    return text.append(f"\n{printable(_short_path(listed.run.path))}", style="dim")


def _short_path(path: Path) -> str:
    """The path relative to the current or home folder, if possible."""
    for folder, sign in ((Path.cwd, ""), (home, "~/")):
        with contextlib.suppress(OSError):  # the current folder may have been deleted
            if path.is_relative_to(folder()):
                return f"{sign}{path.relative_to(folder())}"
    return str(path)
