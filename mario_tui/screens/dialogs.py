"""Dialogs: a question, a text to copy, the help."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Resize
from textual.widgets import Button, Static

from engine.runtime.text import printable
from mario_tui.data.introduction import PANELS
from mario_tui.data.keys import KEYS, PLACES, TITLES, Key, Place, keys_in, shown_name
from mario_tui.data.settings import settings_path
from mario_tui.screens.base import Modal


class ConfirmScreen(Modal[bool]):
    """A yes/no question: y means yes, Escape or n means no; or click a button. Enter presses the focused button: at
    first Yes, but No if yes would be `irreversible`."""

    BINDINGS = [Binding("y", "answer(True)", "Yes"), Binding("escape,n", "answer(False)", "No")]
    AUTO_FOCUS = ""

    def __init__(self, question: str, consequence: str, *, irreversible: bool = False) -> None:
        super().__init__()
        self._question, self._consequence, self._irreversible = question, consequence, irreversible

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question, style="bold"))
            yield Static(Text(self._consequence))
            with Horizontal(classes="buttons"):
                yes, no = ("y", "n, esc or enter") if self._irreversible else ("y or enter", "n or esc")
                yield Button(f"Yes ({yes})", id="yes", compact=True, action="screen.answer(True)")
                yield Button(f"No ({no})", id="no", compact=True, action="screen.answer(False)")

    def on_mount(self) -> None:
        self.set_focus(self.query_one("#no" if self._irreversible else "#yes"))

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class TextScreen(Modal[None]):
    """A text, also copied to the clipboard if the terminal supports it."""

    BINDINGS = [Binding("escape,q,y,enter", "dismiss", "Close")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._heading, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = Text(printable(self._heading))  # as a Text: it may contain square brackets
            yield Static(Text(self._text), id="text")
            yield Static(Text("copied, if your terminal supports OSC 52      esc: close", style="dim"))

    def on_mount(self) -> None:
        self.app.copy_to_clipboard(self._text)


class HelpScreen(Modal[None]):
    """Keys and their actions, from the key table and the user's key map. First what a newcomer needs: the panels, the
    keys of a person's game (`own`), and the keys in the footer of `place`; then all others."""

    BINDINGS = [Binding("escape,q,question_mark,f1,enter", "dismiss", "Close")]

    def __init__(
        self,
        place: Place,
        keymap: Mapping[str, str],
        own: Mapping[str, str] | None = None,
        *,
        works: Callable[[Key], object] = lambda key: True,
    ) -> None:
        """`works`: whether a key of this place does something now; the others are left out."""
        super().__init__()
        self._place, self._keymap, self._own, self._works = place, keymap, own or {}, works

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-normal")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "Help"
            yield Static(id="keys")
            yield Static(Text(f'change keys in {settings_path()}:\n[keys]\n"home.new" = "a,f2"', style="dim"))
            yield Static(Text("esc: close", style="dim"))

    def on_resize(self, event: Resize) -> None:
        """Two columns; on a narrow screen the description goes below the key."""
        narrow = event.size.width < 64
        self.query_one("#keys", Static).update(Group(*(self._under() if narrow else self._beside())))

    def _parts(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Titles, and under each the keys and what they do."""
        parts = [("Your game", list(self._own.items()))] if self._own else []
        if self._place == "dashboard":
            parts.append(("Panels", list(PANELS.items())))
        here = [key for key in keys_in(self._place) if self._works(key)]
        parts.append((TITLES[self._place], self._named([key for key in here if key.shown])))
        parts.append(("Everywhere", self._named(keys_in("everywhere"))))
        parts.append((f"{TITLES[self._place]}: more keys", self._named([key for key in here if not key.shown])))
        if self._place != "play":  # a program of its own
            others = [place for place in PLACES if place not in (self._place, "everywhere")]
            parts += [(TITLES[place], self._named(keys_in(place))) for place in others]
        return parts

    def _named(self, keys: list[Key]) -> list[tuple[str, str]]:
        return [(shown_name(key, self._keymap), key.help) for key in keys]

    def _under(self) -> list[Text]:
        parts: list[Text] = []
        for title, keys in self._parts():
            parts.append(Text(title, style="bold"))
            for name, action in keys:
                parts += [Text(name, style="bold cyan", no_wrap=True), Text(action)]
            parts.append(Text())
        return parts

    def _beside(self) -> list[Text | Table]:
        parts: list[Text | Table] = []
        widest = max(len(shown_name(key, self._keymap)) for key in KEYS)
        for title, keys in self._parts():
            table = Table.grid(Column(min_width=widest), Column(), padding=(0, 2))
            for name, action in keys:
                table.add_row(Text(name, style="bold cyan"), action)
            parts += [Text(title, style="bold"), table, Text()]
        return parts
