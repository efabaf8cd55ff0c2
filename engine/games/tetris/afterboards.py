"""The boards that placements of Tetris leave, as a network sees them: compiled, for CPUs.

`put` and `clear_lines` in `engine.games.tetris.rules` do the same with tensors.
"""

import numpy as np
from numpy.typing import NDArray

from engine.compiler.kernels import kernel
from engine.games.tetris.kernel import clear, drop


@kernel("int32[2], int64[1], int64[1], int64[2], int32[2], float32[4], int64[1]")
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
    after = np.empty(columns.shape[1], np.int32)
    for number in range(len(planes)):
        for column in range(after.size):
            after[column] = columns[games[number], column]
        drop(after, cell_columns, cell_rows, placements[number], height)
        lines[number] = clear(after, height, width)
        for column in range(width):
            bits = after[column]
            reached = -(bits & -bits)
            for row in range(height):
                planes[number, 0, row, column] = bits >> row & 1
                planes[number, 1, row, column] = reached >> row & 1
