"""Pictures as control codes of the three protocols for real pixels: Kitty, Sixel and iTerm2.

The games have few colours, so a picture is an index of at most 256 colours: a frame of Mario is 1.7 KB as PNG and 7 KB
as Sixel of 340x300 pixels. numpy and Pillow are imported here only when a picture is drawn.
"""

from __future__ import annotations

import base64
import io
import re
from typing import Any

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
