"""Draws picture lines on the canvas, as NES colours or as brightness for the agent's view.

Up to eight lines are drawn at a time: those that show the same row of tiles. A pixel has 16 bits, so a word has four
pixels, and a row of a tile is two words. Bit planes are stored as masks of such words (`tile_masks`): starting from the
backdrop, each plane changes the pixels of its mask to another value. The words of a line start at its first tile, in
the scratch space of the canvas; from there pixels are copied to their columns.
"""

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.kernels import helper
from engine.console.nes.layout import (
    ADDRESS,
    BACKGROUND_TABLE,
    DRAW,
    DRAW_COLORS,
    FINE_X,
    HORIZONTAL_BITS,
    NAME_TABLES,
    NEXT_ADDRESS,
    PALETTE,
    SCRATCH,
    SCRATCH_WIDTH,
    SCREEN_WIDTH,
    SHOW_BACKGROUND,
    SHOW_BACKGROUND_EDGE,
    SHOW_SPRITES,
    SHOW_SPRITES_EDGE,
    SPRITE_COUNT,
    SPRITE_LIST,
    SPRITES,
    TALL_SPRITES,
    VERTICAL_MIRRORING,
    choose_sprites,
    name_table_index,
    read_video,
    skip_columns,
    sprite_row,
    sprite_row_address,
)
from engine.console.view import WEIGHTS, Brightness

# nes-py's palette of 64 colours: a policy trained with another one would not work on nes-py
COLORS: NDArray[np.int64] = np.array(
    [
        0x7C7C7C, 0x0000FC, 0x0000BC, 0x4428BC, 0x940084, 0xA80020, 0xA81000, 0x881400,
        0x503000, 0x007800, 0x006800, 0x005800, 0x004058, 0x000000, 0x000000, 0x000000,
        0xBCBCBC, 0x0078F8, 0x0058F8, 0x6844FC, 0xD800CC, 0xE40058, 0xF83800, 0xE45C10,
        0xAC7C00, 0x00B800, 0x00A800, 0x00A844, 0x008888, 0x000000, 0x000000, 0x000000,
        0xF8F8F8, 0x3CBCFC, 0x6888FC, 0x9878F8, 0xF878F8, 0xF85898, 0xF87858, 0xFCA044,
        0xF8B800, 0xB8F818, 0x58D854, 0x58F898, 0x00E8D8, 0x787878, 0x000000, 0x000000,
        0xFCFCFC, 0xA4E4FC, 0xB8B8F8, 0xD8B8F8, 0xF8B8F8, 0xF8A4C0, 0xF0D0B0, 0xFCE0A8,
        0xF8D878, 0xD8F878, 0xB8F8B8, 0xB8F8D8, 0x00FCFC, 0xF8D8F8, 0x000000, 0x000000,
    ],
    np.int64,
)  # fmt: skip
"""0x00RRGGBB."""

BLACK = 0x0F

RGB: NDArray[np.uint8] = np.stack([COLORS >> 16, COLORS >> 8 & 0xFF, COLORS & 0xFF], axis=1).astype(np.uint8)

BRIGHTNESS: dict[Brightness, NDArray[np.int64]] = {
    name: RGB.astype(np.int64) @ np.array(weights) for name, weights in WEIGHTS.items()
}
"""Brightness in thousandths, 0 to 255,000, int64 [64]."""

# Pixel values, indexed by kind of drawing and NES colour. Brightness is in units of 4/1000, which is exact because
# nes-py's colours are multiples of 4, and fits in 16 bits.
PIXELS: NDArray[np.int64] = np.zeros((2 + len(DRAW), 64), np.int64)
PIXELS[DRAW_COLORS] = np.arange(64)
for _name, _brightness in BRIGHTNESS.items():
    assert not (_brightness % 4).any()
    PIXELS[DRAW[_name]] = _brightness // 4
# The same, four times in a word.
WORDS: NDArray[np.int64] = np.repeat(PIXELS.astype(np.uint16), 4, axis=1).view(np.int64)

