"""The rank-0 game in half blocks: two pixels to a cell, neighbours of equal colour merged into one segment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from engine.messages import Frame
from mario_tui.widgets.painted import Painted

_PIXEL_ASPECT = 8 / 7  # of the NES on a television


class GameView(Painted):
    """Shows the newest picture it was given, scaled to its size, until it is told to hold one."""

    def __init__(self, *, id: str = "game") -> None:
        super().__init__("Game, lane 0.0", id=id, number=9)
        self.held = False
        self.remark = ""
        """Stands on the right of the rule."""
        self._frame: Frame | None = None
        self._drawn: tuple[int, int, int] | None = None
        self._styles: dict[tuple[int, int], Style] = {}

    @property
    def frame(self) -> Frame | None:
        """What is on the screen."""
        return self._frame

    def is_new(self, frame: Frame | None) -> bool:
        """Whether a picture is another one than that on the screen, and wanted."""
        return frame is not None and not self.held and (self._frame is None or frame.index != self._frame.index)

    def show(self, frame: Frame | None) -> None:
        """Show a picture; the same one is not drawn twice."""
        if frame is None or self.held:
            return
        self._frame = frame
        if self._drawn != (frame.index, *self.body):
            self.repaint()

    def hold(self, held: bool) -> None:
        """Keep the picture that is shown, or go on."""
        self.held = held
        self.repaint()

    def repaint(self) -> None:
        width, height = self.body
        if width < 4 or height < 2:
            return
        note = "held; f goes on" if self.held else self.remark
        if self._frame is None:
            waiting = Text("\n" * (height // 2) + "waiting for a picture".center(width))
            self.paint(self.text_lines(waiting, width), note=note)
            return
        self._drawn = (self._frame.index, width, height)
        self.paint(self._draw(self._frame, width, height), note=note)

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


def save_picture(frame: Frame, folder: Path) -> Path:
    """A picture as PNG, in its own size; where it was written. Raises `OSError`."""
    from PIL import Image  # here: nobody else on this side needs it

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"game-{frame.index:012}.png"
    Image.frombytes("RGB", (frame.width, frame.height), frame.rgb).save(path)
    return path
