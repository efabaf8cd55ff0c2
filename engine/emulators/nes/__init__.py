"""A batched NES (NROM cartridges, no sound) compiled to machine code, byte-identical to nes-py 8.2.1."""

from engine.emulators.cartridge import Cartridge, CartridgeError, load_cartridge
from engine.emulators.nes.console import NesBatch
from engine.emulators.nes.cpu import frame_function
from engine.emulators.nes.lanes import make_rom, remember
from engine.emulators.nes.layout import (
    CANVAS_SIZE,
    DRAW,
    DRAW_NOTHING,
    MEMORY_BYTES,
    ROM,
    STATE_WORDS,
    draw_rows,
)

__all__ = [
    "CANVAS_SIZE",
    "DRAW",
    "DRAW_NOTHING",
    "MEMORY_BYTES",
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
]
