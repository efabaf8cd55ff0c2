"""Images in the terminal: whether it shows them, which it keeps, and their codes in the protocols of Kitty, Sixel,
iTerm2.

The terminal is asked, since the environment says little over SSH and in tmux. All questions are sent at once; the last
one is answered by every terminal, so its reply ends the wait. The application runs on meanwhile, so asking costs no
time and no keys are lost. The games have few colours, so a picture is an index of at most 256 colours: a frame of Mario
is 1.7 KB as PNG and 7 KB as Sixel of 340x300 pixels. numpy and Pillow are imported here only when a picture is drawn.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import os
import re
import struct
import subprocess
import termios
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from textual.message import Message

from mario_tui.terminal.driver import TerminalDriver

Protocol = Literal["kitty", "sixel", "iterm2"]
GRAPHICS = ("auto", "kitty", "sixel", "iterm2", "blocks")
"""Values of the setting: ask the terminal, use a protocol unasked, or always draw half blocks."""
MOST_COLOURS = 64
_DEFAULT_CELL = 10, 20
"""Pixels of a cell on the terminals that introduced Sixel; assumed where Sixel is set by hand and nothing is known."""
_PLACEHOLDERS = ("kitty", "ghostty")
"""Terminals that draw Kitty's images at placeholder characters. Others know only the protocol's older part."""
_ITERM2 = ("iterm2", "wezterm")
"""Terminals that draw iTerm2's images; also Sixel, which takes three times as many bytes."""
_TMUX_TIMEOUT_S = 1.0
_QUERY_ID = 31
_KITTY_QUERY = f"\x1b_Gi={_QUERY_ID},s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_QUERIES = "\x1b[>q\x1b[16t\x1b[?1;1;0S\x1b[c"
"""XTVERSION, the cell's size, the number of Sixel colours, and the device attributes."""
_REPLY = re.compile(
    rf"\x1b_Gi={_QUERY_ID};(?P<kitty>[^\x1b]*)\x1b\\|\x1bP>\|(?P<name>[^\x1b]{{0,80}})\x1b\\"
    r"|\x1b\[6;(?P<height>\d{1,4});(?P<width>\d{1,4})t|\x1b\[\?1;\d;(?P<colours>\d{0,9})S"
    r"|\x1b\[\?(?P<attributes>[\d;]{1,80})c"
)


@dataclass(frozen=True)
class Graphics:
    """How to draw images in this terminal."""

    protocol: Protocol
    cell: tuple[int, int] | None = None  # width and height in pixels, as the terminal said
    colours: int = MOST_COLOURS  # of a Sixel image
    passthrough: bool = False  # whether tmux has to be told to pass the codes on

    @property
    def painted(self) -> bool:
        """Return whether images are painted over cells, and erased by text; Kitty's belong to the cells."""
        return self.protocol != "kitty"


@dataclass
class Replies:
    """What the terminal has replied so far."""

    kitty: bool = False
    name: str = ""
    cell: tuple[int, int] | None = None
    colours: int = MOST_COLOURS
    attributes: list[str] = field(default_factory=list)
    complete: bool = False

    def take(self, sequence: str) -> None:
        """Note what a sequence of the terminal says; others say nothing here."""
        found = _REPLY.fullmatch(sequence)
        if found is None:
            return
        if found["kitty"] is not None:
            self.kitty = found["kitty"] == "OK"
        elif found["name"] is not None:
            self.name = found["name"].lower()
        elif found["width"]:
            self.cell = _plausible(int(found["width"]), int(found["height"]))
        elif found["attributes"]:
            self.attributes = found["attributes"].split(";")
            self.complete = True
        elif found["colours"]:
            self.colours = min(MOST_COLOURS, max(8, int(found["colours"])))


def questions(environment: Mapping[str, str]) -> str:
    """Return what to send to the terminal. tmux, screen and some terminals would show Kitty's question as text or a
    title."""
    mute = environment.get("TERM") == "linux" or environment.get("TERM_PROGRAM") == "Apple_Terminal"
    return ("" if mute or _multiplexed(environment) else _KITTY_QUERY) + _QUERIES


def choose(setting: str, replies: Replies, environment: Mapping[str, str]) -> Graphics | None:
    """Return how to draw images, by the setting and the terminal's replies; None: not at all."""
    passthrough = _multiplexed(environment) or replies.name.startswith("tmux")
    protocol: str | None = setting
    if setting == "auto":
        kitty = replies.kitty and replies.name.startswith(_PLACEHOLDERS)
        if kitty or ("TMUX" in environment and _tmux_passes_to(_PLACEHOLDERS, environment.get("TMUX_PANE", ""))):
            protocol = "kitty"
        elif replies.name.startswith(_ITERM2):
            protocol = "iterm2"
        elif "4" in replies.attributes[1:] and replies.cell is not None:
            protocol = "sixel"
        else:
            protocol = None
    if protocol is None:
        return None
    return Graphics(cast(Protocol, protocol), replies.cell, replies.colours, passthrough)


def cell_size(file: int, graphics: Graphics) -> tuple[int, int]:
    """Width and height of a cell in pixels, at the terminal's present font size as far as it is known."""
    with contextlib.suppress(OSError):
        rows, columns, width, height = struct.unpack("HHHH", fcntl.ioctl(file, termios.TIOCGWINSZ, bytes(8)))
        if rows and columns and (cell := _plausible(width // columns, height // rows)):
            return cell
    return graphics.cell or _DEFAULT_CELL


def _plausible(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if 2 <= width <= 200 and 4 <= height <= 400 else None


def _multiplexed(environment: Mapping[str, str]) -> bool:
    return "TMUX" in environment or environment.get("TERM", "").startswith(("tmux", "screen"))


def _tmux_passes_to(names: tuple[str, ...], pane: str) -> bool:
    """Return whether tmux passes codes of a pane on to one of these terminals, whose replies don't reach programs in
    tmux."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["tmux", "display-message", "-p", "-t", pane, "#{allow-passthrough} #{client_termtype}"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=_TMUX_TIMEOUT_S, check=True)
        allowed, _, name = said.stdout.strip().lower().partition(" ")
        return allowed in ("on", "all", "1", "2") and name.startswith(names)
    return False


class GraphicsFound(Message):
    """The terminal has replied. `graphics`: how to draw images, None if it shows none."""

    def __init__(self, graphics: Graphics | None) -> None:
        super().__init__()
        self.graphics = graphics


class GraphicsDriver(TerminalDriver):
    """Asks what the terminal shows, and removes images before the application's screen is left."""

    _replies: Replies | None = None
    _setting = "auto"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._kept: set[str] = set()
        """The codes that remove the images which the terminal keeps."""

    def ask(self, setting: str) -> None:
        """Ask the terminal; its replies come as `GraphicsFound`, at once or never."""
        self._setting, self._replies = setting, Replies()
        self.write(questions(os.environ))

    def stop_application_mode(self) -> None:
        """Called at the end, also after a crash, and before the program is suspended."""
        for codes in tuple(self._kept):
            self.remove_image(codes)
        super().stop_application_mode()

    def keep_image(self, removal: str) -> None:
        """The terminal keeps an image, until it gets the codes `removal`."""
        self._kept.add(removal)

    def remove_image(self, removal: str) -> None:
        """Remove an image, if the terminal keeps it."""
        if removal in self._kept:
            self._kept.remove(removal)
            self.write(removal)

    def on_reply(self, sequence: str) -> None:
        replies = self._replies
        if replies is not None:
            replies.take(sequence)
            if replies.complete:
                self._replies = None
                self.send_message(GraphicsFound(choose(self._setting, replies, os.environ)))


PLACEHOLDER = "\U0010eeee"
"""Kitty draws a cell of the image where this character is."""
MAX_CELLS = 297
"""Columns and rows that Kitty's placeholders can number."""
_CHUNK = 4096  # Kitty's limit for the data of one command
_BAND = 6  # rows of pixels in a line of Sixel
_RUN = re.compile(rb"(.)\1*", re.DOTALL)
# fmt: off
_NUMBERS = (
    0x305, (0x30D, 0x30E), 0x310, 0x312, (0x33D, 0x33F), 0x346, (0x34A, 0x34C), (0x350, 0x352), 0x357, 0x35B,
    (0x363, 0x36F), (0x483, 0x487), (0x592, 0x595), (0x597, 0x599), (0x59C, 0x5A1), (0x5A8, 0x5A9), (0x5AB, 0x5AC),
    0x5AF, 0x5C4, (0x610, 0x617), (0x657, 0x65B), (0x65D, 0x65E), (0x6D6, 0x6DC), (0x6DF, 0x6E2), 0x6E4,
    (0x6E7, 0x6E8), (0x6EB, 0x6EC), 0x730, (0x732, 0x733), (0x735, 0x736), 0x73A, 0x73D, (0x73F, 0x741), 0x743, 0x745,
    0x747, (0x749, 0x74A), (0x7EB, 0x7F1), 0x7F3, (0x816, 0x819), (0x81B, 0x823), (0x825, 0x827), (0x829, 0x82D),
    0x951, (0x953, 0x954), (0xF82, 0xF83), (0xF86, 0xF87), (0x135D, 0x135F), 0x17DD, 0x193A, 0x1A17, (0x1A75, 0x1A7C),
    0x1B6B, (0x1B6D, 0x1B73), (0x1CD0, 0x1CD2), (0x1CDA, 0x1CDB), 0x1CE0, (0x1DC0, 0x1DC1), (0x1DC3, 0x1DC9),
    (0x1DCB, 0x1DCC), (0x1DD1, 0x1DE6), 0x1DFE, (0x20D0, 0x20D1), (0x20D4, 0x20D7), (0x20DB, 0x20DC), 0x20E1, 0x20E7,
    0x20E9, 0x20F0, (0x2CEF, 0x2CF1), (0x2DE0, 0x2DFF), 0xA66F, (0xA67C, 0xA67D), (0xA6F0, 0xA6F1), (0xA8E0, 0xA8F1),
    0xAAB0, (0xAAB2, 0xAAB3), (0xAAB7, 0xAAB8), (0xAABE, 0xAABF), 0xAAC1, (0xFE20, 0xFE26), 0x10A0F, 0x10A38,
    (0x1D185, 0x1D189), (0x1D1AA, 0x1D1AD), (0x1D242, 0x1D244),
)
# fmt: on
_DIACRITICS = [
    chr(code)
    for entry in _NUMBERS
    for code in (range(entry[0], entry[1] + 1) if isinstance(entry, tuple) else (entry,))
]
"""The combining characters by which Kitty numbers rows and columns, from 0."""


def kitty_image(rgb: Any, aspect: float, columns: int, rows: int, image_id: int) -> list[str]:
    """Commands that send an image to Kitty, to be shown at placeholders of `columns` x `rows` cells. Kitty keeps the
    image's proportions, so pixels of another `aspect` (width by height) than 1 are repeated."""
    height, width = rgb.shape[:2]
    size = round(width * max(1.0, aspect)), round(height * max(1.0, 1 / aspect))
    data = base64.b64encode(_png(rgb, *size)).decode()
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    # One placement, p=1: without a number each picture would add another to the image.
    first = f"a=T,U=1,i={image_id},p=1,c={columns},r={rows},f=100,"
    return [
        f"\x1b_G{first if index == 0 else ''}q=2,m={int(index + 1 < len(chunks))};{chunk}\x1b\\"
        for index, chunk in enumerate(chunks)
    ]


def kitty_delete(image_id: int) -> str:
    """The command that removes an image and frees its data."""
    return f"\x1b_Ga=d,d=I,i={image_id},q=2\x1b\\"


def kitty_cells(row: int, columns: int) -> str:
    """The cells at which Kitty shows a row of the image. Each one names its place, so others may be covered."""
    return "".join(f"{PLACEHOLDER}{_DIACRITICS[row]}{_DIACRITICS[column]}" for column in range(columns))


def iterm2_image(rgb: Any, columns: int, rows: int) -> str:
    """The command that draws an image at the cursor, stretched to `columns` x `rows` cells."""
    data = _png(rgb, rgb.shape[1], rgb.shape[0])
    return (
        f"\x1b]1337;File=inline=1;size={len(data)};width={columns};height={rows};preserveAspectRatio=0;"
        f"doNotMoveCursor=1:{base64.b64encode(data).decode()}\x07"
    )


def sixel_image(rgb: Any, width: int, height: int, colours: int) -> str:
    """The command that draws an image at the cursor, scaled to `width` x `height` pixels, in at most `colours` colours.

    The height is rounded down to whole bands: the rest of a band could belong to the cells below.
    """
    import numpy as np

    palette, index = _indexed(rgb, colours)
    height = max(_BAND, height - height % _BAND)
    index = index[np.arange(height) * len(index) // height]
    bands = index.reshape(-1, _BAND, index.shape[1])
    edges = (-(-np.arange(index.shape[1] + 1) * width // index.shape[1])).tolist()  # of the columns, in drawn pixels
    bits = np.array([1, 2, 4, 8, 16, 32], np.uint8)[None, :, None]
    lines: list[list[str]] = [[] for _ in bands]
    for colour in range(len(palette)):  # from the most frequent one
        sixels = np.bitwise_or.reduce((bands == colour) * bits, axis=1)
        for band in np.flatnonzero(sixels.any(axis=1)).tolist():
            # Later colours are drawn over earlier ones, so the first one fills the band: its own shape is longer.
            shape = b"~" * len(sixels[band]) if not lines[band] else (sixels[band] + 63).tobytes().rstrip(b"?")
            runs = (_repeated(chr(run[0][0]), edges[run.end()] - edges[run.start()]) for run in _RUN.finditer(shape))
            lines[band].append(f"#{colour}{''.join(runs)}")
    registers = "".join(
        f"#{number};2;{';'.join(str(round(part / 2.55)) for part in colour.tolist())}"
        for number, colour in enumerate(palette)
    )
    return f'\x1bP0;0;0q"1;1;{width};{height}{registers}{"-".join("$".join(line) for line in lines)}\x1b\\'


def _repeated(sixel: str, count: int) -> str:
    return f"!{count}{sixel}" if count > 3 else sixel * count


def _png(rgb: Any, width: int, height: int) -> bytes:
    """A picture as PNG of `width` x `height` pixels, with rows and columns repeated as needed."""
    import numpy as np
    from PIL import Image

    palette, index = _indexed(rgb, 256)
    rows, columns = np.arange(height) * len(index) // height, np.arange(width) * index.shape[1] // width
    image = Image.fromarray(index[rows][:, columns])
    image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _indexed(rgb: Any, most: int) -> tuple[Any, Any]:
    """A picture as its palette, uint8 [colours, 3], the most frequent colour first, and indices into it, uint8 [height,
    width]. Colours are merged if there are more than `most` (at least 8)."""
    import numpy as np

    channels = np.zeros((*rgb.shape[:2], 4), np.uint8)
    channels[..., :3] = rgb
    packed = channels.view("<u4")[..., 0]
    colours = np.unique(packed)
    for bits in range(7, 0, -1):
        if len(colours) <= most:
            break
        packed = packed & (0x010101 * (0xFF & (0xFF << (8 - bits))))
        colours = np.unique(packed)
    index = np.searchsorted(colours, packed)
    order = np.argsort(-np.bincount(index.ravel()), kind="stable")
    palette = colours[order].astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    return palette, np.argsort(order).astype(np.uint8)[index]
