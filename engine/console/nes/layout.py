"""Layout of a lane's data: indices into its rows of `state` (int64) and `memory` (uint8), and into a canvas (uint16).

A few arrays instead of a dozen keep calls between kernels cheap. Booleans are 0 or 1. `state` and `memory` are the
complete state of a console.

Video memory (name table mirroring, the scrolling video address, the sprites of a line) follows nes-py where it differs
from the real console: palette entries $3F14, $3F18 and $3F1C are not mirrored, all name tables above $3000 are the
fourth, and a sprite row may be negative (see `sprite_row_address`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.console.compiler.kernels import helper

if TYPE_CHECKING:
    from engine.console.view import Brightness

# CPU
PC = 0  # program counter
A = 1
X = 2
Y = 3
SP = 4  # stack pointer, the low byte
STATUS = 5  # processor status in nes-py's bit order, see cpu.py
DUE = 6  # CPU cycle, counted from the start of the frame (first = 1), at which the next instruction runs
CYCLE_PARITY = 7  # parity of all CPU cycles before this frame; sprite DMA takes one more cycle on odd ones

# PPU time
POSITION = 8  # next dot of the picture: 341 * line + dot; line 0 = pre-render, 1..240 visible, 242 = vertical blank
DOTS_DONE = 9  # PPU dots processed since the start of the frame
EVEN = 10  # an odd picture loses a dot of its pre-render line while rendering is on

# PPU registers
NMI_ENABLED = 11
TALL_SPRITES = 12
BACKGROUND_TABLE = 13  # address of the pattern table: 0 or 0x1000
SPRITE_TABLE = 14
INCREMENT = 15  # added to the address by an access to $2007: 1 or 32
SHOW_BACKGROUND = 16
SHOW_SPRITES = 17
SHOW_BACKGROUND_EDGE = 18  # the 8 leftmost columns
SHOW_SPRITES_EDGE = 19
ADDRESS = 20  # "v": video address, which scans the name tables while the picture is drawn
NEXT_ADDRESS = 21  # "t": the address is reloaded from it
FINE_X = 22
FIRST_WRITE = 23  # whether the next write to $2005 or $2006 is the first of two
READ_BUFFER = 24  # reads of $2007 are delayed by one
SPRITE_ADDRESS = 25
VBLANK = 26
SPRITE_ZERO_HIT = 27
NMI_PENDING = 28
HIT_POSITION = 29  # where sprite 0 will hit in this picture: a position, HIT_NEVER or HIT_UNKNOWN
VERTICAL_MIRRORING = 30

# Controllers
BUTTONS = 31
BUTTON_BITS = 32  # bits that the first controller has yet to shift out
STROBE = 33

# Sprites on the current line, which were chosen at the end of the previous line
SPRITE_COUNT = 34
SPRITE_LIST = 35  # 8 entries

PICTURE = 43  # whether a frame has run, so that there is one to draw

STATE_WORDS = 44

HIT_UNKNOWN = -1
HIT_NEVER = 1 << 40

RAM = 0  # 2048 bytes
NAME_TABLES = 2048  # 2048 bytes
SPRITES = 4096  # 256 bytes: 64 sprites of y, tile, attributes, x
PALETTE = 4352  # 32 bytes
MEMORY_BYTES = 4384

# The canvas (uint16) on which a frame is drawn: 240 rows of 256 pixels, then 8 lines of scratch space
SCREEN_HEIGHT, SCREEN_WIDTH = 240, 256
SCRATCH = SCREEN_HEIGHT * SCREEN_WIDTH
SCRATCH_WIDTH = 33 * 8  # the maximum number of tiles on a line
CANVAS_SIZE = SCRATCH + 8 * SCRATCH_WIDTH

# What `run_frame` draws: NES colours (0..63), or brightness in units of 4/1000 (0 to 63,000)
DRAW_NOTHING, DRAW_COLORS, _DRAW_GRAY, _DRAW_RED = range(4)
DRAW: dict[Brightness, int] = {"gray": _DRAW_GRAY, "red": _DRAW_RED}


def draw_rows(kind: int, top: int, bottom: int) -> int:
    """Pack a kind of drawing and the lines top..bottom-1 to which it is limited, with 8 bits each."""
    return kind | top << 8 | bottom << 16


ROM = "(uint8[1], int32[1], int32[1], uint8[1], int64[2], int64)"
"""The types of a cartridge's data (`make_rom`), for the signatures of kernels."""

LINE_DOTS = 341
VISIBLE_END = 241 * LINE_DOTS
NMI_POSITION = 242 * LINE_DOTS
PICTURE_DOTS = 262 * LINE_DOTS
FRAME_CYCLES = 29781  # nes-py's frame: one or two dots longer than a picture

_BYTES = (A, X, Y, SP, STATUS, READ_BUFFER, SPRITE_ADDRESS, BUTTONS, BUTTON_BITS)
_BOOLEANS = (
    CYCLE_PARITY, EVEN, NMI_ENABLED, TALL_SPRITES, SHOW_BACKGROUND, SHOW_SPRITES, SHOW_BACKGROUND_EDGE,
    SHOW_SPRITES_EDGE, FIRST_WRITE, VBLANK, SPRITE_ZERO_HIT, NMI_PENDING, VERTICAL_MIRRORING, STROBE, PICTURE,
)  # fmt: skip
_LONGEST_INSTRUCTION = 600  # CPU cycles, including 514 of sprite DMA


