"""Dialog for the tags and the note of a run."""

from __future__ import annotations

import contextlib

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Label, Static

from engine.errors import UserError
from engine.runs.annotation import Annotation, make_annotation
from engine.runtime.text import printable
from mario_tui.screens.base import Modal


class AnnotateScreen(Modal[Annotation]):
    """Returns the new annotation; None if the user cancels."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel"),
        Binding("down", "app.focus_next"),
        Binding("up", "app.focus_previous"),
    ]

    def __init__(self, name: str, now: Annotation) -> None:
        super().__init__()
        self._run_name, self._now = name, now

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Text(printable(self._run_name))
            for label, text in (("tags", " ".join(self._now.tags)), ("note", self._now.note)):
                with Horizontal(classes="field"):
                    yield Label(f"{label:<6}")
                    yield Input(printable(text), id=label, compact=True)
            yield Static(id="error")
            yield Static(Text("enter: save      tab: next field      esc: cancel", style="dim"))

    def _annotation(self) -> Annotation:
        """Raises `UserError` if a field is invalid."""
        return make_annotation(self.query_one("#tags", Input).value, self.query_one("#note", Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        error = ""
        try:
            self._annotation()
        except UserError as wrong:
            error = str(wrong)
        self.query_one("#error", Static).update(Text(error, style="bold red"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        with contextlib.suppress(UserError):  # its reason is on the screen
            self.dismiss(self._annotation())

    def action_cancel(self) -> None:
        self.dismiss(None)
