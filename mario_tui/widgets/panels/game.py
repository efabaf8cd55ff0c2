"""The rank-0 game: in real pixels where the terminal draws images, else in half blocks, which are two pixels per cell,
with neighbours of equal colour merged into one segment.

The agent's observation and Q-values, the chosen action marked, are shown beside or below the picture, wherever the
picture stays larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

from engine.protocol.messages import Frame, Thought
from mario_tui.data.format import number
from mario_tui.terminal.graphics import Graphics
from mario_tui.terminal.picture import BYTES_PER_S, Picture
from mario_tui.terminal.safe_app import SafeApp
from mario_tui.widgets.base.panel import LineWidget, bar

CHOSEN, AT_RANDOM = "▶", "?"
_MOST_ROWS = 12
LEAST_ROWS = 3
_NUMBER = 6
_GAP_COLOUR, _NEWEST_COLOUR = (64, 80, 128), (240, 192, 64)
_LEAST_SCALE = 0.5


def chosen(thought: Thought, names: Sequence[str]) -> str:
    """The action in a few words: `right+A`, `left (random)`."""
    return _name(names, thought.action) + (" (random)" if thought.random else "")


def most_rows(thought: Thought) -> int:
    """Lines that `describe` can fill."""
    return min(len(thought.q_values) + bool(thought.facts), _MOST_ROWS)


def describe(thought: Thought, names: Sequence[str], width: int, rows: int) -> Text:
    """Values of the game in a line, if there are any, then one line per action, in their order.

    If there are more than `rows` lines, only the best actions and the chosen one. Those with exactly the same value,
    which fill the same cells of Tetris, then count once. The bar is empty for the worst legal action and full for the
    best.
    """
    values = thought.q_values
    legal = [action for action, value in enumerate(values) if math.isfinite(value)]
    best_first = sorted(legal, key=lambda action: -values[action])
    rows -= bool(thought.facts)
    if len(legal) <= rows:
        shown = legal
    else:
        shown = [action for action in best_first if action == thought.action or not _repeated(action, thought)][:rows]
    if thought.action not in shown:
        shown = [*shown[: rows - 1], thought.action]
    low, high = (values[best_first[-1]], values[best_first[0]]) if legal else (0.0, 0.0)
    wide = max(len(_name(names, action)) for action in range(len(values)))
    room = max(2, width - wide - _NUMBER - 5)
    facts = "  ".join(f"{name} {value:,}" for name, value in thought.facts.items())
    text = Text(f"  {facts}" if facts else "", no_wrap=True, overflow="ellipsis")
    for action in shown:
        is_chosen = action == thought.action
        mark = (AT_RANDOM if thought.random else CHOSEN) if is_chosen else " "
        text.append("\n" if text else "").append(
            f"{mark} {_name(names, action):<{wide}} ", style="bold" if is_chosen else ""
        )
        share = (values[action] - low) / (high - low) if high > low and action in legal else 0.0
        text.append(bar(share, room), style="blue").append(f" {number(values[action]):>{_NUMBER}}")
    return text


def observation_image(thought: Thought, width: int, height: int) -> Any:
    """The agent's observation, uint8 [height, width, 3], for `width` x `height` square pixels.

    It shows all frames side by side, the newest one in a frame, if that keeps at least half their size; otherwise only
    the newest one.
    """
    import numpy as np  # here, so that a dashboard without a game starts without it

    frames, planes, high, wide = thought.shape
    gap = max(1, high // 25)

    def extent(count: int, columns: int) -> tuple[int, int]:
        rows = math.ceil(count / columns)
        edge = 2 * gap if count > planes else 0  # room for the frame
        return rows * (high + gap) - gap + edge, columns * (wide + gap) - gap + edge

    def arranged(count: int) -> tuple[float, int]:
        """The largest scale for `count` planes, and the number of columns that gives it."""
        extents = {columns: extent(count, columns) for columns in range(1, count + 1)}
        return max((min(height / tall, width / broad), columns) for columns, (tall, broad) in extents.items())

    count = frames * planes
    scale, columns = arranged(count)
    if frames > 1 and scale < _LEAST_SCALE:
        count = planes
        scale, columns = arranged(count)
    rgb = np.full((*extent(count, columns), 3), _GAP_COLOUR, np.uint8)
    for index, plane in enumerate(np.frombuffer(thought.seen, np.uint8).reshape(-1, high, wide)[-count:]):
        edge = gap if count > planes else 0
        top, left = edge + (index // columns) * (high + gap), edge + (index % columns) * (wide + gap)
        if index >= count - planes:
            rgb[top - edge : top + high + edge, left - edge : left + wide + edge] = _NEWEST_COLOUR
        rgb[top : top + high, left : left + wide] = plane[..., None]
    return rgb


def _repeated(action: int, thought: Thought) -> bool:
    """Return whether the chosen action, or one before this one, has exactly its value."""
    values = thought.q_values
    return values[action] in (values[thought.action], *values[:action])


def _name(names: Sequence[str], action: int) -> str:
    return names[action] if action < len(names) else f"action {action}"


_SCREEN = (240, 256)  # of the NES: height and width
_PIXEL_ASPECT = 8 / 7  # of the NES on a television
_BESIDE = 30
"""Columns for Q-values beside the picture, including the gap."""
_LEAST = 12, 6
"""Minimum columns and rows of the picture beside Q-values; below that, only the picture is shown."""


class GameView(LineWidget):
    """Shows the newest frame, scaled to its size, unless it is frozen.

    `names` are the names of the actions, `freeze_key` is the key that freezes it, if one does; `agent_view` shows the
    agent's observation instead of the game. Images of more than `bytes_per_s` are shown less often.
    """

    def __init__(self, *, freeze_key: str = "", bytes_per_s: int = BYTES_PER_S) -> None:
        super().__init__("Game, lane 0.0", id="game", key="9")
        self.short_title = "Game"
        self.frozen = False
        self._freeze_key = freeze_key
        self.agent_view = False
        self.names: Sequence[str] = ()
        self.remark = ""
        """Text at the right end of the rule."""
        self.frame: Frame | None = None
        """The frame on the screen."""
        self._drawn: tuple[int, int, int] | None = None
        self._image = Picture(self, self.repaint, bytes_per_s)

    def on_mount(self) -> None:
        app = cast("SafeApp[Any]", self.app)
        app.pictures.append(self._image)
        self.watch(app, "graphics", self._set_graphics)
        app.screen_change_signal.subscribe(self, self._screen_changed)

    def on_unmount(self) -> None:
        self._image.clear()
        cast("SafeApp[Any]", self.app).pictures.remove(self._image)

    def on_hide(self) -> None:
        self._image.clear()

    def is_new(self, frame: Frame | None) -> bool:
        """Return whether a frame differs from the one on the screen and should be drawn."""
        return frame is not None and not self.frozen and (self.frame is None or frame.index != self.frame.index)

    def show(self, frame: Frame | None) -> None:
        """Show a frame; the same one is not drawn twice."""
        if frame is None or self.frozen or (self._image.possible and not self._image.due):
            return
        self.frame = frame
        if self._drawn != (frame.index, *self.body):
            self.repaint()

    def _screen_changed(self, screen: Screen[Any]) -> None:
        if self._image.graphics is not None:
            self.repaint()

    def _set_graphics(self, graphics: Graphics | None) -> None:
        self._image.graphics = graphics
        self.repaint()

    def freeze(self, frozen: bool) -> None:
        """Freeze or unfreeze the picture."""
        self.frozen = frozen
        self.repaint()

    def set_agent_view(self, agent_view: bool) -> None:
        """Show the agent's observation, or the game."""
        self.agent_view = agent_view
        self.repaint()

    def repaint(self) -> None:
        width, height = self.body
        if width < 4 or height < 2:
            return
        cast("SafeApp[Any]", self.app).find_graphics()
        frame = self.frame
        note = (
            f"frozen; {self._freeze_key}: unfreeze"
            if self.frozen
            else self.remark or ("agent view" if self.agent_view else "")
        )
        if frame is None:
            self.paint(self._waiting(width, height), note=note)
            return
        self._drawn = (frame.index, width, height)
        thought = frame.thought
        value = "" if thought is None or note else chosen(thought, self.names)
        body = self._picture(frame, width, height) if thought is None else self._with_thought(frame, thought)
        self.paint(body, value=value, note=note)
        if self._image.unsent:
            self.refresh(Region(0, 0, 1, 1))  # the image travels with an update of cells: one is enough

    def _with_thought(self, frame: Frame, thought: Thought) -> list[Strip]:
        width, height = self.body
        rows = min(most_rows(thought), max(LEAST_ROWS, height // 3))
        below, beside = self._scale(width, height - rows), self._scale(width - _BESIDE, height)
        if below >= beside and height - rows >= _LEAST[1]:
            lines = self.text_lines(describe(thought, self.names, width, rows), width)
            return [*self._picture(frame, width, height - rows), *lines]
        if width - _BESIDE >= _LEAST[0]:
            rows = min(height, most_rows(thought))
            lines = self.text_lines(describe(thought, self.names, _BESIDE - 2, rows), _BESIDE - 2)
            return self._side_by_side(self._picture(frame, width - _BESIDE, height), lines, height)
        return self._picture(frame, width, height)

    def _side_by_side(self, picture: list[Strip], lines: list[Strip], height: int) -> list[Strip]:
        """The text lines to the right of the picture, vertically centred."""
        gap, nothing = Segment("  ", self.rich_style), Strip.blank(_BESIDE - 2, self.rich_style)
        above = (height - len(lines)) // 2
        texts = [nothing] * above + [line.adjust_cell_length(_BESIDE - 2, self.rich_style) for line in lines]
        texts += [nothing] * (height - len(texts))
        width = picture[0].cell_length
        pictures = picture + [Strip.blank(width, self.rich_style)] * (height - len(picture))
        return [Strip([*line, gap, *text], width + _BESIDE) for line, text in zip(pictures, texts, strict=True)]

    def _waiting(self, width: int, height: int) -> list[Strip]:
        self._image.erase()
        return self.text_lines(Text("\n" * (height // 2) + "waiting for a picture".center(width)), width)

    def _picture(self, frame: Frame, width: int, height: int) -> list[Strip]:
        """The game, or the agent's observation of it, centred in `width` x `height` cells."""
        if not self.agent_view:
            aspect = _PIXEL_ASPECT if (frame.height, frame.width) == _SCREEN else 1.0
            return self._draw(_pixels(frame), aspect, width, height)
        if frame.thought is None or not frame.thought.seen:
            return self._waiting(width, height)
        return self._draw(observation_image(frame.thought, width, int(self._cell_ratio * height)), 1.0, width, height)

    def _draw(self, rgb: Any, aspect: float, width: int, height: int) -> list[Strip]:
        tall, wide = rgb.shape[:2]
        most_columns, most_rows = self._image.most_cells(width, height)
        scale = min(most_columns / (wide * aspect), self._cell_ratio * most_rows / tall)
        columns = max(2, min(most_columns, int(wide * aspect * scale)))
        rows = max(1, min(most_rows, int(tall * scale / self._cell_ratio)))
        margin, above = (width - columns) // 2, (height - rows) // 2
        self._image.box = Region(1 + margin, self.framed + above, columns, rows)
        if self._image.possible:
            cells = self._image.draw(rgb, aspect)
        else:
            self._image.erase()
            colours = _colours(rgb, columns, rows * 2)
            cells = [_segments(upper, lower) for upper, lower in zip(colours[::2], colours[1::2], strict=True)]
        around = self.rich_style
        left, right = Segment(" " * margin, around), Segment(" " * (width - columns - margin), around)
        return [Strip.blank(width, around)] * above + [Strip([left, *row, right], width) for row in cells]

    @property
    def _cell_ratio(self) -> float:
        """Height of a cell by its width."""
        width, height = self._image.cell
        return height / width

    def _scale(self, width: int, height: int) -> float:
        """Scale of the game on `width` x `height` cells."""
        screen_height, screen_width = _SCREEN
        return min(width / (screen_width * _PIXEL_ASPECT), self._cell_ratio * height / screen_height)


def _segments(upper: list[int], lower: list[int]) -> list[Segment]:
    """A row of cells from the colours of its upper and lower pixels."""
    segments: list[Segment] = []
    count, before = 0, (upper[0], lower[0])
    for pair in zip(upper, lower, strict=True):
        if pair != before:
            segments.append(_segment(*before, count))
            count, before = 0, pair
        count += 1
    segments.append(_segment(*before, count))
    return segments


def _segment(upper: int, lower: int, count: int) -> Segment:
    return Segment(("▀" if upper != lower else " ") * count, _style(upper, lower))


@lru_cache(8192)  # Textual caches data on a style
def _style(upper: int, lower: int) -> Style:
    return Style(color=_rich(upper), bgcolor=_rich(lower))


def _pixels(frame: Frame) -> Any:
    """The frame as uint8 [height, width, 3]."""
    import numpy as np  # here, so that a dashboard without a game starts without it

    return np.frombuffer(frame.rgb, np.uint8).reshape(frame.height, frame.width, 3)


def _colours(rgb: Any, columns: int, rows: int) -> list[list[int]]:
    """Mean colours of `rows` x `columns` areas as 0xRRGGBB; five bits per channel, for longer runs of equal colour."""
    import numpy as np

    height, width = rgb.shape[:2]
    ys = np.linspace(0, height, rows + 1).astype(int)
    xs = np.linspace(0, width, columns + 1).astype(int)
    # Each cell covers at least one pixel, even if the picture is enlarged and borders coincide.
    sums = np.add.reduceat(np.add.reduceat(rgb.astype(np.int64), ys[:-1], axis=0), xs[:-1], axis=1)
    areas = np.maximum(np.diff(ys), 1)[:, None] * np.maximum(np.diff(xs), 1)[None]
    means = (sums // areas[..., None]) & 0xF8
    packed: list[list[int]] = ((means[..., 0] << 16) | (means[..., 1] << 8) | means[..., 2]).tolist()
    return packed


def _rich(colour: int) -> Color:
    return Color.from_rgb(colour >> 16, (colour >> 8) & 0xFF, colour & 0xFF)


def save_picture(frame: Frame, folder: Path) -> Path:
    """Save a frame as PNG in its original size; returns the path. Raises `OSError`."""
    from PIL import Image  # imported here because nothing else in the UI needs it

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"game-{frame.index:012}.png"
    Image.frombytes("RGB", (frame.width, frame.height), frame.rgb).save(path)
    return path
