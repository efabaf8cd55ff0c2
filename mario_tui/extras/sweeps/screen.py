"""A sweep, live: the table of its settings, their curves, and what each value of an option reaches."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from engine.errors import UserError
from engine.runs.run import Run
from engine.runs.sweep import Sweep, SweepPlan
from engine.runtime.text import printable
from mario_tui.data.chart_files import save_files
from mario_tui.data.feed import Allowance
from mario_tui.data.keys import bindings
from mario_tui.data.run_status import RunStatus
from mario_tui.data.seed_statistics import Statistic
from mario_tui.extras.sweeps.folder import what_it_waits_for
from mario_tui.extras.sweeps.levels import ListedSetting, OptionLevels, levels_of, listed_settings, metric_of
from mario_tui.extras.sweeps.option_levels import OptionLevelsPanel
from mario_tui.extras.sweeps.results import (
    SettingResult,
    as_csv,
    as_markdown,
    commands_of,
    is_done,
    member_row,
    results_of,
    setting_text,
    state_of_sweep,
)
from mario_tui.extras.sweeps.settings_table import (
    SettingsTable,
    broken,
    named_settings,
    pair,
    reasons,
    reference,
    title,
)
from mario_tui.screens.compare import compare
from mario_tui.screens.dialogs import ConfirmScreen, TextScreen
from mario_tui.screens.live_run import EVALUATION, LiveRun, connect
from mario_tui.screens.panel_grid import ChartScreen
from mario_tui.screens.table_screen import NUMBERS, SHARE, TableScreen
from mario_tui.widgets.base.footer import KeyFooter
from mario_tui.widgets.charts.comparison import Comparison, Means, Series, reach_of
from mario_tui.widgets.charts.plot import Plot

_TICK_S, _POLL_S = 0.5, 0.2
_VIEWS = ("table", "curves", "options")
"""Where there is room, the view of the table has the others below it."""
_TALL, _LEAST_BESIDE_ROWS = 34, 18
"""Lines of a screen with such room, and those that it must have besides the settings if it has fewer."""
_RETURN = "mean_return"
_NONE_BEGUN = "None of these runs has begun"


@dataclass(frozen=True)
class _Reading:
    """A sweep at the time of reading."""

    plan: SweepPlan
    results: Sequence[SettingResult]
    settings: Sequence[ListedSetting]
    options: Sequence[OptionLevels]
    begun: Sequence[LiveRun]
    """Runs that were not followed before."""
    status: RunStatus
    """Of the whole sweep."""
    waits_for: str
    """What its queue waits for; empty if for nothing."""
    may_resume: bool
    """Whether the sweep is this user's, has no queue, and is not done."""

    @property
    def may_stop(self) -> bool:
        return self.status is RunStatus.RUNNING