def _accepted() -> dict[int, Sequence[int]]:
    """Valid values of each word of `state` between two frames.

    The kernels use some of them as indices and others as counters, so an invalid value could access foreign memory or
    cause an endless loop.
    """
    flags = {word: range(2) for word in _BOOLEANS}
    sprites = {word: range(64) for word in range(SPRITE_LIST, SPRITE_LIST + 8)}
    return flags | sprites | {word: range(0x100) for word in _BYTES} | {
        PC: range(0x10000), DUE: range(_LONGEST_INSTRUCTION), POSITION: range(PICTURE_DOTS), DOTS_DONE: range(1),
        BACKGROUND_TABLE: (0, 0x1000), SPRITE_TABLE: (0, 0x1000), INCREMENT: (1, 32), ADDRESS: range(0x10000),
        NEXT_ADDRESS: range(0x8000), FINE_X: range(8), SPRITE_COUNT: range(9),
        HIT_POSITION: range(HIT_UNKNOWN, PICTURE_DOTS),
    }  # fmt: skip


_ACCEPTED = _accepted()


def check_words(state: Sequence[int]) -> None:
    """Check the words of a lane's `state`, e.g. from a file. Raises `ValueError` naming the first invalid one."""
    for word, value in enumerate(state):
        if value not in _ACCEPTED[word] and (word, value) != (HIT_POSITION, HIT_NEVER):
            raise ValueError(f"word {word} of the console's state can't be {value}")


# Bits of the video address that are reloaded for each line, and for each picture
HORIZONTAL_BITS = 0x041F
VERTICAL_BITS = 0x7BE0


@helper
def name_table_index(address, vertical):
    """Index into the 2048 bytes of name tables of a video address 0x2000..0x3EFE."""
    table = 3 if address >= 0x2C00 else (address >> 10) & 3
    return (address & 0x3FF) | ((table & 1) << 10 if vertical else (table >> 1) << 10)


@helper
def read_video(state, memory, tiles, address):
    """The byte at a 16-bit video address."""
    if address < 0x2000:
        return np.int64(tiles[address])
    if address < 0x3EFF:
        return np.int64(memory[NAME_TABLES + name_table_index(address, state[VERTICAL_MIRRORING])])
    if address < 0x3FFF:
        return np.int64(memory[PALETTE + (address & 0x1F)])
    return 0


@helper
def write_video(state, memory, address, value):
    """Write a byte to a 16-bit video address; tiles are ROM and do not change."""
    if 0x2000 <= address < 0x3EFF:
        memory[NAME_TABLES + name_table_index(address, state[VERTICAL_MIRRORING])] = value
    elif 0x3EFF <= address < 0x3FFF:
        memory[PALETTE + (0 if address == 0x3F10 else address & 0x1F)] = value


@helper
def next_row(address):
    """The video address one line further down."""
    if address & 0x7000 != 0x7000:
        return address + 0x1000
    address &= ~0x7000
    row = (address >> 5) & 31
    if row == 29:
        row = 0
        address ^= 0x0800
    elif row == 31:
        row = 0
    else:
        row += 1
    return (address & ~0x03E0) | (row << 5)


@helper
def skip_columns(address, columns):
    """The video address `columns` tiles further right."""
    column = (address & 31) + columns
    return ((address & ~31) | (column & 31)) ^ ((column >> 5) & 1) << 10


@helper
def choose_sprites(state, memory, line):
    """List the first 8 sprites that touch `line`; they are drawn on the line after it."""
    height = 16 if state[TALL_SPRITES] else 8
    count = 0
    for i in range(state[SPRITE_ADDRESS] >> 2, 64):
        above = line - np.int64(memory[SPRITES + 4 * i])
        if 0 <= above < height:
            state[SPRITE_LIST + count] = i
            count += 1
            if count == 8:
                break
    state[SPRITE_COUNT] = count
    # clear the rest, so that equal lanes have equal states
    for i in range(count, 8):
        state[SPRITE_LIST + i] = 0


@helper
def sprite_row_address(state, tile, attributes, row):
    """Address of the lower bit plane of a sprite's row.

    `row` is negative on line 0 for a sprite that was listed in the previous picture; nes-py's arithmetic then reads the
    bytes before the tile.
    """
    if state[TALL_SPRITES]:
        if attributes & 0x80:
            row ^= 15
        row = (row & 7) | ((row & 8) << 1)
        return (((tile >> 1) * 32 + row) & 0xFFFF) | (tile & 1) << 12
    if attributes & 0x80:
        row ^= 7
    return (tile * 16 + row + state[SPRITE_TABLE]) & 0xFFFF


@helper
def sprite_row(state, line, sprite_y):
    """The row of a sprite that `line` shows; it has the sign of C's remainder."""
    height = 16 if state[TALL_SPRITES] else 8
    distance = line - ((sprite_y + 1) & 0xFF)
    return distance % height if distance >= 0 else -(-distance % height)
