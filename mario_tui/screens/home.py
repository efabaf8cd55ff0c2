"""Home: the runs of this user with their state; start, resume, open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from engine.errors import UserError
from engine.runs import Run, RunRecord, list_runs
from mario_tui.format import duration, number, short
from mario_tui.keys import bindings
from mario_tui.launch import Plan, make_plan
from mario_tui.screens.dialogs import NewRunScreen
from mario_tui.widgets.header import state_text

if TYPE_CHECKING:
    from mario_tui.app import MarioApp

_REFRESH_S = 2.0


class HomeScreen(Screen[None]):
    """A table that reads the run records every two seconds; a row is touched only if it changed."""

    BINDINGS = bindings("home")

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[tuple[str, ...]] = []
        self._runs: dict[str, Run] = {}

    def compose(self) -> ComposeResult:
        yield Static(Text.assemble(("mario-tui", "bold"), "  train Double-DQN agents and watch them learn"), id="title")
        table: DataTable[Any] = DataTable(id="runs", cursor_type="row", zebra_stripes=True)
        table.border_title = "Runs"
        yield table
        yield Static(id="hint")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._table.add_columns("state", "run", "steps", "return", "time", "last seen")
        self.set_interval(_REFRESH_S, self.action_refresh)
        self.action_refresh()
        self._table.focus()

    def on_screen_resume(self) -> None:
        self.action_refresh()

    @property
    def _table(self) -> DataTable[Any]:
        return self.query_one("#runs", DataTable)

    def action_refresh(self) -> None:
        """Read the runs again."""
        records: list[tuple[Run, RunRecord]] = []
        for run in list_runs():
            try:
                records.append((run, run.record()))
            except UserError:
                continue  # removed a moment ago
        rows = [_row(record) for _, record in records]
        if rows == self._rows and self._runs:
            return
        selected = self._selected_name()
        self._rows, self._runs = rows, {run.name: run for run, _ in records}
        table = self._table
        table.clear()
        for (run, record), row in zip(records, rows, strict=True):
            table.add_row(state_text(record.state), *row[1:], key=run.name)
        if selected in self._runs:
            table.move_cursor(row=table.get_row_index(selected))
        hint = "" if rows else "No runs yet. Press n, then Enter: the default run trains Mario on stage 1-1."
        self.query_one("#hint", Static).update(hint)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Open the dashboard of the selected run; with no run yet, offer a new one (Enter again starts it)."""
        run = self._selected()
        if run is None:
            self.action_new()
        else:
            self._mario.open_dashboard(run)

    def action_new(self) -> None:
        self.app.push_screen(NewRunScreen(), self._start)

    def action_resume_run(self) -> None:
        """Go on with the selected run; one that has done all its steps is asked for a new number."""
        run = self._selected()
        if run is None:
            return
        if run.is_alive():
            self._mario.open_dashboard(run)
            return
        record = run.record()
        if record.env_steps >= record.steps:
            self.app.push_screen(NewRunScreen(f"--resume {run.path} --steps {2 * record.steps}"), self._start)
            return
        try:
            self._start(make_plan({}, resume=str(run.path)))
        except UserError as error:
            self.notify(str(error), severity="error")

    def action_quit_app(self) -> None:
        self.app.exit()

    def _start(self, plan: Plan | None) -> None:
        if plan is None:
            return
        try:
            host = plan.start()
        except UserError as error:
            self.notify(str(error), severity="error")
            return
        self._mario.open_dashboard(host.run, host)

    @property
    def _mario(self) -> MarioApp:
        from mario_tui.app import MarioApp

        assert isinstance(self.app, MarioApp)
        return self.app

    def _selected_name(self) -> str:
        table = self._table
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _selected(self) -> Run | None:
        return self._runs.get(self._selected_name())


def _row(record: RunRecord) -> tuple[str, ...]:
    return (
        record.state,
        record.name,
        f"{short(record.env_steps)}/{short(record.steps)}",
        number(record.mean_return),
        duration(record.wall_s),
        time.strftime("%m-%d %H:%M", time.localtime(record.updated_at)),
    )