class SweepScreen(TableScreen[_Reading], ChartScreen):
    """Reads the sweep's folder, and follows all runs that have begun."""

    table: SettingsTable
    PLACE = "sweep"
    BINDINGS = [*bindings("sweep"), *NUMBERS]
    CSS_PATH = "sweep.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal")]

    def __init__(self, sweep: Sweep) -> None:
        super().__init__()
        self._sweep = sweep
        self._reading: _Reading | None = None
        self._statistic: Statistic = "mean"
        self._live_runs: dict[Path, LiveRun] = {}
        self._allowance: Allowance | None = None
        self._means = Means()
        self._changed = asyncio.Event()
        """Set when other curves are to be shown."""

    def compose(self) -> ComposeResult:
        self._heading = Static("Reading the sweep …", id="title")
        self._reasons, self._pair, self._markers = Static(id="reasons"), Static(id="pair"), Static(id="markers")
        self.table, self._levels = SettingsTable(), OptionLevelsPanel()
        self._chart = Comparison("Return", self.view, id="curves")
        yield self._heading
        yield self.table
        yield self._reasons
        yield self._pair
        yield self._markers
        with Container(id="views"):
            yield self._chart
            yield self._levels
        yield KeyFooter()

    def on_mount(self) -> None:
        self._view(_VIEWS[0])
        self.run_worker(self._follow_curves(), name="curves")

    def on_unmount(self) -> None:
        for live in self._live_runs.values():
            live.feed.close()

    # ------------------------------------------------------------------------------------------ reading

    def read(self) -> _Reading:
        plan = self._sweep.plan()
        results = results_of(self._sweep, plan)
        if self._allowance is None:
            self._allowance = Allowance(plan.planned)
        allowance = self._allowance
        settings = listed_settings(results, self._statistic)
        begun = [
            LiveRun(member.run, number, allowance)
            for number, result in enumerate(results)
            for member in result.members
            if member.record is not None and member.run.path not in self._live_runs
        ]
        options = levels_of(settings, self._statistic)
        status = state_of_sweep(self._sweep, plan, results)
        may_resume = self._sweep.is_own and self._sweep.queue_pid() is None and not is_done(plan, results)
        return _Reading(plan, results, settings, options, begun, status, what_it_waits_for(self._sweep), may_resume)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("stop", "resume_sweep"):
            reading = self._reading
            if reading is None or not (reading.may_resume if action == "resume_sweep" else reading.may_stop):
                return False
        return super().check_action(action, parameters)

    def take(self, reading: _Reading) -> None:
        before, self._reading = self._reading, reading
        if before is None or (before.status, before.may_resume) != (reading.status, reading.may_resume):
            self.refresh_bindings()
        self._live_runs |= {live.run.path: live for live in reading.begun}
        for member in (member for result in reading.results for member in result.members):
            if member.record is not None:
                self._live_runs[member.run.path].feed.update(member.record)
        self.run_worker(connect(reading.begun), name="connect")
        self._show()

    def take_problem(self, error: UserError) -> None:
        super().take_problem(error)
        self._heading.update(broken(self._sweep.name, str(error)))

    async def _follow_curves(self) -> None:
        """Show the curves when others are wanted, and when there are news of the runs: that takes at most 1 / `SHARE`
        of the time. They are made in a thread."""
        news, due = False, 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _TICK_S)
            is_asked = self._changed.is_set()
            self._changed.clear()
            live = list(self._live_runs.values())
            changed = await asyncio.to_thread(lambda runs: [run.refresh() for run in runs], live)
            news = news or any(changed)
            began = time.monotonic()
            if is_asked or (news and began >= due and self.is_current):
                news = False
                await self._show_curves(live)
                due = time.monotonic() + SHARE * (time.monotonic() - began)

    # ------------------------------------------------------------------------------------------ what is shown

    def _show(self) -> None:
        if self._reading is None:
            return
        marked = [row for row in self._reading.settings if row.key in self.table.marked]
        than = marked[0] if len(marked) == 1 else self._reading.settings[0] if self._reading.settings else None
        than_result = than.result if than else None
        rows = [replace(row, better=row.result.improves(than_result)) for row in self._reading.settings]
        height = self.size.height
        self.set_class(height >= _TALL or height - len(rows) >= _LEAST_BESIDE_ROWS, "-roomy")
        self.table.show(rows)
        offers = self._reading.may_resume and not self.mario.read_only
        status = f"waits for {self._reading.waits_for}" * bool(self._reading.waits_for)
        status = f"stopped ({self.mario.key('sweep.resume_sweep')} resumes)" if offers else status
        if not self._problem:
            status = "stopping" if self._reading.status is RunStatus.STOPPING else status
            left_out = self._allowance.told if self._allowance is not None else ""
            status = "; ".join(filter(None, (status, left_out)))
            self._heading.update(title(self._sweep.name, self._reading.results, self._statistic, status))
        told = than if any(column.key == "better" for column in self.table.visible_columns()) else None
        about = reference(told, is_unequal=any(row.is_shorter for row in rows))
        self._pair.update(pair(*marked) if len(marked) == 2 else about)
        shown = marked or self._reading.settings
        self._markers.update(named_settings(shown, self.size.width - 2))
        self._levels.show(
            self._reading.options, metric_of(rows), frozenset(row.number for row in marked), self._statistic
        )
        self._show_reasons()
        self._changed.set()

    def _show_reasons(self) -> None:
        self._reasons.update(text := reasons(self.table.current()))
        self._reasons.set_class(not text, "-empty")

    def plots(self) -> Sequence[Plot]:
        return [self._chart]

    def reach(self) -> tuple[float, float]:
        return reach_of(self._chart.series, self.view.axis)

    async def _show_curves(self, live: Sequence[LiveRun]) -> None:
        """Show the curves of the marked settings, or of all: evaluations if there are any, else returns in training."""
        is_shown = self._shown_view == "curves" or (self._shown_view == "table" and self.has_class("-roomy"))
        if self._reading is None or not is_shown:
            return
        by_setting: dict[int, list[LiveRun]] = {}
        for each in live:
            by_setting.setdefault(each.colour, []).append(each)
        metric = EVALUATION if any(each.evaluated is not None for each in live) else _RETURN
        marked = self.table.marked
        rows = [row for row in self._reading.settings if not marked or row.key in marked]
        statistic = self._statistic

        def curve(row: ListedSetting) -> Series:
            runs = [each.series(metric) for each in by_setting.get(row.number, [])]
            return self._means.over_seeds(row.number, runs, setting_text(row.result.settings), row.number, statistic)

        series = await asyncio.to_thread(lambda: [*map(curve, rows)])
        name = "Evaluated return" if metric == EVALUATION else "Mean return"
        self._chart.full_title = self._chart.short_title = name
        self.view.reach = reach_of(series, self.view.axis)
        if self._chart.take(series):
            self.draw_in_turns([self._chart])

    def _view(self, view: str) -> None:
        """Show one of `_VIEWS`, with the focus in it."""
        self._shown_view = view
        for each in _VIEWS:
            self.set_class(each == view, f"-{each}")
        self.app.stylesheet.update(self)  # at once: the next key may arrive before the next refresh
        self.set_focus({"table": self.table, "curves": self._chart, "options": self._levels}[view])
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def on_marked_table_changed(self) -> None:
        self._show()

    def on_data_table_row_highlighted(self) -> None:
        self._show_reasons()

    # ------------------------------------------------------------------------------------------ the table

    def action_open(self) -> None:
        """Compare the seeds of the selected setting; open the dashboard of a single one."""
        current = self.table.current()
        runs = [] if current is None else self._begun([current])
        if len(runs) == 1:
            self.mario.open_dashboard(runs[0])
        elif runs:
            compare(self, runs)
        elif current is not None:
            self.notify(_NONE_BEGUN, severity="warning")

    def action_compare(self) -> None:
        """Compare the means of the marked settings, or of all."""
        if self._reading is None:
            return
        keys = set(self.table.marked)

        def begun() -> list[Run]:
            reading = self._reading
            return [] if reading is None else self._begun([r for r in reading.settings if not keys or r.key in keys])

        if runs := begun():
            compare(self, runs, sweep=begun)
        else:
            self.notify(_NONE_BEGUN, severity="warning")

    @staticmethod
    def _begun(settings: Sequence[ListedSetting]) -> list[Run]:
        return [member.run for row in settings for member in row.result.members if member.record is not None]

    # ------------------------------------------------------------------------------------------ actions

    def action_next_view(self) -> None:
        self._view(_VIEWS[(_VIEWS.index(self._shown_view) + 1) % len(_VIEWS)])

    def action_next_panel(self) -> None:
        self.focus_next()

    def action_statistic(self) -> None:
        self._statistic = "iqm" if self._statistic == "mean" else "mean"
        self.read_again()

    def action_export(self) -> None:
        """Save the runs as CSV, and the table as Markdown with its commands."""
        if (reading := self._reading) is None:
            return
        runs = printable(as_csv([member_row(m) for result in reading.results for m in result.members]), lines=True)
        first = reading.results[0] if reading.results else None
        table = as_markdown(reading.results, first, commands_of(reading.plan))
        try:
            path = save_files(self._sweep.name, {".csv": runs, ".md": table}, self.saved_in())
        except OSError as error:
            self.notify(f"The table could not be saved: {error}", severity="error")
            return
        self.notify(f"Saved {path}.csv and .md", timeout=6)

    def action_copy(self) -> None:
        if self._reading is not None:
            self.app.push_screen(TextScreen(self._sweep.name, *commands_of(self._reading.plan)))

    def action_stop(self) -> None:
        self._ask("Stop", "Its runs write their last checkpoints and end, and no more are started.")

    def action_resume_sweep(self) -> None:
        self._ask("Resume", "Runs that wait, were stopped or have failed are started, a few at a time.")

    def _ask(self, what: str, consequence: str) -> None:
        """Ask whether to do what `mario-tui sweep` has a command for, then run the command."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self.run_command("sweep", what.lower(), str(self._sweep.path)), name="command")

        self.app.push_screen(ConfirmScreen(f"{what} {printable(self._sweep.name)}?", consequence), answered)

    def action_back(self) -> None:
        """Hide the crosshair, clear the marks, show the table, then go back."""
        if self.hide_cursor():
            return
        if self._shown_view != _VIEWS[0]:
            self._view(_VIEWS[0])
        elif self.table.marked:
            self.table.clear_marks()
        else:
            self.dismiss(None)
