"""A picture in real pixels over cells of a widget: when it is sent, where, and what it may cost.

Its codes travel in the same write as the cells that an update of the screen sends. Kitty's image belongs to the cells;
those of Sixel and iTerm2 are painted over blank ones, so they are painted again after the cells were sent again, and
never over another widget. On slow links frames are dropped, never queued, and fewer are requested.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from mario_tui.terminal.driver import TerminalDriver
from mario_tui.terminal.graphics import (
    MAX_CELLS,
    Graphics,
    GraphicsDriver,
    cell_size,
    iterm2_image,
    kitty_cells,
    kitty_delete,
    kitty_image,
    sixel_image,
)
from mario_tui.terminal.internals import LinesUpdate, ScreenUpdate, Writer, driver_of, visible_widgets, writes
from mario_tui.terminal.output import is_full

_WINDOW_S = 3.0
_MAX_DROPPED_SHARE = 0.25


def busy(app: App[Any]) -> bool:
    """Return whether earlier output is still waiting to be written."""
    writer = _writer_of(app)
    return writer is not None and writes(writer)


def slow(app: App[Any]) -> bool:
    """Return whether output waits because the terminal takes no more; on a busy machine, it also waits for its
    thread."""
    writer = _writer_of(app)
    return writer is not None and writes(writer) and is_full(writer.fileno())


def _writer_of(app: App[Any]) -> Writer | None:
    """None in a browser, in a test, and while another program has the terminal."""
    driver = driver_of(app)
    return driver.writer if isinstance(driver, TerminalDriver) else None


class Pace:
    """Frame rate of the game view, between 1 and `most` frames per second, from the share of dropped frames."""

    def __init__(self, most: float) -> None:
        self.most = self.fps = most
        self._since: float | None = None
        self._offered = self._dropped = 0

    def offered(self, dropped: bool, now: float) -> bool:
        """Count a frame; returns whether `fps` changed. `now`: seconds of any clock."""
        self._since = now if self._since is None else self._since
        self._offered += 1
        self._dropped += dropped
        if now - self._since < _WINDOW_S or self._offered < 3:
            return False
        share = self._dropped / self._offered
        self._since, self._offered, self._dropped = now, 0, 0
        before = self.fps
        if share > _MAX_DROPPED_SHARE:
            self.fps = max(1.0, self.fps / 2)
        elif share == 0:
            self.fps = min(self.most, self.fps * 1.5)
        return self.fps != before


BYTES_PER_S = 44 * 1024
"""Of pictures; larger pictures come more rarely. The rest of a link of 60 KiB/s is for everything else."""
_CREDIT_S = 0.25
"""Time whose unused bytes may be used later: frames come at times of their own."""
_MOST_SIXELS = 1024, 960
"""Width and height in pixels above which a Sixel picture does not grow, for its bytes and its drawing time."""


class Picture:
    """The picture of one widget. `box`: its cells, relative to the widget's content."""

    def __init__(self, widget: Widget, repaint: Callable[[], None], bytes_per_s: int = BYTES_PER_S) -> None:
        """`repaint` is called when the picture has become possible or impossible."""
        self._widget, self._repaint, self._bytes_per_s = widget, repaint, bytes_per_s
        self.box = Region()
        self.graphics: Graphics | None = None
        """How the terminal draws images; None as long as it shows none."""
        self._covered = False
        self._image: list[str] = []
        self.unsent = False
        """Whether `draw` was called after the last update of the screen."""
        self._ready_at = 0.0
        # At random, because the panes of tmux share the terminal's images; light, as no image has the number of black.
        self._colour = Color.from_triplet(ColorTriplet(*(0x80 | part for part in os.urandom(3))))

    @property
    def possible(self) -> bool:
        """Return whether the picture can be drawn now: not below a dialog, which dims what is below it, or below a
        note."""
        return self.graphics is not None and not self._covered and self._widget.app.screen is self._widget.screen

    @property
    def due(self) -> bool:
        """Return whether the link has taken the last picture, and its budget allows for another."""
        return time.monotonic() >= self._ready_at and not busy(self._widget.app)

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a cell in pixels."""
        driver = driver_of(self._widget.app)
        if self.graphics is None or not isinstance(driver, GraphicsDriver):
            return 1, 2
        return cell_size(driver.fileno, self.graphics)

    def most_cells(self, columns: int, rows: int) -> tuple[int, int]:
        """The most cells that a picture may take of `columns` x `rows`."""
        if self.graphics is not None and self.graphics.protocol == "sixel":
            (width, height), (wide, tall) = self.cell, _MOST_SIXELS
            return min(columns, max(2, wide // width)), min(rows, max(1, tall // height))
        return min(columns, MAX_CELLS), min(rows, MAX_CELLS)

    def draw(self, rgb: Any, aspect: float) -> list[list[Segment]]:
        """Take an image, uint8 [height, width, 3] with pixels `aspect` times as wide as high, to be sent with the next
        update of the screen. Returns the cells of the box, row by row."""
        assert self.graphics is not None
        columns, rows = self.box.size
        self.unsent = True
        base = self._widget.rich_style
        if self.graphics.protocol == "kitty":
            self._image = kitty_image(rgb, aspect, columns, rows, self._image_id)
            style = base + Style(color=self._colour)
            return [[Segment(kitty_cells(row, columns), style)] for row in range(rows)]
        if self.graphics.protocol == "iterm2":
            self._image = [iterm2_image(rgb, columns, rows)]
        else:
            (wide, tall), (height, width) = self.cell, rgb.shape[:2]
            scale = min(columns * wide / (width * aspect), rows * tall / height)
            size = round(width * aspect * scale), round(height * scale)
            self._image = [sixel_image(rgb, *size, self.graphics.colours)]
        return [[Segment(" " * columns, base)]] * rows

    def erase(self) -> None:
        """Forget the image. Those over cells are erased by the text that replaces them."""
        self._image, self.unsent = [], False

    def clear(self) -> None:
        """Remove the image from the terminal's memory."""
        self.erase()
        driver = driver_of(self._widget.app)
        if isinstance(driver, GraphicsDriver) and self.graphics is not None:
            driver.remove_image(self._removal)

    def added_to(self, update: ScreenUpdate, screen: Screen[Any]) -> ScreenUpdate:
        """An update of the screen, followed by the picture where it is new or was overwritten."""
        visible = visible_widgets(screen)
        if self.graphics is None or self._widget not in visible:
            return update
        region, clip = visible[self._widget]
        place = self.box.translate(region.shrink(self._widget.styles.gutter).offset)
        if self.graphics.painted:
            own = self._widget.ancestors_with_self
            others = (shape.intersection(limit) for other, (shape, limit) in visible.items() if other not in own)
            covered = not clip.contains_region(place) or any(other.overlaps(place) for other in others)
            if covered != self._covered:
                self._covered = covered
                self._widget.call_later(self._repaint)
            if covered:
                return update
        if not self._image or not (self.unsent or self._is_overwritten(update, region, place)):
            return update
        self.unsent = False
        codes = "".join(self._codes(place))
        self._ready_at = max(self._ready_at, time.monotonic() - _CREDIT_S) + len(codes) / self._bytes_per_s
        return _WithCodes(update, codes)

    def _is_overwritten(self, update: ScreenUpdate, region: Region, place: Region) -> bool:
        if not isinstance(update, LinesUpdate):  # the whole screen: also after the program was suspended
            return True
        assert self.graphics is not None
        return self.graphics.painted and any(
            place.y <= y < place.bottom and first < region.right and last > region.x for y, first, last in update.spans
        )

    def _codes(self, place: Region) -> Iterable[str]:
        assert self.graphics is not None
        if self.graphics.painted:
            yield f"\x1b[{place.y + 1};{place.x + 1}H"  # Textual moves the cursor after each update
            yield from self._image
            return
        driver = driver_of(self._widget.app)
        assert isinstance(driver, GraphicsDriver)
        driver.keep_image(self._removal)
        yield from map(self._passed_on, self._image)

    @property
    def _removal(self) -> str:
        """The codes that remove Kitty's image from the terminal's memory."""
        return self._passed_on(kitty_delete(self._image_id))

    def _passed_on(self, command: str) -> str:
        """A command wrapped so that tmux passes it on, if there is one."""
        assert self.graphics is not None
        return f"\x1bPtmux;{command.replace(chr(27), chr(27) * 2)}\x1b\\" if self.graphics.passthrough else command

    @property
    def _image_id(self) -> int:
        """The number of Kitty's image, which is the cells' text colour as the terminal gets it."""
        colour = self._colour.downgrade(COLOR_SYSTEMS[self._widget.app.console.color_system or "truecolor"])
        if colour.triplet is None:
            return colour.number or 0
        red, green, blue = colour.triplet
        return red << 16 | green << 8 | blue


class _WithCodes(ScreenUpdate):
    """An update of the screen, followed by control codes."""

    def __init__(self, update: ScreenUpdate, codes: str) -> None:
        self._update, self._codes = update, codes

    def render_segments(self, console: Console) -> str:
        return self._update.render_segments(console) + self._codes
