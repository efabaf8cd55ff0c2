"""Draws the small gray picture [50, 60] straight from name tables, without an intermediate picture where it
can.

A gray row is four lines. Where nothing changes in between, they are four rows of the same tiles, and a tile's
columns fall into three cells at most: how often each part shows colours 1, 2 and 3 is known in advance
(`tile_counts`), so three multiplications give the brightness of all its parts. Sprites are painted over it as
differences. The other rows (the frame border, a split) are drawn as pixels and reduced.

Brightness is counted in units of 4/1000, which is exact since nes-py's colours are multiples of 4. 16 pixels
of the brightest stay below 2**20, so three sums fit into one word.
"""

import numpy as np
from numpy.typing import NDArray

from engine.envs.nes.colors import LUMA
from engine.envs.nes.layout import (
    ADDRESS,
    BACKGROUND_TABLE,
    CELLS,
    FINE_X,
    GRAY,
    GRAY_HEIGHT,
    GRAY_LEFT,
    GRAY_TOP,
    GRAY_WIDTH,
    LINE_OPAQUE,
    NAME_TABLES,
    NEXT_ADDRESS,
    PALETTE,
    PIXEL_GROUPS,
    SCREEN_WIDTH,
    SHOW_BACKGROUND,
    SHOW_SPRITES,
    SPRITE_COUNT,
    SPRITE_LIST,
    SPRITES,
    TALL_SPRITES,
    VERTICAL_MIRRORING,
)
from engine.envs.nes.video import (
    HORIZONTAL_BITS,
    choose_sprites,
    name_table_index,
    read_video,
    skip_columns,
    sprite_row,
    sprite_row_address,
)
from engine.jit import helper

assert not (LUMA % 4).any()
LIGHT: NDArray[np.int64] = LUMA // 4
PART = 21  # bits of a word for each part of a tile


def tile_counts(tiles: NDArray[np.uint8]) -> NDArray[np.int64]:
    """int64 [4 * 512 * 2 * 3]: by shift, tile, half and colour (1..3), how many pixels of each part show it.

    With `shift` columns in the part that completes a cell begun in the tile before, the next part is a whole
    cell and the rest begins another. The first part's count lies in bits 0-20 of a word, the second's in
    21-41, the third's above.
    """
    planes = np.unpackbits(tiles.reshape(512, 2, 8, 1), axis=3)
    pixels = (planes[:, 0] | planes[:, 1] << 1).reshape(512, 2, 4, 8)
    columns = np.stack([(pixels == color).sum(axis=2) for color in (1, 2, 3)], axis=2)
    words = [
        columns[..., :shift].sum(axis=3)
        | columns[..., shift : shift + 4].sum(axis=3) << PART
        | columns[..., shift + 4 :].sum(axis=3) << 2 * PART
        for shift in range(4)
    ]
    return np.stack(words).astype(np.int64).ravel()


@helper
def rows_share_tiles(state):
    """Whether the next four lines show the same tiles, given that they are whole and no register changes."""
    address = state[ADDRESS]
    aligned = (address >> 12) & 3 == 0 and (address ^ state[NEXT_ADDRESS]) & HORIZONTAL_BITS == 0
    return state[SHOW_BACKGROUND] and state[SHOW_SPRITES] and aligned


@helper
def sprites_touch(state, memory, line):
    """Whether a sprite may be drawn on one of the four lines from `line` on."""
    height = 16 if state[TALL_SPRITES] else 8
    touched = state[SPRITE_COUNT]
    for i in range(64):
        sprite_y = np.int64(memory[SPRITES + 4 * i])
        touched |= (sprite_y <= line + 2) & (sprite_y > line - height)
    return touched != 0


@helper
def draw_gray_row(state, memory, canvas, tiles, counts, line):
    """Draw the gray row of the four lines from `line` on, for which `rows_share_tiles` holds."""
    address = state[ADDRESS]
    vertical = state[VERTICAL_MIRRORING]
    fine_x = state[FINE_X]
    shift = fine_x & 3
    words = ((shift * 512 + (state[BACKGROUND_TABLE] >> 4)) * 2 + ((address >> 14) & 1)) * 3
    row = address & 0x03E0
    attribute_row = 0x3C0 | ((address >> 4) & 0x38)
    attribute_shift = (address >> 4) & 4
    # the first tile lies in the columns that are cut off
    column = (address & 31) + 1
    table = (address >> 10) & 3
    if column == 32:
        column = 0
        table ^= 1
    base = NAME_TABLES + ((table & 1) << 10 if vertical else (table >> 1) << 10)
    backdrop = LIGHT[memory[PALETTE] & 0x3F]
    all_backdrop = backdrop * (4 * shift | 16 << PART | (16 - 4 * shift) << 2 * PART)
    begun = 0
    for i in range(31):
        word = words + 6 * np.int64(memory[base + row + column])
        attribute = np.int64(memory[base + attribute_row + (column >> 2)])
        colors = PALETTE + (((attribute >> (attribute_shift | (column & 2))) & 3) << 2)
        parts = (
            all_backdrop
            + counts[word] * (LIGHT[memory[colors + 1] & 0x3F] - backdrop)
            + counts[word + 1] * (LIGHT[memory[colors + 2] & 0x3F] - backdrop)
            + counts[word + 2] * (LIGHT[memory[colors + 3] & 0x3F] - backdrop)
        )
        state[CELLS + 2 * i] = begun + (parts & ((1 << PART) - 1))
        state[CELLS + 2 * i + 1] = (parts >> PART) & ((1 << PART) - 1)
        begun = parts >> 2 * PART
        if column == 31:
            column = 0
            base ^= 0x400 if vertical else 0
        else:
            column += 1
    first = 1 + (fine_x >> 2)
    if sprites_touch(state, memory, line):
        for i in range(4):
            add_sprites(state, memory, tiles, line + i, address + (i << 12), CELLS + first)
            choose_sprites(state, memory, line + i)
    write_gray_row(state, canvas, first, (line - GRAY_TOP) >> 2)


