"""The new-run form: generated from the configuration's fields and validated while the user types."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Button, Footer, Input, Static, TabbedContent, TabPane

from engine.config.run_config import flag
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.runs.run import Run
from mario_tui.data.form import ROWS, Form
from mario_tui.data.keys import bindings
from mario_tui.launch import make_plan
from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.field_row import FieldRow, TextField

_FIRST = "*"


class NewRunScreen(PlaceScreen[HostProcess | None]):
    """Returns the host of the started run, or None. `resume`: the run to resume; its options are the defaults.

    The Start button has the focus first, so that Enter starts a run with the defaults. A group's rows are built when it
    is first shown, so that the form opens at once.
    """

    PLACE = "form"
    BINDINGS = [
        *bindings("form"),
        ("up", "move(-1)"),
        ("down", "move(1)"),
        ("left", "other_button"),
        ("right", "other_button"),
        ("enter", "start"),  # pressed before the Start button had the focus
    ]
    CSS_PATH = "new_run.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-normal")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]

    def __init__(
        self, run_dir: str | None = None, resume: Run | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._resume = resume
        self.form = Form() if resume is None else Form(resume.config().options(), resume.name)
        self._given = dict(options or {})
        self._errors: dict[str, str] = {}
        self._rejected = ""
        """The invalid field that prevented the start, until something is changed."""
        self._pending_focus = ""
        """The field to focus as soon as its group is built; `_FIRST` stands for the group's first field."""
        self._ready = False
        self._early: list[Key] = []
        """Keys that arrived while a group was being built; they are replayed afterwards."""
        if run_dir is not None:
            self._given["run_dir"] = run_dir
        self._fill()

    def _fill(self) -> None:
        self.form.reset()
        for name, text in self._given.items():
            self.form.set(name, text)

    def compose(self) -> ComposeResult:
        title = "New run" if self._resume is None else f"Resume {self._resume.name}"
        yield Static(Text(title, style="bold"), id="title")
        with TabbedContent(id="groups"):
            for group in dict.fromkeys(str(spec.metadata["group"]) for spec in ROWS.values()):
                yield TabPane(group.capitalize(), VerticalScroll(can_focus=False), id=f"group-{group}")
        yield Static(id="about")
        yield Static(id="command")
        yield Static(id="memory")
        with Horizontal(id="buttons"):
            yield Button("Start", id="start", variant="success", compact=True)
            yield Button("Cancel", id="cancel", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#start").focus()
        self._sync()

    # ------------------------------------------------------------------------------------------ what it shows

    async def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        pane = event.pane
        if not pane.query(FieldRow):
            group = str(pane.id).removeprefix("group-")
            names = [name for name, spec in ROWS.items() if spec.metadata["group"] == group]
            await pane.query_one(VerticalScroll).mount_all(FieldRow(self.form, name) for name in names)
            self._sync()
        if self.focused is not None and not self._in_sight(self.focused):
            self._pending_focus = _FIRST  # the tab was clicked
        self.call_after_refresh(self._set_ready)

    def _set_ready(self) -> None:
        """Replay the keys that arrived too early."""
        if not self._fields():
            return  # another group was selected in the meantime and is being built
        self._ready = True
        if self._pending_focus:
            self._focus(self._pending_focus)
        early, self._early = self._early, []
        for key in early:
            again = Key(key.key, key.character)
            again.set_sender(self.app)  # otherwise its bindings would not be looked up
            self.app.post_message(again)

    def hold(self, key: Key) -> bool:
        """Receive keys in the order in which they were typed: keep them while fields are being built, and pass letters
        to the focused field."""
        if not self._ready:
            self._early.append(key)
        elif isinstance(self.focused, TextField) and key.is_printable and key.character is not None:
            self.focused.call_later(self.focused.put_in, key.character)  # after it has handled its focus event
        else:
            return False
        return True

    def on_field_row_changed(self) -> None:
        self._rejected = ""
        self._sync()

    def on_field_row_entered(self, event: FieldRow.Entered) -> None:
        self._describe(event.field)

    def _describe(self, field: str) -> None:
        """Show the field's full help or error in the line below the fields."""
        wrong = field in self._errors
        if wrong:
            name = f"Not started: {flag(field)} " if field == self._rejected else ""
            self._show_about(Text(f"✗ {name}{self._errors[field]}"), wrong=True)
        else:
            self._show_about(self.query_one(f"#row-{field}", FieldRow).about, wrong=False)

    def _show_about(self, text: Text, *, wrong: bool) -> None:
        about = self.query_one("#about", Static)
        about.set_class(wrong, "-wrong")
        about.update(text)

    def _sync(self) -> None:
        """Update everything that depends on the typed values."""
        errors = self.form.errors()
        for row in self.query(FieldRow):
            if row.is_mounted:
                row.sync(errors.get(row.field, ""))
        tabs = self.query_one(TabbedContent)
        offered = self.form.groups()
        wrong = {str(ROWS[name].metadata["group"]) for name in errors}
        for pane in self.query(TabPane):
            group = str(pane.id).removeprefix("group-")
            tab = tabs.get_tab(pane)
            tab.display = group in offered
            tab.label = group.capitalize() + (" ✗" if group in wrong else "")
        self.query_one("#command", Static).update(Text(self.form.command(), no_wrap=True, overflow="ellipsis"))
        memory = self.form.memory()
        self.query_one("#memory", Static).update(Text(memory, style="bold red" if "TOO MUCH" in memory else ""))
        self._errors = errors
        for row in self.query(FieldRow):
            if row.has_focus_within:
                self._describe(row.field)

    # ------------------------------------------------------------------------------------------ what it does

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        await self.run_action("start" if event.button.id == "start" else "cancel")

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        await self.run_action("start")

    def action_start(self) -> None:
        """Start the run, or go to the first invalid field."""
        if self._ready:  # a click may come earlier
            (self.focused or self).call_later(self._start_run)  # after the field has handled earlier keys

    def _start_run(self) -> None:
        for field in self.query(FieldRow).results(FieldRow):
            field.take()  # the value on the screen, even if its change event is still queued
        self._sync()
        if self._errors:
            name, reason = next(iter(self._errors.items()))
            if self.form.offered(name):  # not a preset's option for another runner
                self._go_to(name)
            self._rejected = name
            self._show_about(Text(f"✗ Not started: {flag(name)} {reason}"), wrong=True)
            return
        try:
            resume = None if self._resume is None else str(self._resume.path)
            self.dismiss(make_plan(self.form.values(), resume=resume, preset_name=self.form.preset).start())
        except UserError as error:
            self._show_about(Text(str(error)), wrong=True)

    def _go_to(self, name: str) -> None:
        """Focus a field in any group."""
        group = f"group-{ROWS[name].metadata['group']}"
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

    def _in_sight(self, widget: Widget) -> bool:
        return all(node.display for node in widget.ancestors_with_self if isinstance(node, Widget))

    def action_move(self, by: int) -> None:
        """Move the focus up or down through the fields and the buttons, wrapping around."""
        stops: list[Widget] = [*self._fields(), self.query_one("#start")]
        focused = self.query_one("#start") if self.focused is self.query_one("#cancel") else self.focused
        at = stops.index(focused) if focused in stops else (-1 if by > 0 else 0)  # -1: on the tabs above
        self.set_focus(stops[(at + by) % len(stops)])

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
            editor = field.editor
            if isinstance(editor, Input):
                with self.prevent(Input.Changed):
                    editor.value = self.form.typed(field.field)
        self._sync()

    def action_cancel(self) -> None:
        if self._ready:
            self.dismiss(None)
