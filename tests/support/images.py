"""Terminals that draw images: what they reply when they are asked, and the images in what a program sent them."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import numpy as np
from PIL import Image

CELL = 10, 20
REPLIES = {
    "kitty": b"\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.36.4)\x1b\\\x1b[6;20;10t\x1b[?62;c",
    "sixel": b"\x1bP>|foot(1.16.2)\x1b\\\x1b[6;20;10t\x1b[?1;0;1024S\x1b[?62;4;22c",
    "iterm2": b"\x1bP>|iTerm2 3.5.0\x1b\\\x1b[6;20;10t\x1b[?62;4;22c",
    "text": b"\x1b[?62;22c",
}
_COMMANDS = {
    "kitty": re.compile(rb"(?:\x1b_Ga=T[^;]*m=0;|\x1b_Ga=T[^;]*m=1;(?:[^\x1b]*\x1b\\\x1b_Gq=2,m=1;)*"
                        rb"[^\x1b]*\x1b\\\x1b_Gq=2,m=0;)[^\x1b]*\x1b\\"),
    "sixel": re.compile(rb"\x1bP[^\x1b]*q[^\x1b]*\x1b\\"),
    "iterm2": re.compile(rb"\x1b\]1337;File=[^\x07]*\x07"),
}  # fmt: skip


def image_commands(protocol: str, sent: bytes) -> list[bytes]:
    """The commands that draw an image, whole ones only."""
    return _COMMANDS[protocol].findall(sent)


def decoded(protocol: str, command: bytes) -> Any:
    """The image in a command, uint8 [height, width, 3]."""
    if protocol == "sixel":
        return _sixels(command)
    if protocol == "kitty":
        data = b"".join(part.partition(b";")[2] for part in command.split(b"\x1b\\"))
    else:
        data = command[:-1].partition(b":")[2]
    with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as image:
        return np.asarray(image.convert("RGB"))


def scaled(rgb: Any, height: int, width: int) -> Any:
    """A picture with its pixels repeated or left out."""
    rows, columns = np.arange(height) * rgb.shape[0] // height, np.arange(width) * rgb.shape[1] // width
    return rgb[rows][:, columns]


def _sixels(command: bytes) -> Any:
    """The image of a Sixel command, as a terminal draws it: later colours over earlier ones."""
    head = re.match(rb'\x1bP0;0;0q"1;1;(\d+);(\d+)', command)
    assert head is not None
    width, height = int(head[1]), int(head[2])
    image = np.zeros((height, width, 3), np.uint8)
    drawn = np.zeros((height, width), bool)
    colours: dict[int, list[int]] = {}
    colour = x = y = 0
    for part in re.finditer(
        rb"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)([?-~])|([?-~])|(\$)|(-)", command[head.end() : -2]
    ):
        if part[1]:
            colours[int(part[1])] = [round(int(share) * 2.55) for share in part.groups()[1:4]]
        elif part[5]:
            colour = int(part[5])
        elif part[9]:
            x = 0
        elif part[10]:
            x, y = 0, y + 6
        else:
            count, bits = int(part[6] or 1), (part[7] or part[8])[0] - 63
            for row in range(6):
                if bits >> row & 1:
                    assert x + count <= width and y + row < height
                    image[y + row, x : x + count] = colours[colour]
                    drawn[y + row, x : x + count] = True
            x += count
    assert drawn.all()
    assert len(colours) <= 64
    return image
