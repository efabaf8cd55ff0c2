"""The rank-0 game in half blocks: two pixels to a cell, neighbours of equal colour merged into one segment."""

from __future__ import annotations

from typing import Any

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from engine.messages import Frame

_PIXEL_ASPECT = 8 / 7  # of the NES on a television


class GameView(Widget):
    """Shows the newest picture it was given, scaled to its size."""

    def __init__(self, *, id: str = "game") -> None:
        super().__init__(id=id, classes="panel")
        self.border_title = "Game: actor 0, lane 0"
        self._frame: Frame | None = None
        self._strips: list[Strip] = []
        self._drawn: tuple[int, int, int] | None = None
        self._styles: dict[tuple[int, int], Style] = {}

    def show(self, frame: Frame | None) -> None:
        """Show a picture; the same one is not drawn twice."""
        if frame is None:
            return
        self._frame = frame
        width, height = self.content_size
        if width < 4 or height < 2 or self._drawn == (frame.index, width, height):
            return
        self._drawn = (frame.index, width, height)
        self._strips = self._draw(frame, width, height)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        if self._frame is None:
            text = "waiting for a picture" if y == self.content_size.height // 2 else ""
            return Strip([Segment(text.center(width), self.rich_style)], width)
        return self._strips[y] if y < len(self._strips) else Strip.blank(width, self.rich_style)

    def _draw(self, frame: Frame, width: int, height: int) -> list[Strip]:
        scale = min(width / (frame.width * _PIXEL_ASPECT), 2 * height / frame.height)
        columns = max(2, min(width, int(frame.width * _PIXEL_ASPECT * scale)))
        rows = max(1, min(height, int(frame.height * scale / 2)))
        colours = _colours(frame, columns, rows * 2)
        margin = (width - columns) // 2
        around = self.rich_style
        left, right = Segment(" " * margin, around), Segment(" " * (width - columns - margin), around)
        blank = [Strip.blank(width, around)] * ((height - rows) // 2)
        lines = [
            Strip([left, *self._segments(colours[2 * row], colours[2 * row + 1]), right], width) for row in range(rows)
        ]
        return [*blank, *lines]

    def _segments(self, upper: list[int], lower: list[int]) -> list[Segment]:
        segments: list[Segment] = []
        count, before = 0, (upper[0], lower[0])
        for pair in zip(upper, lower, strict=True):
            if pair != before:
                segments.append(self._segment(before, count))
                count, before = 0, pair
            count += 1
        segments.append(self._segment(before, count))
        return segments

    def _segment(self, pair: tuple[int, int], count: int) -> Segment:
        style = self._styles.get(pair)
        if style is None:
            if len(self._styles) > 20_000:
                self._styles.clear()
            style = self._styles[pair] = Style(color=_rich(pair[0]), bgcolor=_rich(pair[1]))
        return Segment(("▀" if pair[0] != pair[1] else " ") * count, style)


def _colours(frame: Frame, columns: int, rows: int) -> list[list[int]]:
    """0xRRGGBB of `rows` x `columns` area means, five bits a channel: fewer colours, longer equal runs."""
    import numpy as np  # here, so that a dashboard without a game starts without it

    rgb: Any = np.frombuffer(frame.rgb, np.uint8).reshape(frame.height, frame.width, 3).astype(np.int64)
    ys = np.linspace(0, frame.height, rows + 1).astype(int)
    xs = np.linspace(0, frame.width, columns + 1).astype(int)
    # A cell takes at least one pixel, also where the picture is blown up and borders fall together.
    sums = np.add.reduceat(np.add.reduceat(rgb, ys[:-1], axis=0), xs[:-1], axis=1)
    areas = np.maximum(np.diff(ys), 1)[:, None] * np.maximum(np.diff(xs), 1)[None]
    means = (sums // areas[..., None]) & 0xF8
    packed: list[list[int]] = ((means[..., 0] << 16) | (means[..., 1] << 8) | means[..., 2]).tolist()
    return packed


def _rich(colour: int) -> Color:
    return Color.from_rgb(colour >> 16, (colour >> 8) & 0xFF, colour & 0xFF)
