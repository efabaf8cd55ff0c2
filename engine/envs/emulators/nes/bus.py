"""What lies on the CPU's bus beside its RAM and program: picture registers, sprite DMA and controllers.

An access happens at one instant, the cycle at which its instruction begins (nes-py's rule), and the PPU is
brought there first.
"""

import numpy as np

from engine.envs.emulators.nes.layout import (
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
from engine.envs.emulators.nes.ppu import advance, read_register, write_register
from engine.runtime.jit import helper


@helper
def copy_sprites(state, memory, program, source):
    """Copy the 256 bytes at `source` to the sprites, from SPRITE_ADDRESS on; registers are left out."""
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
    """The CPU accesses `address` 0x2000..0x7FFF, where what is not connected reads as 0.

    Returns the byte read, or for a `write` of `value` the cycles that the CPU is halted for. Reading and
    writing share a function since every caller of `advance` costs half a second of compile time.
    """
    if address < 0x4000 or (address == 0x4014 and write):
        advance(state, memory, canvas, tiles, masks, 3 * cycle, draw)
    if not write:
        if address < 0x4000:
            return read_register(state, memory, tiles, address & 7)
        if address == 0x4016:
            return read_controller(state)
        # nobody holds the second controller
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
    """The next button of the first controller, beginning with A, in bit 0."""
    if state[STROBE]:
        return 0x40 | (state[BUTTONS] & 1)
    bit = state[BUTTON_BITS] & 1
    state[BUTTON_BITS] >>= 1
    return 0x40 | bit
