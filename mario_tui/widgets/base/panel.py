"""Base classes of panels: a rule with number and title, then lines of cells, which may be more than fit, a list with a
cursor, or text made from a snapshot with bars and sparklines.

A refreshed Textual widget sends all its cells again, which is slow over SSH. So lines are compared here, and a changed
line is sent only up to its last changed cell. Of a list only visible rows are drawn.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from itertools import chain, repeat, zip_longest
from typing import Any, Generic, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize, Show
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from mario_tui.data.format import fraction
from mario_tui.data.run_status import Snapshot
from mario_tui.terminal.internals import AbstractMeta


class LineWidget(Widget, can_focus=True, metaclass=AbstractMeta):
    """Subclasses draw all lines in `repaint`; unchanged lines are not sent again.

    `key` is the digit or letter that selects the panel.
    """

    COMPONENT_CLASSES = {"line-widget--title", "line-widget--muted"}

    def __init__(self, title: str, *, key: str = "", classes: str = "panel", **more: Any) -> None:
        """`more`: what every widget takes, such as `id`."""
        super().__init__(classes=classes, **more)
        self.title, self.key = title, key
        self.short_title = title  # used when there is no room for the title and the value
        self.framed = True
        self._lines: list[Strip] = []
        self._bodies: list[Strip] = []
        """The body lines as passed to `paint`."""
        self._base: Style | None = None

    # ------------------------------------------------------------------------------------------ for subclasses

    @property
    def body(self) -> tuple[int, int]:
        """Columns and rows below the rule, without the one-cell margins; (0, 0) while not displayed."""
        width, height = self.content_size
        return (max(0, width - 2), max(0, height - self.framed)) if self.display and width > 2 else (0, 0)

    @abstractmethod
    def repaint(self) -> None:
        """Draw all lines and pass them to `paint`."""

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
        name = f"{self.key} {title}" if self.key else title
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


_WHEEL_LINES = 3


class MovableLines(LineWidget):
    """Subclasses implement `action_move` and `action_page`. Numbers below 0 go up, and may be larger than the panel.

    Beside another panel class this one comes second, because Textual takes styles only from the first base.
    """

    BINDINGS = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "move(-1000000)", "First", show=False),
        Binding("end", "move(1000000)", "Last", show=False),
    ]

    @abstractmethod
    def action_move(self, lines: int) -> None:
        """Move by some lines."""

    @abstractmethod
    def action_page(self, pages: int) -> None:
        """Move by what fits into the panel."""

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.action_move(-_WHEEL_LINES)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.action_move(_WHEEL_LINES)


Row = TypeVar("Row")


class ListPanel(MovableLines, Generic[Row]):
    """A line of heads, and below it `rows`. Subclasses implement `keys`. The cursor stays on its row, by the row's key,
    when the order changes."""

    class Opened(Message):
        """A row was double-clicked."""

    def __init__(self, title: str, *, id: str, key: str) -> None:
        super().__init__(title, id=id, key=key)
        self.rows: Sequence[Row] = ()
        self._cursor: Hashable = None
        self._top = 0

    @abstractmethod
    def keys(self) -> Sequence[Hashable]:
        """The keys of all rows, in their order."""

    @property
    def index(self) -> int:
        """The row of the cursor; the first one if its row is gone."""
        return next((index for index, key in enumerate(self.keys()) if key == self._cursor), 0)

    @property
    def selected(self) -> Row | None:
        return self.rows[self.index] if self.rows else None

    def rows_to_draw(self, rows: int) -> range:
        """The rows that are visible if there is room for `rows`; the cursor is one of them."""
        keys = self.keys()
        if self._cursor is None and keys:
            self._cursor = keys[0]
        count, index = len(keys), self.index
        self._top = max(0, min(self._top, count - rows, index), index - rows + 1)
        return range(self._top, min(self._top + rows, count))

    def position(self, shown: range) -> str:
        """`3–12 of 40`; empty if all rows are visible."""
        count = len(self.rows)
        return "" if len(shown) >= count else f"{shown.start + 1}–{shown.stop} of {count}"

    def go(self, index: int) -> None:
        """Move the cursor to a row, or to the nearest one that exists."""
        keys = self.keys()
        if keys:
            self._cursor = keys[min(max(index, 0), len(keys) - 1)]
            self.repaint()

    def action_move(self, lines: int) -> None:
        self.go(self.index + lines)

    def action_page(self, pages: int) -> None:
        self.go(self.index + pages * max(1, self.body[1] - 2))

    def on_click(self, event: Click) -> None:
        """Select a row; a double click opens it."""
        row = self._top + event.y - 2
        if event.y >= 2 and row < len(self.rows):
            self.go(row)
            if event.chain >= 2:
                self.post_message(self.Opened())


class Panel(LineWidget):
    """Subclasses implement `compose_text`, and `is_needed` if they are hidden in some runs."""

    def __init__(self, title: str, *, id: str, key: str = "", classes: str = "panel") -> None:
        super().__init__(title, id=id, key=key, classes=classes)
        self._snapshot = Snapshot()
        self._natural = self._laid_out = 0  # lines
        self._drawn: object = None  # content of the lines; converting text to lines is expensive
        self.set_class(not self.is_needed(self._snapshot), "-off")

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""
        self._snapshot = snapshot
        self.set_class(not self.is_needed(snapshot), "-off")
        self.repaint()
        if self._natural != self._laid_out and self.styles.is_auto_height:
            self.refresh(layout=True)

    def repaint(self) -> None:
        width, height = self.body
        if height:
            text = self.compose_text(self._snapshot, width)
            self._natural = text.plain.count("\n") + 1
            note = self.note()
            drawn = text, text.style, note, self.body
            if drawn != self._drawn or not self._lines:
                self._drawn = drawn
                self.paint(self.text_lines(text, width), note=note)

    def is_needed(self, snapshot: Snapshot) -> bool:
        """Return whether there is anything to show in such a run."""
        return True

    @abstractmethod
    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        """The panel's content for a width in cells."""

    def note(self) -> str:
        """Text at the right end of the rule."""
        return ""

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """Height for the style `height: auto`: the number of lines."""
        self._natural = self.compose_text(self._snapshot, max(1, width - 2)).plain.count("\n") + 1
        self._laid_out = self._natural
        return self._natural + self.framed


def bar(share: float, width: int) -> str:
    """A horizontal bar with a resolution of an eighth of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8) if math.isfinite(share) else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "·")


def sparkline(values: Sequence[float], width: int, low: float | None = None, high: float | None = None) -> str:
    """The last `width` values as block characters, scaled to their range or to the bounds; blank if not finite."""
    values = values[-width:]
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite) if low is None else low, max(finite) if high is None else high
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(
        blocks[min(7, int(fraction(value - low, high - low) * 8))] if math.isfinite(value) else " " for value in values
    )
