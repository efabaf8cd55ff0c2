"""A step of `SnakeLanes`, compiled for CPUs: lane by lane, what `SnakeLanes` does elsewhere with tensors.

Both give the same bits. So times, lengths and rewards are float32 here as well, and so is each constant: float32 with a
Python number would be computed in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.kernels import Array2, helper, kernel
from engine.games.boards.tensor_lanes import StepArrays
from engine.games.snake.options import BODY, FRUIT, HEAD, ORDER, PLANES, TAIL

_ZERO, _ONE, _CEIL = np.float32(0), np.float32(1), np.float32(0.999)


class SnakeState(NamedTuple):
    """The state of all lanes, overwritten by a step; for its meaning see `SnakeLanes`."""

    head: Array2[np.int64]  # [lanes, 1], like all but those with another shape
    tail: Array2[np.int64]
    fruit: Array2[np.int64]
    length: Array2[np.float32]
    clock: Array2[np.float32]
    meal: Array2[np.float32]
    born: Array2[np.float32]  # [lanes, cells + 1]
    next: Array2[np.int64]  # [lanes, cells]
    masks: Array2[np.bool_]  # [lanes, 4]
    from_start: Array2[np.bool_]


class SnakeRules(NamedTuple):
    """The options of `SnakeLanes`, and its tables."""

    beside: Array2[np.int64]  # of `neighbours`
    ways: Array2[np.int64]  # `cells` of `LateStarts`, like the next; [0, 0] without late starts
    places: Array2[np.int64]
    late_share: float
    time_limit: int
    truncate: bool
    stall_limit: int
    death_penalty: float


@kernel("int64[1], float32[2], float32[2], StepArrays, SnakeState, SnakeRules")
def step_snakes(
    actions: NDArray[np.int64],
    draw: NDArray[np.float32],
    late_draw: NDArray[np.float32],
    step: StepArrays,
    state: SnakeState,
    rules: SnakeRules,
) -> int:
    """Step all lanes with actions [lanes] and random numbers [lanes, 3]; overwrites `state` and writes `step`.

    late_draw: random numbers [lanes, 6] for late starts; [0, 6] without them. Returns whether all actions are valid; if
    not, nothing is written.
    """
    beside, final, born = rules.beside, step.final_frames, state.born
    cells, moves = beside.shape
    for lane in range(len(actions)):
        if not 0 <= actions[lane] < moves:
            return False
    start_time = np.float32(cells)
    for lane in range(len(actions)):
        old_head, tail, fruit = state.head[lane, 0], state.tail[lane, 0], state.fruit[lane, 0]
        crashed = not state.masks[lane, actions[lane]]
        head = beside[old_head, actions[lane]]
        if head == cells:
            head = old_head  # stays put at the board's edge
        eaten = head == fruit
        length = state.length[lane, 0] + np.float32(eaten)
        clock = state.clock[lane, 0] + _ONE
        born[lane, head] = clock
        state.next[lane, old_head] = head
        if not eaten:
            tail = state.next[lane, tail]

        since = length - clock  # the position of a cell in the body is its time of entry plus this
        _draw_body(lane, born, since, length, final)
        if eaten:
            fruit = _free_cell(lane, final, np.int64(draw[lane, 0] * (start_time - length)))
        final[lane, HEAD, head] = final[lane, TAIL, tail] = final[lane, FRUIT, fruit] = 255
        _find_legal(lane, head, since, born, beside, step.final_masks)

        steps = np.int64(clock - start_time)
        late = steps >= rules.time_limit
        if rules.stall_limit and eaten:
            state.meal[lane, 0] = clock
        stalled = rules.stall_limit > 0 and np.int64(clock - state.meal[lane, 0]) >= rules.stall_limit
        terminated = crashed or length == start_time or (late and not rules.truncate)
        truncated = not terminated and (stalled or (late and rules.truncate))
        loss = np.float32(rules.death_penalty) if crashed else _ZERO
        step.rewards[lane] = np.float32(eaten) - loss
        step.returns[lane] = length - _ONE - loss
        step.terminated[lane], step.truncated[lane] = terminated, truncated
        step.lengths[lane], step.score[lane] = steps, np.int64(length - _ONE)
        step.from_start[lane] = state.from_start[lane, 0]

        if terminated or truncated:
            begins_late = len(late_draw) > 0 and late_draw[lane, 0] < np.float32(rules.late_share)
            clock, state.from_start[lane, 0] = start_time, not begins_late
            if begins_late:
                head, tail, fruit, length = _begin_late(lane, late_draw, state, rules, step.frames)
            else:
                head, tail, fruit, length = _begin(lane, draw, state, step.frames)
            if rules.stall_limit:
                state.meal[lane, 0] = clock
            _find_legal(lane, head, length - clock, born, beside, step.masks)
        else:
            for plane in range(PLANES):
                for cell in range(cells):
                    step.frames[lane, plane, cell] = final[lane, plane, cell]
            for move in range(moves):
                step.masks[lane, move] = step.final_masks[lane, move]
        for move in range(moves):
            state.masks[lane, move] = step.masks[lane, move]
        state.head[lane, 0], state.tail[lane, 0], state.fruit[lane, 0] = head, tail, fruit
        state.length[lane, 0], state.clock[lane, 0] = length, clock
    return True


@helper
def _draw_body(lane, born, since, length, frames):
    """Draw the body and its order, and clear the planes of head, tail and fruit."""
    scale = np.float32(255) / length
    for cell in range(frames.shape[2]):
        order = np.int64(max(born[lane, cell] + since, _ZERO) * scale + _CEIL)
        frames[lane, ORDER, cell] = order
        frames[lane, BODY, cell] = 255 if order else 0
        for plane in range(HEAD, FRUIT + 1):
            frames[lane, plane, cell] = 0


@helper
def _find_legal(lane, head, since, born, beside, masks):
    """Write the moves to cells that are free, or the tail's."""
    for move in range(masks.shape[1]):
        masks[lane, move] = born[lane, beside[head, move]] + since <= _ONE


