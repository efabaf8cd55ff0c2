"""Devices on the CPU's bus other than RAM and program: PPU registers, sprite DMA and controllers.

An access takes effect in the first cycle of its instruction (nes-py's rule); the PPU is advanced to that cycle first.
"""

import numpy as np

from engine.compiler.kernels import helper
from engine.emulators.nes.layout import (
    BUTTON_BITS,
    BUTTONS,
    CYCLE_PARITY,
    HIT_POSITION,
    HIT_UNKNOWN,
    RAM,
    SPRITE_ADDRESS,
    SPRITES,
    STROBE,
)
from engine.emulators.nes.ppu import advance, read_register, write_register


@helper
def copy_sprites(state, memory, program, source):
    """Copy the 256 bytes at `source` to the sprites, starting at SPRITE_ADDRESS; registers are skipped."""
    state[HIT_POSITION] = HIT_UNKNOWN
    for i in range(256):
        address = source + i
        if address < 0x2000:
            value = memory[RAM + (address & 0x7FF)]
        elif address >= 0x8000:
            value = program[address & 0x7FFF]
        else:
            continue
        memory[SPRITES + ((state[SPRITE_ADDRESS] + i) & 0xFF)] = value


@helper
def access_io(state, memory, canvas, program, tiles, masks, address, write, value, cycle, draw):
    """An access of the CPU to `address` 0x2000..0x7FFF. Unconnected addresses read as 0.

    Returns the byte read; for a `write` of `value`, the number of cycles for which the CPU is halted. Reading and
    writing share a function because LLVM may copy `advance` into every caller.
    """
    if address < 0x4000 or (address == 0x4014 and write):
        advance(state, memory, canvas, tiles, masks, 3 * cycle, draw)
    if not write:
        if address < 0x4000:
            return read_register(state, memory, tiles, address & 7)
        if address == 0x4016:
            return read_controller(state)
        # no buttons on the second controller
        return np.int64(0x40 if address == 0x4017 else 0)
    if address < 0x4000:
        write_register(state, memory, address & 7, value)
    elif address == 0x4014:
        copy_sprites(state, memory, program, value << 8)
        return 513 + ((cycle + state[CYCLE_PARITY]) & 1)
    elif address == 0x4016:
        state[STROBE] = value & 1
        if not value & 1:
            state[BUTTON_BITS] = state[BUTTONS]
    return np.int64(0)


@helper
def read_controller(state):
    """Read the next button of the first controller, starting with A, in bit 0."""
    if state[STROBE]:
        return 0x40 | (state[BUTTONS] & 1)
    bit = state[BUTTON_BITS] & 1
    state[BUTTON_BITS] >>= 1
    return 0x40 | bit
