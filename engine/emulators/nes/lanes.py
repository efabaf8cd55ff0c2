"""Kernels that step lanes, called from Python.

The kernel of a task (which reads RAM after every frame) is written like `run_lanes`: it takes the address of
`run_frame` as an argument. It calls `remember` before the last frame of a step and runs that frame with drawing; then
the picture is on the canvas.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.compiler.kernels import helper, kernel
from engine.emulators.cartridge import Cartridge
from engine.emulators.nes.cpu import frame_function
from engine.emulators.nes.decode import MACHINE_CODE, decode_program, opcode_words
from engine.emulators.nes.layout import DRAW_NOTHING, MEMORY_BYTES, PICTURE, ROM, STATE_WORDS
from engine.emulators.nes.machine_code import machine_code_of
from engine.emulators.nes.picture import tile_masks

Words: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Rom: TypeAlias = tuple[Bytes, NDArray[np.int32], NDArray[np.int32], Bytes, Words, int]


def make_rom(cartridge: Cartridge) -> Rom:
    """The data of a cartridge for kernels. It is always an argument, so that the cache on disk never contains a game.

    program uint8 [32768], decoded int32 [65536], opcode words int32 [256], tiles uint8 [8192], masks int64 [4096, 4],
    address of the machine code, in the order in which `run_frame` unpacks them.
    """
    program, tiles = cartridge.program.copy(), cartridge.tiles.copy()  # the arrays of the cartridge are read-only
    decoded = decode_program(program)
    machine_code = machine_code_of(program)
    decoded[machine_code.blocks] |= MACHINE_CODE
    return program, decoded, opcode_words(), tiles, tile_masks(tiles), machine_code.address


@helper
def remember(state, memory, last_state, last_memory):
    """Save the state of a lane before a frame, so that the frame can be drawn later."""
    for i in range(STATE_WORDS):
        last_state[i] = state[i]
    last_state[PICTURE] = 0  # so that lanes do not differ by what was drawn before
    for i in range(MEMORY_BYTES):
        last_memory[i] = memory[i]


@kernel(
    f"int64, int64, int64, int64[2], uint8[2], int64[2], uint8[2], uint16[1], {ROM}, uint8[1], int64, bool[1], int64"
)
def run_lanes(
    first: int,
    last: int,
    frame_address: int,
    state: Words,
    memory: Bytes,
    last_state: Words,
    last_memory: Bytes,
    canvas: NDArray[np.uint16],
    rom: Rom,
    buttons: Bytes,
    frames: int,
    active: NDArray[np.bool_],
    draw: int,
) -> None:
    """Run `frames` frames in the active lanes of first..last-1; `draw` is what to draw in the last one.

    Arrays have a row for each lane, except for the canvas, which all lanes use one after the other.
    """
    run_frame = frame_function(frame_address)
    for lane in range(first, last):
        if not active[lane]:
            continue
        held = np.int64(buttons[lane])
        for frame in range(frames):
            kind = DRAW_NOTHING
            if frame == frames - 1:
                remember(state[lane], memory[lane], last_state[lane], last_memory[lane])
                kind = draw
            run_frame(state[lane], memory[lane], canvas, rom, held, np.int64(kind))