@helper
def _begin(lane, draw, state, frames):
    """Begin a game with a snake of one cell, and draw it; returns head, tail, fruit and length."""
    cells = frames.shape[2]
    head, fruit = np.int64(draw[lane, 1] * np.float32(cells)), np.int64(draw[lane, 2] * np.float32(cells - 1))
    fruit += fruit >= head  # skip the head's cell
    for cell in range(cells):
        state.born[lane, cell] = _ZERO
    state.born[lane, head] = cells
    for plane in range(PLANES):
        for cell in range(cells):
            frames[lane, plane, cell] = 0
        frames[lane, plane, fruit if plane == FRUIT else head] = 255
    return head, head, fruit, _ONE


@helper
def _begin_late(lane, draw, state, rules, frames):
    """Begin a game with one of `LateStarts`, and draw it; returns head, tail, fruit and length."""
    cells, count = frames.shape[2], rules.ways.shape[1]
    way = np.int64(draw[lane, 1] * np.float32(len(rules.ways)))
    first, sign = np.int64(draw[lane, 2] * np.float32(count)), 1 - 2 * np.int64(draw[lane, 3] * np.float32(2))
    length = np.int64(draw[lane, 4] * np.float32(count - 2)) + 2
    free = length + np.int64(draw[lane, 5] * np.float32(count - length))
    for cell in range(cells):
        at = rules.places[way, cell]
        place = sign * (at - first) % count if at >= 0 else count
        state.born[lane, cell] = cells - length + 1 + place if place < length else 0
        state.next[lane, cell] = rules.ways[way, (at + sign) % count]
    tail, fruit = rules.ways[way, first], rules.ways[way, (first + sign * free) % count]
    head = rules.ways[way, (first + sign * (length - 1)) % count]
    _draw_body(lane, state.born, np.float32(length - cells), np.float32(length), frames)
    frames[lane, HEAD, head] = frames[lane, TAIL, tail] = frames[lane, FRUIT, fruit] = 255
    return head, tail, fruit, np.float32(length)


@helper
def _free_cell(lane, frames, nth):
    """The `nth` cell (from 0) that is not body; cell 0 if there are not so many."""
    for cell in range(frames.shape[2]):
        if not frames[lane, BODY, cell]:
            if nth == 0:
                return cell
            nth -= 1
    return 0