_LINE_WORDS = SCRATCH_WIDTH // 4


def tile_masks(tiles: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Masks of all tile rows, int64 [512 * 8, 4]: two words of the low bit plane, two of the high one; 0xFFFF for a set
    bit."""
    planes = np.unpackbits(tiles.reshape(512, 2, 8, 1), axis=3)
    return (planes.swapaxes(1, 2).astype(np.uint16) * 0xFFFF).copy().view(np.int64).reshape(-1, 4)


@helper
def lines_together(state):
    """Number of lines that show the same row of tiles if no register changes."""
    reloaded = (state[ADDRESS] ^ state[NEXT_ADDRESS]) & HORIZONTAL_BITS == 0
    if state[SHOW_BACKGROUND] and state[SHOW_SPRITES] and reloaded:
        return 8 - ((state[ADDRESS] >> 12) & 7)
    return np.int64(1)


@helper
def draw_tiles(state, memory, words, masks, count, lines, draw):
    """Fill `lines` rows of `words` (int64 [8 * 66]) with `count` tiles, starting at the current video address."""
    address = state[ADDRESS]
    vertical = state[VERTICAL_MIRRORING]
    first = (state[BACKGROUND_TABLE] >> 1) | ((address >> 12) & 7)
    backdrop = WORDS[draw, memory[PALETTE] & 0x3F]
    row = address & 0x03E0
    half = address & 0x0C00
    column = address & 31
    attribute_row = 0x3C0 | ((address >> 4) & 0x38)
    attribute_shift = (address >> 4) & 4
    base = NAME_TABLES + ((half & 0x400) if vertical else (half & 0x800) >> 1)
    for i in range(count):
        attribute = np.int64(memory[base + attribute_row + (column >> 2)])
        colors = PALETTE + (((attribute >> (attribute_shift | (column & 2))) & 3) << 2)
        by_low = WORDS[draw, memory[colors + 1] & 0x3F] ^ backdrop
        by_high = WORDS[draw, memory[colors + 2] & 0x3F] ^ backdrop
        by_both = by_low ^ by_high ^ WORDS[draw, memory[colors + 3] & 0x3F] ^ backdrop
        row_of_tile = np.int64(memory[base + row + column]) * 8 + first
        for y in range(lines):
            source, target = 4 * (row_of_tile + y), y * _LINE_WORDS + 2 * i
            low, low_2, high, high_2 = masks[source], masks[source + 1], masks[source + 2], masks[source + 3]
            # both words are stored after all is read, so that LLVM computes them as one vector
            words[target], words[target + 1] = (
                backdrop ^ low & by_low ^ high & by_high ^ low & high & by_both,
                backdrop ^ low_2 & by_low ^ high_2 & by_high ^ low_2 & high_2 & by_both,
            )
        if column == 31:
            column = 0
            base ^= 0x400 if vertical else 0
        else:
            column += 1


@helper
def sprites_touch(state, memory, line, count):
    """Return whether a sprite may be drawn on one of `count` lines starting at `line`."""
    height = 16 if state[TALL_SPRITES] else 8
    touched = state[SPRITE_COUNT]
    for i in range(64):
        sprite_y = np.int64(memory[SPRITES + 4 * i])
        touched |= (sprite_y <= line + count - 2) & (sprite_y > line - height)
    return touched != 0


@helper
def opaque_background(state, memory, tiles, address):
    """Opaque pixels of the background tile row at a video address, as 8 bits; the leftmost pixel is bit 7."""
    tile = np.int64(memory[NAME_TABLES + name_table_index(0x2000 | address & 0x0FFF, state[VERTICAL_MIRRORING])])
    source = tile * 16 + ((address >> 12) & 7) | state[BACKGROUND_TABLE]
    return np.int64(tiles[source]) | np.int64(tiles[source + 8])


@helper
def draw_sprites(state, memory, canvas, tiles, line, start, stop, address, background, draw):
    """Draw the listed sprites over pixels start..stop-1 of `line`.

    address: the video address at `start`. background: index on the canvas of column 0 of the line's background without
    sprites. The first listed sprite with an opaque pixel owns it, even if it is hidden behind the background. So the
    last sprite is drawn first, and a hidden pixel restores the background.
    """
    left = 0 if state[SHOW_SPRITES_EDGE] else 8
    for i in range(state[SPRITE_COUNT] - 1, -1, -1):
        sprite = SPRITES + 4 * state[SPRITE_LIST + i]
        sprite_x = np.int64(memory[sprite + 3])
        first = max(sprite_x, start, left)
        last = min(sprite_x + 8, stop)
        if first >= last:
            continue
        attributes = np.int64(memory[sprite + 2])
        row = sprite_row(state, line, np.int64(memory[sprite]))
        source = sprite_row_address(state, np.int64(memory[sprite + 1]), attributes, row)
        low = read_video(state, memory, tiles, source)
        high = read_video(state, memory, tiles, (source + 8) & 0xFFFF)
        flip = 0 if attributes & 0x40 else 7
        entries = PALETTE + 16 + ((attributes & 3) << 2)
        column = state[FINE_X] + first
        hiding = 0  # opaque pixels of the background in two tiles, starting with the tile at `first`
        if attributes & 0x20 and state[SHOW_BACKGROUND]:
            here = skip_columns(address, (column >> 3) - ((state[FINE_X] + start) >> 3))
            hiding = opaque_background(state, memory, tiles, here) << 8
            hiding |= opaque_background(state, memory, tiles, skip_columns(here, 1))
        for x in range(first, last):
            bit = (x - sprite_x) ^ flip
            pixel = ((low >> bit) & 1) | ((high >> bit) & 1) << 1
            if pixel == 0:
                continue
            behind = (hiding >> (15 - (column & 7) - x + first)) & 1
            if behind and (x >= 8 or state[SHOW_BACKGROUND_EDGE]):
                canvas[line * SCREEN_WIDTH + x] = canvas[background + x]
            else:
                canvas[line * SCREEN_WIDTH + x] = PIXELS[draw, memory[entries + pixel] & 0x3F]


@helper
def fill(pixels, count, value):
    """Set `count` pixels to a value. A loop that counts from 0, like this one and the next, is vectorised."""
    for i in range(count):
        pixels[i] = value


@helper
def copy(pixels, count, source):
    """Copy `count` pixels."""
    for i in range(count):
        pixels[i] = source[i]


@helper
def draw_lines(state, memory, canvas, tiles, masks, line, count, start, stop, draw):
    """Draw pixels start..stop-1 of `count` lines with the current registers; the video address is that at `start`.

    Chooses the sprites of each next line, except for the line after the last one.
    """
    phase = (state[FINE_X] + start) & 7
    hidden = stop
    if state[SHOW_BACKGROUND]:
        tiles_needed = (phase + stop - start + 7) >> 3
        draw_tiles(state, memory, canvas[SCRATCH:].view(np.int64), masks.reshape(-1), tiles_needed, count, draw)
        hidden = start if state[SHOW_BACKGROUND_EDGE] else min(max(start, 8), stop)
    backdrop = PIXELS[draw, memory[PALETTE] & 0x3F]
    with_sprites = state[SHOW_SPRITES] and sprites_touch(state, memory, line, count)
    for y in range(count):
        row = (line + y) * SCREEN_WIDTH
        background = SCRATCH + y * SCRATCH_WIDTH + phase - start
        fill(canvas[row + start :], hidden - start, backdrop)
        copy(canvas[row + hidden :], stop - hidden, canvas[background + hidden :])
        if with_sprites:
            address = state[ADDRESS] + (y << 12)
            draw_sprites(state, memory, canvas, tiles, line + y, start, stop, address, background, draw)
            if y < count - 1:
                choose_sprites(state, memory, line + y)
