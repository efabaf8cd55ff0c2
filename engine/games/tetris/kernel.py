"""A step of `TetrisLanes`, compiled for CPUs: lane by lane, what `TetrisLanes` does elsewhere with tensors.

Both give the same bits. Shaped rewards are a product of matrices, whose order of sums only PyTorch knows; so the kernel
measures the boards, and `TetrisLanes` does the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.kernels import Array1, Array2, helper, kernel
from engine.games.boards.tensor_lanes import StepArrays
from engine.games.tetris.options import FILLED, MASKS, NEXT, PIECE, REACHED

_WALL = 1 << 62


class TetrisState(NamedTuple):
    """The state of all lanes, overwritten by a step; for its meaning see `TetrisLanes`."""

    columns: Array2[np.int32]  # [lanes, width + PADDING]
    piece: Array2[np.int64]  # [lanes, 1], like all that follow but the last
    next: Array2[np.int64]
    left: Array2[np.int64]
    lines: Array2[np.int64]
    clock: Array2[np.int64]
    returns: Array2[np.float32]
    masks: Array2[np.bool_]  # [lanes, actions]


class TetrisRules(NamedTuple):
    """The options of `TetrisLanes`, and its tables of pieces, placements, bags and rewards."""

    cell_columns: Array2[np.int64]  # of `placements`, like the next two
    cell_rows: Array2[np.int32]
    blocked: Array2[np.int64]
    pictures: Array2[np.uint8]  # [7, height * width]
    sizes: Array1[np.float32]  # [128]: number of pieces in a bag
    members: Array2[np.int64]  # [128, 7]: pieces in a bag
    gains: Array1[np.float32]  # [5]
    height: int
    width: int
    bag: bool
    shows_next: bool
    time_limit: int
    truncate: bool


@kernel("int64[1], float32[2], StepArrays, float32[2], TetrisState, TetrisRules")
def step_tetris(
    actions: NDArray[np.int64],
    draw: NDArray[np.float32],
    step: StepArrays,
    measures: NDArray[np.float32],
    state: TetrisState,
    rules: TetrisRules,
) -> int:
    """Step all lanes with actions [lanes] and random numbers [lanes, 2 or 3]; overwrites `state` and writes `step`.

    measures: [lanes, 3] is written: height, holes and bumpiness of the boards after the step; [0, 3] for nothing.
    Returns whether all actions are valid; if not, nothing is written.
    """
    columns, height, width = state.columns, rules.height, rules.width
    choices = state.masks.shape[1]
    for lane in range(len(actions)):
        if not 0 <= actions[lane] < choices:
            return False
    for lane in range(len(actions)):
        legal = state.masks[lane, actions[lane]]
        board, placement = columns[lane], state.piece[lane, 0] * choices + actions[lane]
        drop(board, rules.cell_columns, rules.cell_rows, placement, height)
        lines = clear(board, height, width)
        if len(measures):
            measures[lane, 0], measures[lane, 1], measures[lane, 2] = _measure(lane, columns, height, width)
        drawn, left = _take(draw[lane, 0], state.left[lane, 0], rules)
        piece = state.next[lane, 0] if rules.shows_next else drawn
        any_legal = _find_legal(lane, rules.blocked, piece, _first_rows(lane, columns), step.final_masks)

        score, clock = state.lines[lane, 0] + lines, state.clock[lane, 0] + 1
        late = clock >= rules.time_limit
        terminated = not (legal and any_legal) or (late and not rules.truncate)
        truncated = late and not terminated
        reward = rules.gains[lines] if legal else np.float32(0)
        returns = state.returns[lane, 0] + reward
        step.rewards[lane], step.returns[lane] = reward, returns
        step.terminated[lane], step.truncated[lane] = terminated, truncated
        step.lengths[lane], step.score[lane], step.from_start[lane] = clock, score, True

        _draw(lane, columns, piece, drawn, step.final_masks, rules, step.final_frames)
        if terminated or truncated:
            score, clock, returns = 0, 0, np.float32(0)
            for column in range(columns.shape[1]):
                columns[lane, column] = -1 << height
            if rules.bag:  # otherwise drawn independently, so a new episode may begin with them as well
                piece, left = _take(draw[lane, 1], 0, rules)
                if rules.shows_next:
                    drawn, left = _take(draw[lane, 2], left, rules)
            _find_legal(lane, rules.blocked, piece, 0, step.masks)
            _draw(lane, columns, piece, drawn, step.masks, rules, step.frames)
        else:
            for action in range(choices):
                step.masks[lane, action] = step.final_masks[lane, action]
            for plane in range(step.frames.shape[1]):
                for cell in range(step.frames.shape[2]):
                    step.frames[lane, plane, cell] = step.final_frames[lane, plane, cell]
        for action in range(choices):
            state.masks[lane, action] = step.masks[lane, action]
        state.piece[lane, 0], state.left[lane, 0] = piece, left
        if rules.shows_next:
            state.next[lane, 0] = drawn
        state.lines[lane, 0], state.clock[lane, 0], state.returns[lane, 0] = score, clock, returns
    return True


@helper
def drop(columns, cell_columns, cell_rows, placement, height):
    """Drop a piece into a board: add its cells to the columns."""
    taken = 0  # bit y is set if the box can't be at row y
    for cell in range(4):
        taken |= columns[cell_columns[placement, cell]] >> cell_rows[placement, cell]
    lowest = taken & -taken
    place = lowest >> 1 if lowest > 1 else 1 << (height - 1)  # a piece that fits nowhere lies at the bottom
    for cell in range(4):
        columns[cell_columns[placement, cell]] |= place << cell_rows[placement, cell]


@helper
def clear(columns, height, width):
    """Remove full lines from a board, at most four; returns their number."""
    full = (1 << height) - 1
    for column in range(width):
        full &= columns[column]
    lines = 0
    while full and lines < 4:
        line = full & -full  # the highest
        full ^= line
        lines += 1
        for column in range(columns.size):
            bits = columns[column]
            columns[column] = bits + (bits & (line - 1)) - (bits & line)
    return lines


@helper
def _draw(lane, columns, piece, upcoming, masks, rules, frames):
    """Draw an observation."""
    for column in range(rules.width):
        bits = columns[lane, column]
        reached = -(bits & -bits)
        for row in range(rules.height):
            cell = row * rules.width + column
            frames[lane, FILLED, cell] = -(bits >> row & 1)  # 255 in uint8
            frames[lane, REACHED, cell] = -(reached >> row & 1)
    for cell in range(frames.shape[2]):
        frames[lane, PIECE, cell] = rules.pictures[piece, cell]
        frames[lane, MASKS, cell] = 0
    for action in range(masks.shape[1]):
        frames[lane, MASKS, action] = 255 if masks[lane, action] else 0
    if rules.shows_next:
        for cell in range(frames.shape[2]):
            frames[lane, NEXT, cell] = rules.pictures[upcoming, cell]


@helper
def _take(number, left, rules):
    """Draw a piece: the piece, and the pieces left in the bag as bits."""
    if not rules.bag:
        return np.int64(number * np.float32(len(rules.pictures))), left
    if left == 0:
        left = len(rules.sizes) - 1
    piece = rules.members[left, np.int64(number * rules.sizes[left])]
    return piece, left ^ (1 << piece)


@helper
def _first_rows(lane, columns):
    """The first four rows, packed as in `placements`."""
    packed = 0
    for column in range(columns.shape[1]):
        packed |= (columns[lane, column] & 15) << 4 * column
    return packed


@helper
def _find_legal(lane, blocked, piece, rows, masks):
    """Write the legal actions of a lane to `masks`; returns whether there are any."""
    some = False
    for action in range(masks.shape[1]):
        free = blocked[piece, action] & (rows | _WALL) == 0
        masks[lane, action] = free
        some |= free
    return some


@helper
def _measure(lane, columns, height, width):
    """Height, holes and bumpiness of a board, as in `TetrisLanes.set_shaping`."""
    total, holes, bumps, last = 0, 0, 0, 0
    for column in range(width):
        tall, filled = 0, 0
        for row in range(height):
            if columns[lane, column] >> row & 1:
                tall = max(tall, height - row)
                filled += 1
        total += tall
        holes += tall - filled
        if column:
            bumps += abs(tall - last)
        last = tall
    return total, holes, bumps
