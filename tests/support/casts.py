"""Recordings of a terminal: written as asciinema casts, and drawn as animated GIFs.

Cast format, version 2: https://docs.asciinema.org/manual/asciicast/v2/. A header line, then a line per piece of output:
`[seconds, "o", text]`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyte
from PIL import Image, ImageColor, ImageDraw, ImageFont
from pyte.screens import Char

_FONT, _FONT_SIZE = "DejaVuSansMono.ttf", 12
_COLORS = 32
_BACKGROUND, _FOREGROUND = "#101014", "#d0d0d0"
_UNKNOWN_TO_PYTE = re.compile("\x1b\\[[<>=][0-9;]*u")
"""Keyboard protocols that a program turns on and off."""
_OTHER_SCREEN = re.compile("\x1b\\[\\?1049([hl])")
"""To the screen of full-screen programs (h) and back (l), which pyte does not tell apart."""


class Cast:
    """Output of a terminal, with the seconds since the start at which it came."""

    def __init__(self, columns: int, rows: int, title: str) -> None:
        self.columns, self.rows, self._title = columns, rows, title
        self._output: list[tuple[float, str]] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, seconds: float, data: bytes) -> None:
        if text := self._decoder.decode(data):
            self._output.append((round(seconds, 3), text))

    def write(self, path: Path) -> None:
        header = {"version": 2, "width": self.columns, "height": self.rows, "title": self._title,
                  "env": {"TERM": "xterm-256color"}}  # fmt: skip
        lines = [json.dumps(header), *(json.dumps([at, "o", text], ensure_ascii=False) for at, text in self._output)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def frames(self, every_s: float) -> Iterator[Image.Image]:
        """Pictures of the screen every `every_s` seconds, and of its last state."""
        screens = {mode: pyte.Screen(self.columns, self.rows) for mode in "lh"}
        streams = {mode: pyte.Stream(screen) for mode, screen in screens.items()}
        shown, due = "l", every_s
        for at, text in self._output:
            while at >= due:
                yield _draw(screens[shown])
                due += every_s
            first, *rest = _OTHER_SCREEN.split(_UNKNOWN_TO_PYTE.sub("", text))
            streams[shown].feed(first)
            for shown, part in zip(rest[::2], rest[1::2], strict=True):
                streams[shown].feed(part)
        yield _draw(screens[shown])

    def animate(self, path: Path, *, every_s: float, frame_s: float, last_s: float) -> None:
        """Write a GIF with a frame for every `every_s` seconds. Each is shown for `frame_s`, the last for `last_s`."""
        frames = [frame.quantize(_COLORS, dither=Image.Dither.NONE) for frame in self.frames(every_s)]
        durations = [round(1000 * frame_s)] * (len(frames) - 1) + [round(1000 * last_s)]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


def _draw(screen: pyte.Screen) -> Image.Image:
    font = ImageFont.truetype(_FONT, _FONT_SIZE)
    width, height = round(font.getlength("M")), sum(font.getmetrics())
    picture = Image.new("RGB", (screen.columns * width, screen.lines * height), _BACKGROUND)
    draw = ImageDraw.Draw(picture)
    for y in range(screen.lines):
        for x in range(screen.columns):
            char = screen.buffer[y][x]
            foreground, background = _colors(char)
            left, top = x * width, y * height
            if background != _BACKGROUND:
                draw.rectangle((left, top, left + width - 1, top + height - 1), background)
            if "\u2800" < char.data <= "\u28ff":
                for dot, (column, row) in enumerate(_DOTS):
                    if (ord(char.data) - 0x2800) >> dot & 1:
                        dot_left, dot_top = left + round(width * column), top + round(height * row)
                        draw.rectangle((dot_left, dot_top, dot_left + 1, dot_top + 1), foreground)
            elif char.data in _BLOCKS:
                x0, y0, x1, y1 = _BLOCKS[char.data]
                box = (left + x0 * width, top + y0 * height, left + x1 * width - 1, top + y1 * height - 1)
                draw.rectangle([round(side) for side in box], foreground)
            elif char.data.strip():
                draw.text((left, top), char.data, foreground, font)
    return picture


_DOTS = [(x, y) for x, y in product((1 / 8, 5 / 8), (1 / 16, 5 / 16, 9 / 16))] + [(1 / 8, 13 / 16), (5 / 8, 13 / 16)]
"""The dots of a braille character, by bit: left and top edge, in cells."""
_BLOCKS = {
    "▀": (0, 0, 1, 1 / 2),
    **{character: (0, 1 - (n + 1) / 8, 1, 1) for n, character in enumerate("▁▂▃▄▅▆▇█")},
    **{character: (0, 0, 1 - (n + 1) / 8, 1) for n, character in enumerate("▉▊▋▌▍▎▏")},
}
"""Blocks as left, top, right and bottom edge, in cells: drawn to the pixel, so that no gaps show between them."""


def _colors(char: Char) -> tuple[str, str]:
    """Foreground and background."""
    colors = (_color(char.fg, _FOREGROUND), _color(char.bg, _BACKGROUND))
    return colors[::-1] if char.reverse else colors


def _color(name: str, default: str) -> str:
    """A colour of pyte: `default`, six hexadecimal digits, or a name."""
    if name == "default":
        return default
    try:
        int(name, 16)
    except ValueError:
        known = name.removeprefix("bright")
        return known if known in ImageColor.colormap else default
    return f"#{name}"
