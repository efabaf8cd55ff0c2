"""`run_frame` inside another kernel: how a task that looks at RAM after every frame is written."""

import numpy as np
from numba import njit

from engine.envs.nes import (
    DRAW_GRAY,
    DRAW_NOTHING,
    GRAY,
    GRAY_BYTES,
    NesBatch,
    load_cartridge,
    remember,
    run_frame,
)

CLOCK = 0x09


@njit(nogil=True)
def watch(state, memory, last_state, last_memory, canvas, rom, buttons, frames, seen):
    """Play a lane; `seen` (uint8 [frames]) takes the game's frame counter after every frame."""
    for frame in range(frames):
        draw = DRAW_NOTHING
        if frame == frames - 1:
            remember(state, memory, last_state, last_memory)
            draw = DRAW_GRAY
        run_frame(state, memory, canvas, rom, np.int64(buttons), draw)
        seen[frame] = memory[CLOCK]


def test_a_task_kernel_sees_every_frame_and_leaves_the_console_as_step_would() -> None:
    ours, other = NesBatch(1, load_cartridge()), NesBatch(1, load_cartridge())
    held = np.zeros(1, np.uint8)
    ours.step(held, 60)
    other.step(held, 60)
    canvas = np.zeros(GRAY + GRAY_BYTES, np.uint8)
    seen = np.zeros(8, np.uint8)
    watch(
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
    gray = np.zeros((1, 50, 60), np.uint8)
    ours.gray(gray)
    assert canvas[GRAY:].tobytes() == gray.tobytes()
    later = np.zeros((1, 50, 60), np.uint8)
    other.gray(later)
    assert later.tobytes() == gray.tobytes()
