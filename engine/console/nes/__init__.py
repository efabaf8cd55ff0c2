"""A batched NES (NROM cartridges, no sound) compiled to machine code, byte-identical to nes-py 8.2.1."""

from engine.console.cartridge import Cartridge, CartridgeError, load_cartridge
from engine.console.nes.console import NesBatch, make_rom, remember, shorten_frame
from engine.console.nes.cpu import frame_function
from engine.console.nes.layout import (
    CANVAS_SIZE,
    DRAW,
    DRAW_NOTHING,
    FRAME_CYCLES,
    MEMORY_BYTES,
    POSITION,
    ROM,
    STATE_WORDS,
    draw_rows,
)

__all__ = [
    "CANVAS_SIZE",
    "DRAW",
    "DRAW_NOTHING",
    "FRAME_CYCLES",
    "MEMORY_BYTES",
    "POSITION",
    "ROM",
    "STATE_WORDS",
    "Cartridge",
    "CartridgeError",
    "NesBatch",
    "draw_rows",
    "frame_function",
    "load_cartridge",
    "make_rom",
    "remember",
    "shorten_frame",
]
