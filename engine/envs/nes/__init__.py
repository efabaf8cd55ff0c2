"""A batched NES (NROM cartridges, no sound) compiled by numba, byte for byte in step with nes-py 8.2.1."""

from engine.envs.nes.cartridge import Cartridge, CartridgeError, load_cartridge
from engine.envs.nes.colors import LUMA
from engine.envs.nes.console import NesBatch
from engine.envs.nes.cpu import run_frame
from engine.envs.nes.lanes import make_rom, remember
from engine.envs.nes.layout import (
    CANVAS_BYTES,
    DRAW_GRAY,
    DRAW_NOTHING,
    DRAW_SCREEN,
    GRAY,
    GRAY_BYTES,
    MEMORY_BYTES,
    SAVED,
    STATE_WORDS,
)

__all__ = [
    "CANVAS_BYTES",
    "DRAW_GRAY",
    "DRAW_NOTHING",
    "DRAW_SCREEN",
    "GRAY",
    "GRAY_BYTES",
    "LUMA",
    "MEMORY_BYTES",
    "SAVED",
    "STATE_WORDS",
    "Cartridge",
    "CartridgeError",
    "NesBatch",
    "load_cartridge",
    "make_rom",
    "remember",
    "run_frame",
]
