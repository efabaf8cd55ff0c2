"""Video memory: name table mirroring, the scrolling video address, and the sprites of a line.

Differences from the real console follow nes-py: palette entries $3F14, $3F18 and $3F1C are not mirrored, all name
tables above $3000 are the fourth, and a sprite row may be negative (see `sprite_row_address`).
"""

import numpy as np

from engine.compiler.kernels import helper
from engine.emulators.nes.layout import (
    NAME_TABLES,
    PALETTE,
    SPRITE_ADDRESS,
    SPRITE_COUNT,
    SPRITE_LIST,
    SPRITE_TABLE,
    SPRITES,
    TALL_SPRITES,
    VERTICAL_MIRRORING,
)

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
