"""`run_frame` called by another kernel, as in a task that reads RAM after every frame."""

from typing import Any

import numpy as np

from engine.console.compiler.kernels import kernel
from engine.console.nes import (
    CANVAS_SIZE,
    DRAW,
    DRAW_NOTHING,
    ROM,
    NesBatch,
    draw_rows,
    frame_function,
    load_cartridge,
    remember,
)
from engine.console.view import VIEWS, reduce_screen

CLOCK = 0x09
DRAWING = draw_rows(DRAW["gray"], VIEWS["50x60"].top, VIEWS["50x60"].bottom)


@kernel(f"int64, int64[1], uint8[1], int64[1], uint8[1], uint16[1], {ROM}, int64, int64, uint8[1]")
def watch(
    frame_address: Any, state: Any, memory: Any, last_state: Any, last_memory: Any, canvas: Any, rom: Any, buttons: int,
    frames: int, seen: Any,
) -> None:  # fmt: skip
    """Play a lane; `seen` (uint8 [frames]) takes the game's frame counter after every frame."""
    run_frame = frame_function(frame_address)
    for frame in range(frames):
        draw = DRAW_NOTHING
        if frame == frames - 1:
            remember(state, memory, last_state, last_memory)
            draw = DRAWING
        run_frame(state, memory, canvas, rom, np.int64(buttons), np.int64(draw))
        seen[frame] = memory[CLOCK]


def test_a_task_kernel_sees_every_frame_and_leaves_the_console_as_step_would() -> None:
    ours, other = NesBatch(1, load_cartridge()), NesBatch(1, load_cartridge())
    held = np.zeros(1, np.uint8)
    ours.step(held, 60)
    other.step(held, 60)
    canvas = np.zeros(CANVAS_SIZE, np.uint16)
    seen = np.zeros(8, np.uint8)
    watch(
        other.frame_address,
        other.state[0],
        other.memory[0],
        other.last_state[0],
        other.last_memory[0],
        canvas,
        other.rom,
        0,
        8,
        seen,
    )
    expected = []
    for _ in range(8):
        ours.step(held)
        expected.append(ours.ram[0, CLOCK])
    assert seen.tolist() == expected and len(set(expected)) > 4
    assert np.array_equal(ours.ram, other.ram)
    assert np.array_equal(ours.screen(0), other.screen(0))
    view = VIEWS["50x60"]
    drawn, later = np.zeros(view.shape, np.uint8), np.zeros((1, *view.shape), np.uint8)
    reduce_screen(canvas, *view.spans(), drawn.reshape(-1))
    for console in (ours, other):
        console.picture(view, later)
        assert later.tobytes() == drawn.tobytes()
