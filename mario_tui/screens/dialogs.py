"""Dialogs over a screen: a question, the help, the options of a new run."""

from __future__ import annotations

import shlex

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from engine.config import given
from engine.errors import UserError
from mario_tui.cli import training_parser
from mario_tui.keys import KEYS, shown_name
from mario_tui.launch import Plan, make_plan


class ConfirmScreen(ModalScreen[bool]):
    """A question that Enter or y answers with yes, Escape or n with no."""

    BINDINGS = [Binding("enter,y", "answer(True)", "Yes"), Binding("escape,n", "answer(False)", "No")]

    def __init__(self, question: str, consequence: str) -> None:
        super().__init__()
        self._question, self._consequence = question, consequence

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question, style="bold"))
            yield Static(Text(self._consequence))
            yield Static(Text("y or enter: yes      n or esc: no", style="dim"))

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class HelpScreen(ModalScreen[None]):
    """Every key and what it does, from the key table."""

    BINDINGS = [Binding("escape,q,question_mark,f1,enter", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        table = Table.grid(padding=(0, 2))
        for place, title in (("home", "Home"), ("dashboard", "Dashboard"), ("everywhere", "Everywhere")):
            table.add_row(Text(title, style="bold"), "")
            for key in KEYS:
                if key.place == place:
                    table.add_row(Text(shown_name(key), style="bold cyan"), key.help)
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "Help"
            yield Static(table)
            yield Static(Text("\nesc closes this", style="dim"))


class NewRunScreen(ModalScreen[Plan | None]):
    """One line of options, as on the command line; an empty one starts the default run."""

    BINDINGS = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, options: str = "") -> None:
        super().__init__()
        self._options = options

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "New run"
            yield Static("Options as on the command line; Enter starts, with none of them the default run.")
            yield Input(self._options, placeholder="--stage 1-2 --parallel-envs 16 --steps 1e6")
            yield Static(id="complaint")
            yield Static(Text("enter: start      esc: cancel      all options: mario-tui --help", style="dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self.dismiss(self._plan(shlex.split(event.value)))
        except (UserError, ValueError) as error:
            self.query_one("#complaint", Static).update(Text(str(error), style="bold red"))

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _plan(self, arguments: list[str]) -> Plan:
        for argument in arguments:
            if argument in ("-h", "--help", "--version", "--no-ui") or argument.startswith("--log-format"):
                raise UserError(f"{argument}: is for the command line only")
        options = training_parser().parse_args(arguments)
        return make_plan(given(options), options.config, options.resume)
