"""The boards that placements of Tetris leave, as a network sees them: compiled, for CPUs.

The rules are those of `put` and `clear_lines` in `engine.envs.boards.tetris`, which do the same with tensors.
"""

import numpy as np
from numpy.typing import NDArray

from engine.runtime.jit import kernel


@kernel
def draw_afterboards(
    columns: NDArray[np.int32],
    games: NDArray[np.int64],
    placements: NDArray[np.int64],
    cell_columns: NDArray[np.int64],
    cell_rows: NDArray[np.int32],
    planes: NDArray[np.float32],
    lines: NDArray[np.int64],
) -> None:
    """Draw the boards after `placements` [boards] in `games` [boards], and count the lines that they clear.

    Args:
        columns: of the games before, [games, width + PADDING], as in `TetrisLanes`.
        cell_columns, cell_rows: of the cells of all placements, [7 * actions, 4], from `placements`.
        planes: written, [boards, 2, height, width], 0 or 1: the filled cells, and the cells at or below the highest
            filled one of their column.
        lines: written, [boards].
    """
    _, _, height, width = planes.shape
    board = (1 << height) - 1
    after = np.empty(columns.shape[1], np.int32)
    for number in range(len(planes)):
        taken = 0  # bit y is set if the box can't be at row y
        placement = placements[number]
        for cell in range(4):
            taken |= columns[games[number], cell_columns[placement, cell]] >> cell_rows[placement, cell]
        lowest = taken & -taken
        place = lowest >> 1 if lowest > 1 else 1 << (height - 1)  # a piece that fits nowhere lies at the bottom
        after[:] = columns[games[number]]
        for cell in range(4):
            after[cell_columns[placement, cell]] |= place << cell_rows[placement, cell]
        full = board
        for column in range(width):
            full &= after[column]
        lines[number] = 0
        while full and lines[number] < 4:  # only boards that can't occur have more
            line = full & -full  # the highest
            full ^= line
            lines[number] += 1
            for column in range(width):
                bits = after[column]
                after[column] = bits + (bits & (line - 1)) - (bits & line)
        for column in range(width):
            bits = after[column]
            reached = -(bits & -bits)
            for row in range(height):
                planes[number, 0, row, column] = bits >> row & 1
                planes[number, 1, row, column] = reached >> row & 1
