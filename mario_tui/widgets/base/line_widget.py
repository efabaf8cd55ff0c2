"""Base class of all panels: a rule with number and title, then lines of cells; only changed lines are sent.

A refreshed Textual widget sends all its cells again, which is slow over SSH. So lines are compared here, and a changed
line is sent only up to its last changed cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat, zip_longest

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.events import Resize, Show
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

LETTERS = {10: "i", 11: "b", 12: "u"}
"""Keys of the panels with numbers above 9."""


class LineWidget(Widget, can_focus=True):
    """Subclasses draw all lines in `repaint`; unchanged lines are not sent again.

    `number` is the digit that selects the panel; numbers above 9 have a letter.
    """

    COMPONENT_CLASSES = {"line-widget--title", "line-widget--muted"}

    def __init__(
        self, title: str, *, id: str | None = None, name: str | None = None, number: int = 0, classes: str = "panel"
    ) -> None:
        super().__init__(id=id, name=name, classes=classes)
        self.title, self.number = title, number
        self.short_title = title  # used when there is no room for the title and the value
        self.framed = True
        self._lines: list[Strip] = []
        self._bodies: list[Strip] = []
        """The body lines as passed to `paint`."""
        self._base: Style | None = None

    @property
    def key(self) -> str:
        """The key that selects the panel."""
        return LETTERS.get(self.number, str(self.number))

    # ------------------------------------------------------------------------------------------ for subclasses

    @property
    def body(self) -> tuple[int, int]:
        """Columns and rows below the rule, without the one-cell margins; (0, 0) while not displayed."""
        width, height = self.content_size
        return (max(0, width - 2), max(0, height - self.framed)) if self.display and width > 2 else (0, 0)

    def repaint(self) -> None:
        """Draw all lines and pass them to `paint`."""
        raise NotImplementedError

    def paint(self, body: Sequence[Strip], value: str = "", note: str = "") -> None:
        """Show lines under a rule with the title, a value after it and a note on the right.

        Lines must include the background, as `text_lines` and the styles of `ink` do.
        """
        width, height = self.content_size
        base = self.rich_style
        rule = [self._rule(width, value, note, base)] if self.framed else []
        margin = Segment(" ", base)
        bodies = list(body[: height - len(rule)])
        known = zip(self._bodies, self._lines[len(rule) :], strict=False)
        lines = rule.copy()
        for strip, (same, line) in zip(bodies, chain(known, repeat((None, None))), strict=False):
            # An unchanged line stays the same object: creating one is expensive, and Textual caches data on it.
            if line is None or strip != same:
                line = Strip([margin, *strip, margin], strip.cell_length + 2)
            lines.append(line.adjust_cell_length(width, base))
        lines += [Strip.blank(width, base)] * (height - len(lines))
        before, self._lines, self._bodies = self._lines, lines, bodies
        changed = [
            Region(0, y, max(end, 1), 1)
            for y, (old, new) in enumerate(zip_longest(before, lines))
            if new is not None and old is not new and (end := _last_difference(old, new))
        ]
        if changed:
            self.refresh(*changed)

    def text_lines(self, text: Text, width: int) -> list[Strip]:
        """A text as strips, one per line, truncated to `width` cells."""
        strips, base = [], self.rich_style
        for line in text.split("\n", allow_blank=True):
            line.truncate(width, overflow="ellipsis")
            strips.append(Strip(Segment.apply_style(line.render(self.app.console, end=""), base), line.cell_len))
        return strips

    def ink(self, name: str) -> Style:
        """The style of a component class, including this panel's background."""
        return self.get_component_rich_style(name)

    # ------------------------------------------------------------------------------------------ the widget

    @property
    def rich_style(self) -> Style:
        """Cached until the styles change, because Textual computes it from all ancestors."""
        if self._base is None:
            self._base = super().rich_style
        return self._base

    def render(self) -> Text:
        """The content as text; the screen itself is drawn from `render_line`."""
        return Text("\n".join(line.text for line in self._lines))

    def render_line(self, y: int) -> Strip:
        if y < len(self._lines):
            return self._lines[y]
        return Strip.blank(self.content_size.width, self.rich_style)

    def on_resize(self, event: Resize) -> None:
        self._redraw()

    def on_show(self, event: Show) -> None:
        self._redraw()

    def notify_style_update(self) -> None:
        """Called when the theme or the focus has changed."""
        super().notify_style_update()
        self._base = None
        if self.is_mounted:
            self.call_after_refresh(self._redraw)

    def _redraw(self) -> None:
        if self.is_attached:  # it may have been removed in the meantime
            self._lines, self._bodies, self._base = [], [], None
            self.repaint()

    def _fitting_title(self, room: int, note: int) -> str:
        """The longest title that leaves `note` cells, else the longest that fits."""
        for needed in (note, 0):
            for title in (self.title, self.short_title):
                if len(title) + needed <= room:
                    return title
        return self.short_title

    def _rule(self, width: int, value: str, note: str, base: Style) -> Strip:
        """`─ 4 Mean return ── 632 ────── 0 – 19.8k ─`; a heavy line if the panel has the focus."""
        line = "━" if self.has_focus else "─"
        colour = self.ink("line-widget--title")
        title = self._fitting_title(width - len(value) - 9, cell_len(note) + 3 if note else 0)
        name = f"{self.key} {title}" if self.number else title
        text = Text(f"{line} ", style=colour, end="")
        text.append(name, style=Style(bold=True, underline=self.has_focus))
        if value:
            text.append(f"  {value}", style=Style(bold=True))
        text.append(" ")
        room = width - text.cell_len - 2
        if note and room >= cell_len(note) + 2:
            text.append(line * (room - cell_len(note) - 1) + f" {note} ")
        text.truncate(max(0, width - 1), overflow="ellipsis")
        text.append(line * (width - text.cell_len))
        return Strip(Segment.apply_style(text.render(self.app.console, end=""), base), width)


def _last_difference(old: Strip | None, new: Strip) -> int:
    """One past the last cell that differs; 0 if none does."""
    if old is None or old.cell_length != new.cell_length:
        return new.cell_length
    if old == new:
        return 0
    end = new.cell_length
    for before, after in zip(reversed(list(old)), reversed(list(new)), strict=False):
        if before != after:
            break
        end -= after.cell_length
    return end
