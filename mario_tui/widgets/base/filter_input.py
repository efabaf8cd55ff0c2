"""The line of a screen in which a filter is typed; hidden while there is none."""

from __future__ import annotations

from textual.widget import Widget
from textual.widgets import Input

from mario_tui.data.run_filter import words_of


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
