"""The compiled steps of the board games compared with the tensor form: the same bits, step by step."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.games.snake.rules import SnakeLanes
from engine.games.tetris.rules import REWARDS, TetrisLanes
from tests.support.games.players import steady_drops, towards_fruit

STEPS = 200
SEEDS = [range(4), pytest.param(range(4, 40), marks=pytest.mark.long)]
Lanes = SnakeLanes | TetrisLanes


def assert_same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert ours.contiguous().numpy().tobytes() == theirs.contiguous().numpy().tobytes()


def assert_same_state(ours: Lanes, theirs: Lanes) -> None:
    state, expected = ours.state(), theirs.state()
    assert list(state) == list(expected)
    for name, tensor in expected.items():
        assert_same_bits(state[name], tensor)


def compare(ours: Lanes, theirs: Lanes, rng: np.random.Generator) -> Counter[str]:
    """Play the same actions in both forms, which exchange their states now and then; counts what happened."""
    seen: Counter[str] = Counter()
    frames = ours.reset()
    assert_same_bits(frames, theirs.reset())
    for number in range(STEPS):
        masks = ours.masks.numpy()
        if isinstance(ours, SnakeLanes):
            actions = towards_fruit(rng, frames.numpy(), masks, 0.02)
        else:
            actions = steady_drops(rng, frames.numpy(), masks)
        step, expected = ours.step(torch.from_numpy(actions)), theirs.step(torch.from_numpy(actions))
        for field in fields(step):
            assert_same_bits(getattr(step, field.name), getattr(expected, field.name))
        assert_same_bits(ours.masks, theirs.masks)
        if number % 20 == 0:
            assert_same_state(ours, theirs)
        if number % 50 == 49:
            state, other = ours.state(), theirs.state()
            ours.reset()
            theirs.reset()
            ours.load_state(other)
            theirs.load_state(state)
        frames = step.frames
        seen += Counter(
            illegal=int((~np.take_along_axis(masks, actions[:, None], 1)).sum()),
            terminated=int(step.terminated.sum()),
            truncated=int(step.truncated.sum()),
            scored=int((step.score > 0).sum()),
            late=int((~step.from_start).sum()),
            full=int((step.final_frames[:, 0] > 0).flatten(1).all(1).sum()),
        )
    assert_same_state(ours, theirs)
    return seen


@pytest.mark.parametrize("seeds", SEEDS)
def test_compiled_snakes_are_those_of_tensors(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        most = 3 if seed % 2 else 18
        options: dict[str, Any] = {
            "height": int(rng.integers(2, most + 1)),
            "width": int(rng.integers(2, most + 1)),
            "time_limit": int(rng.integers(10, 60)),
            "truncate": bool(rng.integers(2)),
            "stall_limit": int(rng.integers(3, 20)) if seed % 3 else 0,
            "death_penalty": float(rng.random()) if seed % 5 else 0.0,
            "late_starts": float(rng.random()) if seed % 4 in (1, 2) else 0.0,
            "lanes": int(rng.integers(1, 20)),
            "seed": seed,
        }
        seen += compare(SnakeLanes(**options), SnakeLanes(**options, compiled=False), rng)
    assert set(seen) == {"illegal", "terminated", "truncated", "scored", "full", "late"}


@pytest.mark.parametrize("seeds", SEEDS)
def test_compiled_tetris_is_that_of_tensors(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        options: dict[str, Any] = {
            "height": int(rng.integers(4, 27)),
            "width": int(rng.integers(4, 13)),
            "reward": REWARDS[seed % 3],
            "bag": seed % 2 > 0,
            "next_piece": seed % 4 > 1,
            "time_limit": int(rng.integers(5, 30)),
            "truncate": seed % 4 in (0, 3),
            "lanes": int(rng.integers(1, 20)),
            "seed": seed,
        }
        ours, theirs = TetrisLanes(**options), TetrisLanes(**options, compiled=False)
        if seed % 3:
            weights = rng.random(3).tolist()
            ours.set_shaping(weights, gamma=0.97)
            theirs.set_shaping(weights, gamma=0.97)
        seen += compare(ours, theirs, rng)
    assert set(seen) == {"illegal", "terminated", "truncated", "scored"}


@pytest.mark.parametrize("side", [9, 30])
def test_snakes_of_every_length_are_those_of_tensors(side: int) -> None:
    """Each lane's snake lies along the rows, turning at their ends, with the fruit ahead of it; the longest fills the
    board."""
    cells = side * side
    rows = np.arange(cells).reshape(side, side)
    rows[1::2] = rows[1::2, ::-1].copy()
    path, lengths = rows.flatten(), np.arange(1, cells)
    ours = SnakeLanes(cells - 1, height=side, width=side)
    theirs = SnakeLanes(cells - 1, height=side, width=side, compiled=False)
    state = {name: tensor.numpy() for name, tensor in ours.state().items()}
    heads, ahead = path[lengths - 1], path[lengths]
    state["head"][:, 0], state["tail"][:, 0], state["fruit"][:, 0] = heads, path[0], ahead
    state["length"][:, 0], state["clock"][:, 0] = lengths, cells + lengths - 1
    entered = np.arange(cells) < lengths[:, None]  # [lanes, cells of the path]
    state["born"][:, path], state["next"][:, path[:-1]] = entered * (cells + np.arange(cells)), path[1:]
    state["masks"][:] = True
    actions = np.select([ahead == heads + 1, ahead == heads + side], [1, 2], 3)  # right, down, left
    for lanes in (ours, theirs):
        lanes.load_state({name: torch.from_numpy(array) for name, array in state.items()})
    step, expected = (lanes.step(torch.from_numpy(actions)) for lanes in (ours, theirs))
    for field in fields(step):
        assert_same_bits(getattr(step, field.name), getattr(expected, field.name))
    assert_same_state(ours, theirs)
    assert step.score.tolist() == lengths.tolist()
    assert step.terminated.tolist() == [length == cells - 1 for length in lengths]


@pytest.mark.parametrize("lanes_type", [SnakeLanes, TetrisLanes])
@pytest.mark.parametrize("action", [-1, 99])
def test_an_action_that_does_not_exist_changes_nothing(lanes_type: type[Lanes], action: int) -> None:
    lanes = lanes_type(3)
    before = lanes.state()
    with pytest.raises(IndexError, match="action"):
        lanes.step(torch.tensor([0, action, 0]))
    after = lanes.state()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items() if name != "random")


@pytest.mark.parametrize(
    ("lanes", "name"),
    [(SnakeLanes(3), name) for name in ("head", "tail", "fruit", "next")]
    + [(TetrisLanes(3, next_piece=True), name) for name in ("piece", "left", "next")],
)
@pytest.mark.parametrize("wrong", [-1, 10**9])
def test_states_that_would_reach_beyond_an_array_are_refused(lanes: Lanes, name: str, wrong: int) -> None:
    state, before = lanes.state(), lanes.state()
    state[name][1] = wrong
    with pytest.raises(ValueError, match=f"{name} must be between 0 and"):
        lanes.load_state(state)
    after = lanes.state()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_states_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"head has the shape \(2, 1\) instead of \(3, 1\)"):
        SnakeLanes(3).load_state(SnakeLanes(2).state())


def test_boards_with_many_full_lines_lose_four_in_both_forms() -> None:
    ours, theirs = TetrisLanes(1), TetrisLanes(1, compiled=False)
    state = ours.state()
    state["columns"][:] = -1 << 6  # no play fills eight lines
    for lanes in (ours, theirs):
        lanes.load_state(state)
    step, expected = (lanes.step(torch.tensor([0])) for lanes in (ours, theirs))
    assert step.score.tolist() == [4]
    for field in fields(step):
        assert_same_bits(getattr(step, field.name), getattr(expected, field.name))


def test_only_a_cpu_can_be_told_to_compile() -> None:
    assert SnakeLanes(1).compiled and not SnakeLanes(1, compiled=False).compiled
    with pytest.raises(UserError, match="compiled must be None or False on device meta"):
        TetrisLanes(1, device="meta", compiled=True)
