"""Home: the user's runs with their states; starts, resumes, opens, compares and deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.events import Key, Paste
from textual.widgets import DataTable, Input, Static

from engine.config.command_line import command_line, options_apart
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.runs.lookup import delete
from engine.runs.marks import check_code
from engine.runs.registry import KnownRecords
from engine.runs.run import Annotation, Run, write_annotation
from engine.runs.sweep import Sweep
from engine.runtime.text import printable
from mario_tui.data.form import text_of_value
from mario_tui.data.format import counted
from mario_tui.data.keys import bindings, keys_in
from mario_tui.data.listed import Listed, read_listed
from mario_tui.data.run_status import RunStatus
from mario_tui.screens.compare import compare, compare_with_others
from mario_tui.screens.dialogs import AnnotateScreen, ConfirmScreen, TextScreen
from mario_tui.screens.new_run import NewRunScreen
from mario_tui.screens.run_control import resume, resume_several
from mario_tui.screens.table_screen import NUMBERS, TableScreen
from mario_tui.widgets.base.footer import FilterInput, KeyFooter
from mario_tui.widgets.runs_table import Preview, RunsTable

_WITHOUT_RUNS = ("new", "quit_app")
"""Actions that need no list of runs."""
_OF_MARKED = ("stop", "pause", "checkpoint", "delete")
"""Actions on the marked runs that the hint names."""
_IN_EMPTY_FOOTER = ("new", "watch", "play", "quit_app")


class HomeScreen(TableScreen[list[Listed]]):
    """Reads the run records."""

    table: RunsTable
    PLACE = "home"
    BINDINGS = [*bindings("home"), *NUMBERS]
    CSS_PATH = "home.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-normal")]

    def __init__(self) -> None:
        super().__init__()
        self._known = KnownRecords()
        self._hosts: list[HostProcess] = []
        """Of runs that were resumed together: as long as they are here, the kernel forgets those that have ended."""

    def compose(self) -> ComposeResult:
        title = Text.assemble(("mario-tui", "bold"), "  train DQN agents and watch them learn")
        if self.mario.read_only:
            title.append("  read-only", style="bold reverse")
        yield Static(title, id="title")
        # By name, since what is read may arrive when the application closes, and these are no longer found.
        self.table, self._preview, self._hint_line = RunsTable(), Preview(), Static(id="hint")
        yield self.table
        yield Static(self._welcome(), id="welcome")
        yield self._preview
        yield self._hint_line
        clear = self.mario.key("home.clear")
        self._filter = FilterInput(f"filter words; enter: keep, {clear}: clear", back=self.table)
        yield self._filter
        yield KeyFooter()

    def _welcome(self) -> Text:
        """Return what somebody without runs can begin with."""
        things = {
            "home.watch": "watch a trained Mario finish World 1-1",
            "home.new": "train one yourself: press Enter twice; it takes a few minutes",
            "home.play": "play yourself",
        }
        lines = [Text("Three things to begin with")]
        lines += [Text.assemble((f"{self.mario.key(id)}   ", "bold"), text) for id, text in things.items()]
        return Text("\n\n").join(lines)

    def on_mount(self) -> None:
        self._hint = "", ""
        self._show_hint("Reading the runs …")
        self.table.focus()

    def takes(self, key: Key | Paste) -> bool:
        """Until the runs are read, and filtered, keys that may be meant for them wait."""
        without_runs = isinstance(key, Key) and key.key in self._keys_without_runs()
        is_ready = not self.table.is_filtering or self.focused is self._filter
        return (is_ready and super().takes(key)) or (without_runs and self.job is None)

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Without runs, the footer names the keys of the welcome in place of those for runs."""
        found = super().active_bindings
        if not self.has_class("-empty"):
            return found
        of_home = {key.action: key.action in _IN_EMPTY_FOOTER for key in keys_in("home")}
        return {
            key: each._replace(binding=replace(each.binding, show=of_home.get(each.binding.action, each.binding.show)))
            for key, each in found.items()
        }

    def _keys_without_runs(self) -> set[str]:
        """The keys that need no list of runs."""
        keymap = self.mario.settings.keys
        actions = [key for key in keys_in("home") if key.action in _WITHOUT_RUNS] + keys_in("everywhere")
        return {name for key in actions for name in keymap.get(key.id, key.keys).split(",")}

    def read(self) -> list[Listed]:
        return read_listed(self.mario.run_dir, self._known)

    def take(self, runs: list[Listed]) -> None:
        for table in self.query(RunsTable):  # none if the application is closing
            table.show(runs)

    def take_problem(self, error: UserError) -> None:
        super().take_problem(error)
        self._show_hint(str(error))

    def on_marked_table_changed(self) -> None:
        """Update the hint: the number of runs, the filter and the marks."""
        if not self.has_read:
            return
        self.app.call_next(self.mario.deliver)
        table = self.table
        self._preview.show(table.current())
        was_empty = self.has_class("-empty")
        self.set_class(not table.listed and not self.mario.read_only, "-empty")
        if self.has_class("-empty") != was_empty:
            self.refresh_bindings()
        if not table.listed:
            self._show_hint("No runs yet.")
            return
        runs = [listed for listed in table.listed if listed.sweep is None]
        active = sum(listed.status.is_active for listed in runs)
        parts = [f"{counted(len(runs), 'run')}, {active} active"]
        if silent := sum(listed.status is RunStatus.SILENT for listed in table.listed):
            parts.append(f"{silent} not responding")
        if alerts := sum(bool(listed.record.alert) for listed in runs):
            parts.append(f"{alerts} with alerts")
        if table.wanted:
            parts.append(f"{table.shown_count:,} match “{table.wanted}” ({self.mario.key('home.clear')}: clear)")
        if table.marked:
            hidden = table.hidden_marks
            keys = ", ".join(f"{self.mario.key(f'home.{name}')} {name}" for name in _OF_MARKED)
            parts.append(f"{len(table.marked):,} marked{f', {hidden} of them filtered out' * bool(hidden)} ({keys})")
        if (current := table.current()) is not None and current.sweep is not None:
            parts.append(f"{self.mario.key('home.unfold')}: show or hide its runs")
        has_room = self.has_class("-tall") and not self.has_class("-narrow")  # for the details, which tell it
        told = current is not None and not has_room and current.record.alert
        self._show_hint("  ·  ".join(parts), f"\nalert: {printable(told)}" if told else "")

    def _show_hint(self, text: str, alert: str = "") -> None:
        if (text, alert) != self._hint:
            self._hint = text, alert
            self._hint_line.update(Text.assemble(text, (alert, "bold red")))

    # ------------------------------------------------------------------------------------------ one run

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self.on_marked_table_changed()

    def action_open(self) -> None:
        """Open the dashboard of the selected run, or the sweep; without any run, open the new-run form."""
        current = self.table.current()
        if current is not None and current.sweep is not None:
            self.app.push_screen(current.sweep.screen())
        elif current is not None:
            self.mario.open_dashboard(current.run)
        elif not self.table.listed and not self.mario.read_only:
            self.action_new()

    def action_new(self) -> None:
        self.app.push_screen(NewRunScreen(self.mario.run_dir), self._started)

    def _the_one(self, done: str) -> Listed | None:
        """The selected run, for what can be done with one alone. None without runs, of a sweep, or if others are marked
        and could be meant, which a notice says."""
        current = self.table.current()
        if current is not None and current.sweep is not None:
            self.notify(f"One run can be {done} at a time, not a sweep", severity="warning")
            return None
        if current is not None and self.table.marked - {current.key}:
            clear = self.mario.key("home.clear")
            self.notify(f"One run can be {done} at a time; clear the marks first ({clear})", severity="warning")
            return None
        return current

    def action_new_like_it(self) -> None:
        """Open the new-run form with the options of the selected run."""
        current = self._the_one("repeated")
        if current is None:
            return
        try:
            config = current.run.config()
            check_code(config.values(), {}, current.run.path, "the run")
            options = {name: text_of_value(value) for name, value in options_apart(config).items()}
            self.app.push_screen(NewRunScreen(self.mario.run_dir, options=options), self._started)
        except UserError as error:
            self.show_error(error)

    def action_copy(self) -> None:
        """Show and copy the command that starts a run like the selected one."""
        current = self._the_one("copied")
        if current is not None:
            try:
                self.app.push_screen(TextScreen(current.record.name, command_line(current.run.config())))
            except UserError as error:
                self.show_error(error)

    def action_annotate(self) -> None:
        """Edit the tags and the note of the selected run."""
        current = self._the_one("edited")
        if current is None:
            return

        def answered(annotation: Annotation | None) -> None:
            if annotation is not None:
                try:
                    write_annotation(current.run, annotation)
                except UserError as error:
                    self.show_error(error)
                self.read_again()

        self.app.push_screen(AnnotateScreen(current.record.name, current.annotation), answered)

    def action_watch(self) -> None:
        """Watch the best policy of the selected run; without any run, the trained Mario of the package."""
        current = self._the_one("watched")
        if current is not None:
            self.play(str(current.run.path), shown=current.record.name)
        elif not self.table.listed:
            self.play(shown="")

    def action_play(self) -> None:
        """Play the selected run's game; without any run, Mario."""
        current = self._the_one("played")
        if current is not None:
            self.play("--human", "--game", current.record.game, shown=f"--human --game {current.record.game}")
        elif not self.table.listed:
            self.play("--human", shown="--human")

    def _started(self, host: HostProcess | None) -> None:
        if host is not None:
            self.table.select(str(host.run.path.resolve()))
            self.mario.open_dashboard(host.run, host)

    # ------------------------------------------------------------------------------------------ several

    def _chosen_runs(self) -> list[Run]:
        """The marked runs, or the selected one, and those of sweeps, each once."""
        runs = {run.path: run for listed in self.table.chosen() for run in listed.runs}
        return list(runs.values())

    def action_compare(self) -> None:
        chosen = self._chosen_runs()
        if len(chosen) == 1:
            compare_with_others(self, chosen[0])
        elif chosen:
            compare(self, chosen)

    def action_resume_run(self) -> None:
        """Resume the marked runs in the background; without marks the selected one, or open its dashboard if it is
        running."""
        current = self.table.current()
        if self.table.marked - {current.key if current is not None else None}:
            resume_several(self, self._chosen_runs(), self._resumed)
        elif (current := self._the_one("resumed")) is not None and current.run.is_alive():
            self.mario.open_dashboard(current.run)
        elif current is not None:
            resume(self, current.run, self._started)

    def _resumed(self, hosts: list[HostProcess]) -> None:
        self._hosts = [host for host in self._hosts if not host.ended] + hosts
        if hosts:
            self.notify(f"{counted(len(hosts), 'run')} resumed")
        self.read_again()

    def _told(self) -> tuple[list[Listed], list[Listed]]:
        """The chosen sweeps, and the other chosen runs that are active: what commands go to. A notice says if there are
        none."""
        chosen = self.table.chosen()
        sweeps = [each for each in chosen if each.sweep and each.status.is_active]
        inside = {each.key for each in sweeps}
        runs = [each for each in chosen if not each.sweep and each.member_of not in inside and each.status.is_active]
        if chosen and not (sweeps or runs):
            told = "None of these is active" if len(chosen) > 1 else f"{chosen[0].record.name} is not active"
            self.notify(told, severity="warning")
        return sweeps, runs

    def action_stop(self) -> None:
        sweeps, runs = self._told()
        if not (sweeps or runs):
            return

        def answered(yes: bool | None) -> None:
            if not yes:
                return
            for each in sweeps:
                self.run_worker(self.run_command("sweep", "stop", each.key), name="command")
            if runs:
                self._tell("stop", runs, "stopped")

        names = ", ".join(each.record.name for each in (*sweeps, *runs))
        how = "They write their last checkpoints and end." if sweeps or len(runs) > 1 else (
            "It writes a checkpoint and ends. You can resume it later.")  # fmt: skip
        what = _counts(len(sweeps), len(runs)) if len(sweeps) + len(runs) > 1 else names
        self.app.push_screen(ConfirmScreen(f"Stop {what}?", how if what == names else f"{names}\n{how}"), answered)

    def action_pause(self) -> None:
        """Pause the chosen runs that are active; if all of them are paused, continue them."""
        runs = self._active()
        if runs and all(each.status is RunStatus.PAUSED for each in runs):
            self._tell("resume-training", runs, "continued")
        elif runs:
            self._tell("pause", runs, "paused")

    def action_checkpoint(self) -> None:
        if runs := self._active():
            self._tell("checkpoint", runs, "saved in a checkpoint")

    def _active(self) -> list[Listed]:
        """The chosen runs that are active, also those of sweeps."""
        sweeps, runs = self._told()
        inside = {each.key for each in sweeps}
        return runs + [each for each in self.table.listed if each.member_of in inside and each.status.is_active]

    def _tell(self, command: str, runs: Sequence[Listed], done: str) -> None:
        """Give runs a command of mario-tui."""
        told = runs[0].record.name if len(runs) == 1 else counted(len(runs), "run")
        self.notify(f"{command.capitalize().replace('-', ' ')}: {told}", timeout=2)
        words = command, *(each.key for each in runs)
        self.run_worker(self.run_command(*words, done=f"{told} {done}"), name="command")

    def action_unfold(self) -> None:
        """Show or hide the runs of the selected sweep, or of that of the selected run."""
        current = self.table.current()
        if current is None or not (sweep := current.key if current.sweep else current.member_of):
            self.notify("Only a sweep has runs to show", severity="warning", timeout=3)
            return
        self.table.select(sweep)
        self.table.unfold(sweep)

    def action_delete(self) -> None:
        """Delete the marked runs and sweeps, or the selected one, unless one of them is running."""
        sweeps = {each.sweep.sweep.path: each.sweep.sweep for each in self.table.chosen() if each.sweep}
        runs = [each.run for each in self.table.chosen() if not each.sweep and each.run.path.parent not in sweeps]
        alive = [run.name for run in runs if run.is_alive()]
        alive += [each.record.name for each in self.table.chosen() if each.sweep and each.status.is_active]
        if alive:
            self.notify(f"Stop before deleting: {', '.join(alive)}", severity="warning")
            return
        chosen: list[Run | Sweep] = [*sweeps.values(), *runs]
        if not chosen:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._delete(chosen), name="delete")

        one = len(chosen) == 1
        inside = counted(sum(len(each.runs) for each in self.table.chosen() if each.sweep), "run")
        what = chosen[0].name + f", a sweep of {inside}" * bool(sweeps) if one else _counts(len(sweeps), len(runs))
        names = "" if one else ", ".join(each.name for each in chosen) + "\n"
        folder = "Its folder" if one else "Their folders"
        lost = f"{folder}, with checkpoints, policies and logs, will be deleted. This can't be undone."
        self.app.push_screen(ConfirmScreen(f"Delete {what}?", names + lost, irreversible=True), answered)

    async def _delete(self, chosen: list[Run | Sweep]) -> None:
        for each in chosen:
            try:
                await asyncio.to_thread(delete, each)
            except UserError as error:
                self.show_error(error)
        self.read_again()

    # ------------------------------------------------------------------------------------------ the table

    def action_filter(self) -> None:
        self._filter.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.table.filter(event.value)

    def action_clear(self) -> None:
        """Clear the filter; without one, clear the marks."""
        if not self._filter.close():
            self.table.clear_marks()

    def action_refresh(self) -> None:
        """Reload the list of runs."""
        self.read_again()


def _counts(sweeps: int, runs: int) -> str:
    return " and ".join([counted(sweeps, "sweep")] * bool(sweeps) + [counted(runs, "run")] * bool(runs))
