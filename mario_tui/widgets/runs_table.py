"""The table of runs on the home screen, with a filter; and, if the terminal is tall enough, details and learning curve
of the selected run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from engine.config.command_line import command_line
from engine.config.reading import ReportedLoop
from engine.errors import UserError
from engine.runs.run import Run
from engine.runtime.files import home
from engine.runtime.text import printable
from mario_tui.data.differences import matches, options_of, text_of, words_of
from mario_tui.data.feed import recorded_state
from mario_tui.data.format import (
    duration,
    fitted,
    fraction,
    judged_best,
    judged_label,
    judged_number,
    judged_result,
    moment,
    number,
    outcome_of_record,
    percent,
    result_text,
    short,
    within,
)
from mario_tui.data.listed import Listed
from mario_tui.widgets.base.marked_table import GAP, MARK_WIDTH, Column, MarkedTable, right
from mario_tui.widgets.charts.axes import ChartView
from mario_tui.widgets.charts.chart import Curves
from mario_tui.widgets.charts.comparison import Comparison, Series, reach_of
from mario_tui.widgets.charts.plot import Plot
from mario_tui.widgets.panels.run import state_text


def _steps(listed: Listed) -> Text:
    of = f"/{short(listed.record.steps)}" if listed.record.steps else ""
    return right(f"{short(listed.record.env_steps)}{of}", 11)


def _name(listed: Listed) -> Text:
    machine = listed.record.elsewhere
    return Text.assemble(listed.label, (printable(f" @{machine}") if machine else "", "dim"))


def _mean(listed: Listed) -> float:
    mean = listed.record.mean_return
    return float("-inf") if mean is None else mean


def _result(listed: Listed) -> Text:
    """The result of a finished run; of others the best evaluation so far, and the word for it."""
    record, outcome = listed.record, outcome_of_record(listed.record)
    shown = judged_number(outcome)
    if record.result is not None and record.result.episodes:
        return right(within(judged_result(outcome, record.result), shown), _RESULT_WIDTH)
    found = right("–" if record.best is None else f"best {shown(judged_best(outcome, record.best))}", _RESULT_WIDTH)
    found.stylize("dim")
    return found


def _reached(listed: Listed) -> float:
    """Return what `_result` shows."""
    result, best, outcome = listed.record.result, listed.record.best, outcome_of_record(listed.record)
    if result is not None and (reached := judged_result(outcome, result)) is not None:
        return reached.mean
    return float("-inf") if best is None else judged_best(outcome, best)


def _game(listed: Listed) -> Text:
    return Text(fitted(printable(f"{listed.record.game} {listed.record.task}".strip()), _GAME_WIDTH))


def _tags(listed: Listed) -> tuple[str, ...]:
    return listed.annotation.tags


def _state(listed: Listed, cells: int = 10) -> Text:
    """The state, or its symbol alone; behind it a mark if the run has an alert."""
    found = state_text(listed.status)
    found.truncate(cells, pad=bool(listed.record.alert))
    return found.append(" !" * bool(listed.record.alert), style="bold red")


_NAME_WIDTH = 25
_RESULT_WIDTH = 24
_GAME_WIDTH = 12
_LONGEST_NAME = 255
"""Longest folder name; a record may contain any name."""
_READ_AT_ONCE = 100
"""Runs whose options are read before the next key has its turn."""
COLUMNS: tuple[Column[Listed], ...] = (
    Column("state", "state", 10, 64, _state, lambda x: (x.status.rank, not x.record.alert), largest_first=False),
    Column("run", "run", _NAME_WIDTH, 0, _name, lambda x: x.record.name, largest_first=False),
    Column("game", "game", _GAME_WIDTH, 66, _game, lambda x: (x.record.game, x.record.task), largest_first=False),
    Column("tags", "tags", 14, 90, lambda x: Text(printable(" ".join(x.annotation.tags)), style="cyan"), _tags),
    Column("runner", "runner", 8, 112, lambda x: Text(x.record.runner), lambda x: x.record.runner),
    Column("steps", "steps", 11, 48, _steps, lambda x: x.record.env_steps),
    Column("return", "return", 8, 62, lambda x: right(number(x.record.mean_return), 8), _mean),
    Column("result", "result", _RESULT_WIDTH, 70, _result, _reached),
    Column("episodes", "episodes", 8, 124, lambda x: right(short(x.record.episodes), 8), lambda x: x.record.episodes),
    Column("time", "time", 9, 78, lambda x: right(duration(x.record.wall_s), 9), lambda x: x.record.wall_s),
    Column("started", "started", 11, 104, lambda x: Text(moment(x.record.created_at)), lambda x: x.record.created_at),
    Column("seen", "last seen", 11, 92, lambda x: Text(moment(x.record.updated_at)), lambda x: x.record.updated_at),
    Column(
        "folder", "folder", 40, 170, lambda x: Text(str(x.run.path.parent), no_wrap=True), lambda x: str(x.run.path),
        largest_first=False,
    ),
)  # fmt: skip
_STATE = COLUMNS[0]
_NARROW_STATE = replace(_STATE, label="", width=1, room=0, cell=lambda x: _state(x, 1))


class RunsTable(MarkedTable[Listed]):
    """The newest run comes first by default. A column is shown if the table is at least `room` cells wide."""

    def __init__(self) -> None:
        super().__init__("Runs", id="runs", sorting=("started", True))
        self.wanted = ""
        """Filter: a run is shown if it matches all these words (`mario_tui.data.differences`)."""
        self._asked = ""
        self._unfolded = set[str]()
        """Keys of the sweeps whose runs are shown. A filter also finds those of others."""

    def filter(self, text: str) -> None:
        self._asked = text
        if ("=" in text or "--" in text) and len(self.listed) > _READ_AT_ONCE:
            self._filter_by_options(text)
        else:
            self._filter(text)

    @property
    def is_filtering(self) -> bool:
        """Return whether a filter is still to come, for which options of many runs are read."""
        return self._asked != self.wanted

    @work(group="filter", exclusive=True)
    async def _filter_by_options(self, text: str) -> None:
        def read(runs: list[Run]) -> None:
            for run in runs:
                if self._asked != text:  # what is typed meanwhile reads them
                    return
                options_of(run)

        await asyncio.to_thread(read, [row.run for row in self.listed])
        if self._asked == text:
            self._filter(text)

    def _filter(self, text: str) -> None:
        self.wanted = self._asked = text
        self.update_rows()

    def on_unmount(self) -> None:
        self._asked = self.wanted

    def all_columns(self) -> Sequence[Column[Listed]]:
        return COLUMNS

    def visible_columns(self) -> Sequence[Column[Listed]]:
        longest = self._longest_name()
        room = max(0, (self.scrollable_content_region.width or self.app.size.width) - max(0, longest - _NAME_WIDTH))
        tagged = any(listed.annotation.tags for listed in self.listed)
        judged = any(listed.record.result or listed.record.best for listed in self.listed)
        several = len({(listed.record.game, listed.record.task) for listed in self.listed}) > 1
        empty = {key for key, has_any in (("tags", tagged), ("result", judged), ("game", several)) if not has_any}
        marks = 2 * any(listed.record.alert for listed in self.listed)
        shown = [replace(_STATE, width=_STATE.width + marks), *COLUMNS[1:]]
        shown = [column for column in shown if column.room <= room and column.key not in empty]
        while len(shown) > 1 and sum(column.width + GAP for column in shown) + MARK_WIDTH > room:  # tags take room
            shown.remove(max(shown, key=lambda column: column.room))
        shown = [replace(each, width=max(each.width, longest)) if each.key == "run" else each for each in shown]
        return shown if _STATE.room <= room else [replace(_NARROW_STATE, width=1 + marks), *shown]

    def in_order(self, rows: Iterable[Listed]) -> list[Listed]:
        return sorted(rows, key=lambda listed: (-listed.record.created_at, listed.key))

    def arranged(self, rows: Iterable[Listed]) -> list[Listed]:
        """Runs of a sweep come below it."""
        members, others = dict[str, list[Listed]](), list[Listed]()
        for row in super().arranged(rows):
            (members.setdefault(row.member_of, []) if row.member_of else others).append(row)
        found = [each for row in others for each in (row, *members.pop(row.key, ()))]
        return found + [row for left in members.values() for row in left]  # the filter hides their sweep

    def show(self, rows: Iterable[Listed]) -> None:
        rows, is_first = list(rows), not self.listed
        if is_first and sum(not row.member_of for row in rows) == 1:  # of a sweep alone, its runs are meant
            self._unfolded = {row.key for row in rows if row.sweep is not None}
        super().show(rows)

    def unfold(self, sweep: str) -> None:
        """Show or hide the runs of a sweep."""
        self._unfolded ^= {sweep}
        self.update_rows()

    def beside(self, run: Run, by: int) -> Run | None:
        """The run so many rows below another: of the same sweep, or one that belongs to none; None at the end."""
        rows = [row for row in self.arranged(self.listed) if row.sweep is None]
        sweep = next((row.member_of for row in rows if row.run.path == run.path), "")
        runs = [row.run for row in rows if row.member_of == sweep and (sweep or self.matches(row))]
        at = next((at for at, each in enumerate(runs) if each.path == run.path), None)
        return runs[at + by] if at is not None and 0 <= at + by < len(runs) else None

    def matches(self, row: Listed) -> bool:
        if not self.wanted:
            return not row.member_of or row.member_of in self._unfolded
        text = f"{text_of(row.run, row.record, row.annotation)} {row.status}"
        return matches(words_of(self.wanted), text, lambda: options_of(row.run))

    def content(self, row: Listed) -> object:
        return row.key, row.record, row.annotation, row.member_of

    def _longest_name(self) -> int:
        names = (len(listed.label) for listed in self.listed if self.matches(listed))
        return min(max(names, default=0), _LONGEST_NAME)


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
    if record.alert:
        more = f", and {record.alerts - 1} more" * (record.alerts > 1)
        text.append(f"\nalert: {printable(record.alert)}{more}", style="bold red")
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
    if record.result is not None:
        text.append(f"\nresult   {printable(result_text(outcome_of_record(record), record.result))}")
    elif record.best is not None:
        outcome = outcome_of_record(record)
        best = judged_number(outcome)(judged_best(outcome, record.best))
        text.append(f"\nbest     {judged_label(outcome)} {best}, the most in its evaluations")
    text.append(f"\nrunner   {printable(record.runner)}")
    try:
        if listed.sweep is not None:
            text.append("".join(f"\n{command}" for command in listed.sweep.commands()), style="dim")
        elif isinstance(described := listed.run.description(), ReportedLoop):
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
