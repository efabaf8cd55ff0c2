"""Dialog to change training settings of a live run: learning rate, epsilon, beta, replay ratio, gamma."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Label, Static

from engine.config.common_options import TUNABLE_BOUNDS
from engine.config.fields import must_be_within
from engine.protocol.commands import Set, Tunable
from mario_tui.screens.base import Modal

SETTINGS: dict[Tunable, tuple[str, float, float]] = {
    name: (name.replace("_", " "), *TUNABLE_BOUNDS[name]) for name in get_args(Tunable)
}
"""Label and range of each setting; the engine validates the values again."""


class TuneScreen(Modal[list[Set]]):
    """One field per setting, filled with its current value. Enter returns the changed ones."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel"),
        Binding("down", "app.focus_next"),
        Binding("up", "app.focus_previous"),
    ]

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (56, "-normal")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]

    def __init__(self, now: Mapping[Tunable, float]) -> None:
        super().__init__()
        self._now = {name: f"{now[name]:g}" if name in now else "" for name in SETTINGS}

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Change training settings"
            for name, (title, low, high) in SETTINGS.items():
                with Horizontal(classes="field"):
                    yield Label(f"{title:<14}")
                    yield Input(self._now[name], id=name, compact=True)
                    yield Label(f" {low:g} to {high:g}", classes="range")
            yield Static(id="error")
            yield Static(Text("enter: change      tab: next field      esc: cancel", style="dim"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#error", Static).update(Text(self._error(), style="bold red"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if not self._error():
            self.dismiss(
                [
                    Set(name=name, value=float(self._typed(name)))
                    for name in SETTINGS
                    if self._typed(name) not in ("", self._now[name])
                ]
            )

    def action_cancel(self) -> None:
        self.dismiss([])

    def _typed(self, name: Tunable) -> str:
        return self.query_one(f"#{name}", Input).value.strip()

    def _error(self) -> str:
        """What is wrong with the first invalid field; empty if all are valid."""
        for name, (title, low, high) in SETTINGS.items():
            text = self._typed(name)
            if (text or self._now[name]) and not low <= _number(text) <= high:
                return f"{title} {must_be_within(low, high, text, whole=False)}"
        return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
