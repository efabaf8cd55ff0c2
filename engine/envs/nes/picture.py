"""Draws spans of picture lines as NES colours (0..63).

A line is drawn eight pixels at a time: a bit plane's byte spreads to a word with a 0 or 1 in each of its
eight bytes, and a multiplication colours all of them at once. This relies on a little-endian machine.
"""

import numpy as np
from numpy.typing import NDArray

from engine.envs.nes.layout import (
    ADDRESS,
    BACKGROUND_TABLE,
    CELLS,
    FINE_X,
    LINE_COLORS,
    LINE_OPAQUE,
    NAME_TABLES,
    PALETTE,
    SCREEN_WIDTH,
    SHOW_BACKGROUND,
    SHOW_BACKGROUND_EDGE,
    SHOW_SPRITES,
    SHOW_SPRITES_EDGE,
    SPRITE_COUNT,
    SPRITE_LIST,
    SPRITES,
    VERTICAL_MIRRORING,
)
from engine.envs.nes.video import read_video, sprite_row, sprite_row_address
from engine.jit import helper

# byte of a bit plane -> word whose byte i is bit 7 - i
SPREAD: NDArray[np.int64] = (
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.uint8).view(np.int64).ravel().copy()
)
ONES = 0x0101010101010101


@helper
def draw_background(state, memory, tiles, count):
    """Fill LINE_COLORS and LINE_OPAQUE with `count` tiles from the current video address on."""
    address = state[ADDRESS]
    vertical = state[VERTICAL_MIRRORING]
    table = state[BACKGROUND_TABLE] | ((address >> 12) & 7)
    backdrop = np.int64(memory[PALETTE]) & 0x3F
    row = address & 0x03E0
    half = address & 0x0C00
    column = address & 31
    attribute_row = 0x3C0 | ((address >> 4) & 0x38)
    attribute_shift = (address >> 4) & 4
    base = NAME_TABLES + ((half & 0x400) if vertical else (half & 0x800) >> 1)
    for i in range(count):
        source = np.int64(memory[base + row + column]) * 16 + table
        low = SPREAD[tiles[source]]
        high = SPREAD[tiles[source + 8]]
        attribute = np.int64(memory[base + attribute_row + (column >> 2)])
        colors = PALETTE + (((attribute >> (attribute_shift | (column & 2))) & 3) << 2)
        both = low & high
        state[LINE_COLORS + i] = (
            ONES * backdrop
            + (low - both) * ((np.int64(memory[colors + 1]) & 0x3F) - backdrop)
            + (high - both) * ((np.int64(memory[colors + 2]) & 0x3F) - backdrop)
            + both * ((np.int64(memory[colors + 3]) & 0x3F) - backdrop)
        )
        state[LINE_OPAQUE + i] = low | high
        if column == 31:
            column = 0
            base ^= 0x400 if vertical else 0
        else:
            column += 1


@helper
def draw_sprites(state, memory, tiles, line, start, stop, colors, opaque, shift):
    """Paint the listed sprites over pixels start..stop-1: byte x + shift of `colors` and `opaque` is pixel x.

    The first listed sprite with an opaque pixel owns it, even where it hides behind the background.
    """
    left = 0 if state[SHOW_SPRITES_EDGE] else 8
    for i in range(state[SPRITE_COUNT]):
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
        behind = attributes & 0x20
        for x in range(first, last):
            bit = (x - sprite_x) ^ flip
            pixel = ((low >> bit) & 1) | ((high >> bit) & 1) << 1
            covered = opaque[x + shift]
            if pixel == 0 or covered & 2:
                continue
            opaque[x + shift] = covered | 2
            if not (behind and covered):
                colors[x + shift] = memory[entries + pixel] & 0x3F


@helper
def draw_span(state, memory, canvas, tiles, line, start, stop):
    """Draw pixels start..stop-1 of `line` with the registers as they are; the video address is at `start`."""
    phase = (state[FINE_X] + start) & 7
    colors = state[LINE_COLORS:LINE_OPAQUE].view(np.uint8)
    opaque = state[LINE_OPAQUE:CELLS].view(np.uint8)
    backdrop = memory[PALETTE] & 0x3F
    hidden = stop
    if state[SHOW_BACKGROUND]:
        draw_background(state, memory, tiles, (phase + stop - start + 7) >> 3)
        hidden = start if state[SHOW_BACKGROUND_EDGE] else min(max(start, 8), stop)
    shift = phase - start
    for i in range(start + shift, hidden + shift):
        colors[i] = backdrop
        opaque[i] = 0
    if state[SHOW_SPRITES] and state[SPRITE_COUNT] > 0:
        draw_sprites(state, memory, tiles, line, start, stop, colors, opaque, shift)
    row = line * SCREEN_WIDTH
    for x in range(start, stop):
        canvas[row + x] = colors[x + shift]
