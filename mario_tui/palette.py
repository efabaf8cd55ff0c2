"""What the command palette shows: each command's keys and help, and the themes, beginning with the one in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual.markup import escape
from textual.theme import ThemeProvider

from mario_tui.data.keys import Key, shown_name


def help_with_keys(key: Key, keymap: Mapping[str, str]) -> str:
    """The help of a command and its keys, as markup."""
    return f"{escape(key.help)} · [b]{escape(shown_name(key, keymap))}[/b]"


class Themes(ThemeProvider):
    """Textual's list of themes. The one in use comes first: the list highlights its first line when it opens, and the
    highlighted theme is previewed."""

    @property
    def commands(self) -> list[tuple[str, Callable[[], None]]]:
        return sorted(super().commands, key=lambda command: command[0] != self.app.theme)
