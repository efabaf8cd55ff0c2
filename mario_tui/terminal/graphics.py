"""Finds out whether the terminal shows images, by asking it: the environment says little over SSH and in tmux.

All questions are sent at once. The last one is answered by every terminal, so its reply ends the wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import struct
import subprocess
import termios
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

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
_BEGINNING = re.compile(r"\x1b(_(G[^\x1b]{0,80}\x1b?)?|P(>[^\x1b]{0,80}\x1b?)?|\[(6(;[\d;]{0,9})?|\?[\d;]{0,80})?)$")
"""A reply of which the rest has yet to arrive. A bare escape is a key."""


@dataclass(frozen=True)
class Graphics:
    """How to draw images in this terminal."""

    protocol: Protocol
    cell: tuple[int, int] | None = None  # width and height in pixels, as the terminal said
    colours: int = MOST_COLOURS  # of a Sixel image
    passthrough: bool = False  # whether tmux has to be told to pass the codes on

    @property
    def painted(self) -> bool:
        """Whether images are painted over cells, and erased by text; Kitty's belong to the cells."""
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
    _rest: str = ""

    def taken_from(self, text: str) -> str:
        """Take replies out of terminal input; returns the rest, which is the user's."""
        text = _REPLY.sub(self._take, self._rest + text)
        cut = _BEGINNING.search(text)
        self._rest = text[cut.start() :] if cut and not self.complete else ""
        return text[: len(text) - len(self._rest)]

    def _take(self, found: re.Match[str]) -> str:
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
        return ""


def questions(environment: Mapping[str, str]) -> str:
    """What to send to the terminal. tmux, screen and some terminals would show Kitty's question as text or a title."""
    mute = environment.get("TERM") == "linux" or environment.get("TERM_PROGRAM") == "Apple_Terminal"
    return ("" if mute or _multiplexed(environment) else _KITTY_QUERY) + _QUERIES


def choose(setting: str, replies: Replies, environment: Mapping[str, str]) -> Graphics | None:
    """How to draw images, by the setting and the terminal's replies; None: not at all."""
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
    """Whether tmux passes codes of a pane on to one of these terminals, whose replies don't reach programs in tmux."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["tmux", "display-message", "-p", "-t", pane, "#{allow-passthrough} #{client_termtype}"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=_TMUX_TIMEOUT_S, check=True)
        allowed, _, name = said.stdout.strip().lower().partition(" ")
        return allowed in ("on", "all", "1", "2") and name.startswith(names)
    return False