@helper
def add_sprites(state, memory, tiles, line, address, cells):
    """Add what the listed sprites change on `line`, which starts at `address`, to state[cells:]."""
    claimed = state[LINE_OPAQUE:CELLS].view(np.uint8)
    if state[SPRITE_COUNT] > 1:
        claimed[:SCREEN_WIDTH] = 0
    for i in range(state[SPRITE_COUNT]):
        sprite = SPRITES + 4 * state[SPRITE_LIST + i]
        sprite_x = np.int64(memory[sprite + 3])
        attributes = np.int64(memory[sprite + 2])
        row = sprite_row(state, line, np.int64(memory[sprite]))
        source = sprite_row_address(state, np.int64(memory[sprite + 1]), attributes, row)
        low = read_video(state, memory, tiles, source)
        high = read_video(state, memory, tiles, (source + 8) & 0xFFFF)
        flip = 0 if attributes & 0x40 else 7
        entries = PALETTE + 16 + ((attributes & 3) << 2)
        offset = (state[FINE_X] + sprite_x) & 7
        left = skip_columns(address, (state[FINE_X] + sprite_x) >> 3)
        right = skip_columns(left, 1)
        low_left, high_left = background_planes(state, memory, tiles, left)
        low_right, high_right = background_planes(state, memory, tiles, right)
        for x in range(max(sprite_x, GRAY_LEFT), min(sprite_x + 8, GRAY_LEFT + 4 * GRAY_WIDTH)):
            bit = (x - sprite_x) ^ flip
            pixel = ((low >> bit) & 1) | ((high >> bit) & 1) << 1
            if pixel == 0 or (state[SPRITE_COUNT] > 1 and claimed[x]):
                continue
            claimed[x] = 1
            bit = 15 - offset - x + sprite_x
            below = (((low_left << 8 | low_right) >> bit) & 1) | (((high_left << 8 | high_right) >> bit) & 1) << 1
            hidden = PALETTE
            if below != 0:
                if attributes & 0x20:
                    continue
                hidden += background_palette(state, memory, left if bit >= 8 else right) + below
            change = LIGHT[memory[entries + pixel] & 0x3F] - LIGHT[memory[hidden] & 0x3F]
            state[cells + ((x - GRAY_LEFT) >> 2)] += change


@helper
def background_planes(state, memory, tiles, address):
    """The two bit planes of the background's eight pixels at a video address."""
    tile = np.int64(memory[NAME_TABLES + name_table_index(0x2000 | address & 0x0FFF, state[VERTICAL_MIRRORING])])
    source = tile * 16 + ((address >> 12) & 7) | state[BACKGROUND_TABLE]
    return np.int64(tiles[source]), np.int64(tiles[source + 8])


@helper
def background_palette(state, memory, address):
    """Which palette entries (0, 4, 8 or 12 and the three after it) the background uses at a video address."""
    place = 0x23C0 | (address & 0x0C00) | ((address >> 4) & 0x38) | ((address >> 2) & 7)
    attribute = np.int64(memory[NAME_TABLES + name_table_index(place, state[VERTICAL_MIRRORING])])
    return ((attribute >> (((address >> 4) & 4) | (address & 2))) & 3) << 2


@helper
def write_gray_row(state, canvas, first, row):
    """Write 60 CELLS from `first` on as the gray picture's `row`."""
    out = GRAY + row * GRAY_WIDTH
    for x in range(GRAY_WIDTH):
        # divided by 4000 (16 pixels of 250 units), halves up; exact below 2**22
        canvas[out + x] = ((state[CELLS + first + x] + 2000) * 1073742) >> 32


@helper
def reduce_pixel_rows(state, canvas):
    """Make the gray rows of PIXEL_GROUPS from the pixels on the canvas."""
    for row in range(GRAY_HEIGHT):
        if not (state[PIXEL_GROUPS] >> row) & 1:
            continue
        for x in range(GRAY_WIDTH):
            at = (GRAY_TOP + 4 * row) * SCREEN_WIDTH + GRAY_LEFT + 4 * x
            total = 0
            for y in range(4):
                for i in range(4):
                    total += LIGHT[canvas[at + y * SCREEN_WIDTH + i]]
            state[CELLS + x] = total
        write_gray_row(state, canvas, 0, row)
