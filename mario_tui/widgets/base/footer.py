"""Lines at the bottom of a screen: its keys, as many as fit, and the filter, hidden while there is none."""

from __future__ import annotations

from typing import Any

from textual.widget import Widget
from textual.widgets import Footer, Input

from mario_tui.data.differences import words_of
from mario_tui.terminal.internals import forget_removed_watchers

_ALWAYS = ("help", "quit_app", "detach", "leave", "cancel")


class KeyFooter(Footer):
    """Where there is no room for all keys, those at the end are left out: the help names them."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)

    async def recompose(self) -> None:
        await super().recompose()
        forget_removed_watchers(self)
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        keys, groups, labels = (set[Any](self.query(kind)) for kind in ("FooterKey", "KeyGroup", "FooterLabel"))

        def width(child: Any) -> int:
            """Cells of a compact key, a group of keys without labels, or the label of a group, with the space after."""
            if child in groups:
                return 2 + sum(len(key.key_display) for key in child.children)
            if child in keys:
                return len(child.key_display) + len(child.description) + 2
            return len(str(child.render())) + 1 if child in labels else 0

        stay = {key for key in keys if key.action in _ALWAYS}
        room, full = self.size.width - sum(map(width, stay)), False
        for child in self.children:
            if child not in stay:
                room -= width(child)
                full = full or room < 0
                child.display = not full


class FilterInput(Input):
    """Posts `Input.Changed` for every key, so that the screen can filter while its user types.

    `placeholder`: what can be typed, and the keys that keep and clear it. `back`: the widget that gets the focus after
    either of them.
    """

    def __init__(self, placeholder: str, back: Widget) -> None:
        super().__init__(id="filter", placeholder=placeholder, compact=True)
        self._back = back
        self.display = False

    @property
    def words(self) -> list[str]:
        """The words to look for, in lower case; none if there is no filter."""
        return words_of(self.value)

    def open(self) -> None:
        """Show the line, for typing."""
        self.display = True
        self.focus()

    def close(self) -> bool:
        """Remove the filter and hide the line; False if it was hidden already."""
        if not self.display:
            return False
        self.value = ""
        self.display = False
        self.screen.set_focus(self._back)
        return True

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter on the screen, unless it is empty."""
        event.stop()
        if self.words:
            self.screen.set_focus(self._back)
        else:
            self.close()
