"""Kernels that step lanes: what stands between `run_frame` and Python.

A task's own kernel (one that looks at RAM after every frame) is written like `run_lanes`: `remember` before
the last frame of a step, then that frame with DRAW_GRAY, and the gray picture is on the canvas.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.envs.nes.cartridge import Cartridge
from engine.envs.nes.cpu import run_frame
from engine.envs.nes.decode import decode_program, opcode_words
from engine.envs.nes.gray import tile_counts
from engine.envs.nes.layout import (
    DRAW_GRAY,
    DRAW_NOTHING,
    GRAY,
    GRAY_BYTES,
    MEMORY_BYTES,
    PICTURE,
    PICTURE_GRAY,
    PICTURE_NONE,
    SAVED,
)
from engine.jit import helper, kernel

Words: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Rom: TypeAlias = tuple[Bytes, NDArray[np.int32], NDArray[np.int32], Bytes, Words]


def make_rom(cartridge: Cartridge) -> Rom:
    """What kernels know of a cartridge; always an argument, so that the cache on disk never holds a game.

    program uint8 [32768], decoded int32 [65536], opcode words int32 [256], tiles uint8 [8192], counts int64
    [12288]: in the order in which `run_frame` unpacks them.
    """
    program = cartridge.program
    return program, decode_program(program), opcode_words(), cartridge.tiles, tile_counts(cartridge.tiles)


@helper
def remember(state, memory, last_state, last_memory):
    """Keep how a lane stands before a frame, so that the frame's picture can be drawn later."""
    for i in range(SAVED):
        last_state[i] = state[i]
    last_state[PICTURE] = PICTURE_NONE  # what was drawn before must not make equal lanes differ
    for i in range(MEMORY_BYTES):
        last_memory[i] = memory[i]


@kernel
def run_lanes(
    first: int,
    last: int,
    state: Words,
    memory: Bytes,
    last_state: Words,
    last_memory: Bytes,
    gray: Bytes,
    canvas: Bytes,
    rom: Rom,
    buttons: Bytes,
    frames: int,
    active: NDArray[np.bool_],
    draw: int,
) -> None:
    """Run the active lanes of first..last-1 for `frames` frames; the last one is drawn as `draw` says.

    Arrays have a row per lane (gray: uint8 [lanes, 3000]) but for the canvas, which the lanes share in turn.
    """
    for lane in range(first, last):
        if not active[lane]:
            continue
        held = np.int64(buttons[lane])
        for frame in range(frames):
            kind = DRAW_NOTHING
            if frame == frames - 1:
                remember(state[lane], memory[lane], last_state[lane], last_memory[lane])
                kind = draw
            run_frame(state[lane], memory[lane], canvas, rom, held, kind)
        if draw == DRAW_GRAY:
            for i in range(GRAY_BYTES):
                gray[lane, i] = canvas[GRAY + i]
            state[lane, PICTURE] = PICTURE_GRAY
