"""A new run as a form: made from the configuration's fields, checked while it is filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Button, Footer, Input, Static, TabbedContent, TabPane

from engine.client import HostProcess
from engine.errors import UserError
from engine.runs import Run
from mario_tui.form import ROWS, Form
from mario_tui.keys import bindings
from mario_tui.launch import make_plan
from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.field_row import FieldRow


class NewRunScreen(PlaceScreen[HostProcess | None]):
    """Opens on the Start button, so that Enter starts what is there; `resume`: go on with this run, with its options.
    It gives the host of the run that it has started.

    A group's rows are built when it is first looked at: the form is there at once.
    """

    PLACE = "form"
    BINDINGS = [
        *bindings("form"),
        ("up", "app.focus_previous"),
        ("down", "app.focus_next"),
        ("enter", "start"),  # typed before the Start button had the focus
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
        self._sought = ""
        self._ready = False
        self._hurried: Callable[[], None] | None = None
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
        if self._sought:
            self._go_to(self._sought)
        self.call_after_refresh(self._be_ready)

    def _be_ready(self) -> None:
        """What is half built can't be left: a key that came too early counts now."""
        self._ready = True
        if self._hurried is not None:
            self._hurried()
            self._hurried = None

    def on_field_row_changed(self) -> None:
        self._sync()

    def on_field_row_entered(self, event: FieldRow.Entered) -> None:
        self.query_one("#about", Static).update(self.query_one(f"#row-{event.field}", FieldRow).about)

    def _sync(self) -> None:
        """Everything that follows from what was typed."""
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

    # ------------------------------------------------------------------------------------------ what it does

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        await self.run_action("start" if event.button.id == "start" else "cancel")

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        await self.run_action("start")

    def action_start(self) -> None:
        """Start; or go to the first field that is wrong."""
        if not self._ready:
            self._hurried = self.action_start
            return
        if self._errors:
            name, reason = next(iter(self._errors.items()))
            if self.form.offered(name):
                self._go_to(name)
            else:  # a preset's, of another runner
                self.query_one("#about", Static).update(Text(f"{name}: {reason}", style="bold red"))
            return
        try:
            resume = None if self._resume is None else str(self._resume.path)
            self.dismiss(make_plan(self.form.values(), resume=resume, preset_name=self.form.preset).start())
        except UserError as error:
            self.query_one("#about", Static).update(Text(str(error), style="bold red"))

    def _go_to(self, name: str) -> None:
        self.query_one(TabbedContent).active = f"group-{ROWS[name].metadata['group']}"
        rows = self.query(f"#edit-{name}")
        if rows:
            rows.first().focus()
        self._sought = "" if rows else name  # its group is built first

    def action_next_group(self) -> None:
        self._turn(1)

    def action_previous_group(self) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        tabs, groups = self.query_one(TabbedContent), self.form.groups()
        at = groups.index(tabs.active.removeprefix("group-"))
        tabs.active = f"group-{groups[(at + by) % len(groups)]}"
        self.query_one("#start").focus()

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
        else:
            self._hurried = self.action_cancel
