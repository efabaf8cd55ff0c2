"""The new-run form: generated from the configuration's fields and validated while the user types."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.events import DescendantFocus, Key, Paste
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Static, TabbedContent, TabPane, Tabs

from engine.config.fields import flag
from engine.config.user_code import Asking
from engine.host.client import HostProcess
from engine.runs.checkpoints import OnProgress
from engine.runs.marks import check_code
from engine.runs.run import Run
from mario_tui.data.form import PRESET, Form, rows
from mario_tui.data.keys import bindings
from mario_tui.launch import make_plan
from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.base.footer import KeyFooter
from mario_tui.widgets.form_rows import FieldRow, PresetList, PresetRow

_FIRST = "*"
_SETTLE_S = 0.3
"""Delay before a process is asked, so that it is not while a word is being typed."""


class Group(TabPane):
    """A group of fields. Unlike other panes it does not select itself when a field in it gets the focus: that message
    could arrive after a key has selected another group."""

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        event.prevent_default()


class AboutField(Static):
    """The help or the error of the focused field. A longer text leaves less room for the fields."""

    class Resized(Message):
        """Its height has changed, and with it the room."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class NewRunScreen(PlaceScreen[HostProcess | None]):
    """Returns the host of the started run, or None. `resume`: the run to resume; its options are the defaults. Raises
    `UserError` if it names code that the user has not chosen, which the form would ask about the environment.

    Enter moves on: through the fields of a group, then to the Start button, which starts the run. The first group has
    one field, the preset, so that two presses start a run with the defaults. A group's rows are built when it is first
    shown, so that the form opens at once.
    """

    PLACE = "form"
    BINDINGS = [
        *bindings("form"),
        ("up", "choose(-1)"),
        ("down", "choose(1)"),
        ("left", "other_button"),
        ("right", "other_button"),
        ("enter", "move(1)"),
    ]
    AUTO_FOCUS = ""
    CSS_PATH = "new_run.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-normal")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]

    def __init__(
        self, run_dir: str | None = None, resume: Run | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._resume = resume
        self.form = Form() if resume is None else _form_of(resume)
        self._given = dict(options or {})
        self._errors: dict[str, str] = {}
        self._rejected = ""
        """The invalid field that prevented the start, until something is changed."""
        self._rejected_with: list[str] = []
        """The form's arguments then."""
        self._first = next(iter(self._given), PRESET)
        """The field that has the focus when the form opens: the first one that is filled in."""
        self._pending_focus = self._first
        """The field to focus as soon as its group is built; `_FIRST` stands for the group's first field."""
        self._ready = False
        """Whether the group that is shown is built."""
        self._asking: Asking | None = None
        """The question that the form waits for."""
        if run_dir is not None:
            self._given["run_dir"] = run_dir
        self._fill()

    def _fill(self) -> None:
        self.form.reset()
        for name, text in [*self._given.items()] * 2:  # a default may follow an option that is filled in later
            self.form.set(name, text)

    def compose(self) -> ComposeResult:
        title = "New run" if self._resume is None else f"Resume {self._resume.name}"
        yield Static(Text(title, style="bold"), id="title")
        first = rows()[self._first].metadata["group"]
        with TabbedContent(id="groups", initial=f"group-{first}"):
            for group in dict.fromkeys(str(spec.metadata["group"]) for spec in rows().values()):
                yield Group(group.capitalize(), Vertical(classes="rows"), id=f"group-{group}")
        yield AboutField(id="about")
        yield Static(id="command")
        yield Static(id="memory")
        with Horizontal(id="buttons"):
            yield Button("Start", id="start", variant="success", compact=True)
            yield Button("Cancel", id="cancel", compact=True)
            yield Static(id="elsewhere")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False  # a change of group moves the focus into it
        self._sync()

    def on_unmount(self) -> None:
        if self._asking is not None:
            self._asking.abandon()

    # ------------------------------------------------------------------------------------------ what it shows

    async def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Build the group if it is new, and move the focus into it."""
        pane = event.pane
        self._ready, self._pending_focus = False, self._pending_focus or _FIRST
        self.set_focus(None)
        if not pane.query(FieldRow):
            group = str(pane.id).removeprefix("group-")
            names = [name for name, spec in rows().items() if spec.metadata["group"] == group]
            fields = [(PresetRow if name == PRESET else FieldRow)(self.form, name) for name in names]
            await pane.query_one(".rows").mount_all(fields)
        self._sync()
        self.call_after_refresh(self._set_ready)

    def _set_ready(self) -> None:
        if not self._fields():
            return  # another group was selected in the meantime and is being built
        self._ready = True
        self._focus(self._pending_focus)
        self.app.call_next(self.mario.deliver)

    def takes(self, key: Key | Paste) -> bool:
        """Keys wait while a group is being built."""
        return super().takes(key) and self._ready

    def on_field_row_changed(self) -> None:
        if self.form.arguments() != self._rejected_with:  # equal: typed before the start, whose answer must stay
            self._rejected = ""
        self._sync()

    def on_descendant_focus(self) -> None:
        self._describe()

    def on_resize(self) -> None:
        self.call_after_refresh(self._keep_in_sight)

    def on_about_field_resized(self) -> None:
        self.call_after_refresh(self._keep_in_sight)

    def _describe(self) -> None:
        """Show the full help or error of what has the focus in the line below the fields."""
        row = next((row for row in self.query(FieldRow) if row.has_focus_within), None)
        if row is not None:
            error = self._errors.get(row.field)
            refused = f"Not started: {flag(row.field)} " if row.field == self._rejected else ""
            self._show_about(row.about if error is None else Text(f"✗ {refused}{error}"), wrong=error is not None)
        elif self.focused is self.query_one("#start"):
            for field, error in self._errors.items():
                self._show_about(Text(f"✗ {flag(field)} {error}"), wrong=True)
                return
            self._show_about(Text("enter: start the run"), wrong=False)
        elif self.focused is self.query_one("#cancel"):
            self._show_about(Text("enter: go back without starting a run"), wrong=False)

    def _show_about(self, text: Text, *, wrong: bool) -> None:
        about = self.query_one("#about", Static)
        about.set_class(wrong, "-wrong")
        about.update(text)

    def _keep_in_sight(self) -> None:
        if self.focused is not None:
            self.focused.scroll_visible(animate=False)

    def _sync(self) -> None:
        """Update everything that depends on the typed values."""
        errors = self.form.errors()
        for row in self.query(FieldRow):
            if row.is_mounted:
                row.sync(errors.get(row.field, ""))
        tabs = self.query_one(TabbedContent)
        offered = self.form.groups()
        wrong = {str(rows()[name].metadata["group"]) for name in errors}
        for pane in self.query(TabPane):
            group = str(pane.id).removeprefix("group-")
            tab = tabs.get_tab(pane)
            tab.display = group in offered
            label = group.capitalize() + (" ✗" if group in wrong else "")
            if str(tab.label) != label:
                tab.label = label
        self.query_one("#command", Static).update(Text(self.form.command(), no_wrap=True, overflow="ellipsis"))
        memory = self.form.memory()
        self.query_one("#memory", Static).update(Text(memory, style="bold red" if "TOO MUCH" in memory else ""))
        self._errors = errors
        self._show_elsewhere()
        self._describe()
        self._ask()

    def _ask(self) -> None:
        """Have the form's question asked in the background, and no other one."""
        question = self.form.question
        self.set_class(question is not None, "-asking")
        if self._asking is not None and self._asking.question != question:
            self._asking.abandon()
            self._asking = None
        if self._asking is None and question is not None:
            self._asking = Asking(question)
            self.run_worker(self._answer(self._asking), name="ask")

    async def _answer(self, asking: Asking) -> None:
        await asyncio.sleep(_SETTLE_S)
        if asking.is_abandoned:
            return
        answer = await asyncio.to_thread(asking.run)
        if not asking.is_abandoned:
            self._asking = None
            self.form.answered(asking.question, answer)
            self._sync()

    def _show_elsewhere(self) -> None:
        """Beside the buttons, show the first error of another group, whose tab may be out of sight."""
        here = self.query_one(TabbedContent).active.removeprefix("group-")
        groups = {name: str(rows()[name].metadata["group"]) for name in self._errors if self.form.offered(name)}
        found = next((name for name, group in groups.items() if group != here), None)
        text = "" if found is None else f"✗ {groups[found].capitalize()}: {flag(found)} {self._errors[found]}"
        self.query_one("#elsewhere", Static).update(Text(text))

    # ------------------------------------------------------------------------------------------ what it does

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        await self.run_action("start" if event.button.id == "start" else "cancel")

    def action_start(self) -> None:
        """Start the run, or go to the first invalid field."""
        if self._ready:  # a click may come earlier
            (self.focused or self).call_later(self._start_run)  # after the field has handled earlier keys

    def _start_run(self) -> None:
        if not self.is_active or self.job is not None:  # the run has been started
            return
        for field in self.query(FieldRow).results(FieldRow):
            field.take()  # the value on the screen, even if its change event is still queued
        self._sync()
        if self._errors:
            name, reason = next(iter(self._errors.items()))
            if self.form.offered(name):  # not a preset's option for another runner
                self._go_to(name)
            self._rejected, self._rejected_with = name, self.form.arguments()
            self._show_about(Text(f"✗ Not started: {flag(name)} {reason}"), wrong=True)
            return
        if self.form.question is not None:
            self._show_about(Text(f"Not started: {self.form.memory()}"), wrong=False)
            return
        self.run_job(
            "Starting the run" if self._resume is None else f"Resuming {self._resume.name}",
            partial(start_run, self.form.values(), self._resume, self.form.preset, self.form.name),
            self.dismiss,
            lambda error: self._show_about(Text(str(error)), wrong=True),
        )

    def _go_to(self, name: str) -> None:
        """Focus a field in any group."""
        group = f"group-{rows()[name].metadata['group']}"
        if self.query_one(TabbedContent).active == group:
            self._focus(name)
        else:
            self._open(group, name)

    def _focus(self, name: str) -> None:
        fields = self._fields()
        self._pending_focus = "" if fields else name  # focus it when its group is built
        if fields:
            self.set_focus(next((field for field in fields if field.id == f"edit-{name}"), fields[0]))

    def _open(self, group: str, field: str) -> None:
        """Show a group, then focus one of its fields. Nothing has the focus until then, so that keys wait."""
        self._pending_focus, self._ready = field, False
        self.set_focus(None)
        self.query_one(TabbedContent).active = group

    def _fields(self) -> list[Widget]:
        """Editors of the visible group, from top to bottom."""
        pane = self.query_one(TabbedContent).active_pane
        rows = pane.query(FieldRow) if pane is not None else ()
        return [row.editor for row in rows if row.display and row.is_mounted]

    def action_move(self, by: int) -> None:
        """Move the focus up or down through the fields and the Start button, wrapping around."""
        stops: list[Widget] = [*self._fields(), self.query_one("#start")]
        focused = self.query_one("#start") if self.focused is self.query_one("#cancel") else self.focused
        at = stops.index(focused) if focused in stops else (-1 if by > 0 else 0)  # nothing has the focus
        self.set_focus(stops[(at + by) % len(stops)])

    def action_choose(self, by: int) -> None:
        """Up or down: the next preset in their list, else the next field."""
        if not (isinstance(self.focused, PresetList) and self.focused.step(by)):
            self.action_move(by)

    def action_other_button(self) -> None:
        buttons = [self.query_one("#start"), self.query_one("#cancel")]
        if self.focused in buttons:
            self.set_focus(buttons[self.focused is buttons[0]])

    def action_next_group(self) -> None:
        self._turn(1)

    def action_previous_group(self) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        tabs, groups = self.query_one(TabbedContent), self.form.groups()
        at = groups.index(tabs.active.removeprefix("group-"))
        self._open(f"group-{groups[(at + by) % len(groups)]}", _FIRST)

    def action_reset(self) -> None:
        self._fill()
        for field in self.query(FieldRow).results(FieldRow):
            field.clear()
        self._sync()

    def action_cancel(self) -> None:
        if self._ready:
            self.dismiss(None)


def _form_of(run: Run) -> Form:
    config = run.config()
    check_code(config.values(), {}, run.path, "the run")
    return Form(config.options(), run.name)


def start_run(
    values: Mapping[str, Any], resumed: Run | None, preset: str | None, name: str | None, progress: OnProgress
) -> HostProcess:
    """Start a run, or resume one, as a job of a screen. Raises `UserError`."""
    resume = None if resumed is None else str(resumed.path)
    plan = make_plan(values, resume=resume, preset_name=preset, name=name, progress=progress)
    progress(1)
    return plan.start()
