"""Batched Tetris compared with a plain model of one game and with Jumanji; bags, also in saved states."""

from __future__ import annotations

from dataclasses import fields
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.games.boards.tensor_lanes import TensorStep
from engine.games.tetris.rules import TetrisLanes
from tests.support.games.players import mostly_legal, steady_drops
from tests.support.games.tetris_oracle import BOXES, TetrisOracle

JUMANJI: dict[str, Any] = {"height": 10, "width": 10, "reward": "jumanji"}


def pieces(frames: np.ndarray, plane: int = 2) -> np.ndarray:
    """The piece in each lane's plane, int64 [lanes]."""
    boxes = frames[:, plane, :4, :4] > 0
    assert not (frames[:, plane, 4:].any() or frames[:, plane, :, 4:].any())
    same = (boxes[:, None] == BOXES[None, :, 0]).all((2, 3))
    assert (same.sum(1) == 1).all()
    return same.argmax(1)


def play(lanes: TetrisLanes, steps: int, seed: int = 0) -> list[TensorStep]:
    """Play random actions, most of them legal, from the current state of the lanes."""
    rng = np.random.default_rng(seed)
    return [lanes.step(torch.from_numpy(mostly_legal(rng, lanes.masks.numpy(), 0.05))) for _ in range(steps)]


def assert_equal_steps(ours: list[TensorStep], theirs: list[TensorStep]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for field in fields(one):
            assert torch.equal(getattr(one, field.name), getattr(other, field.name)), field.name


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 400),
        (JUMANJI, 300),
        ({"height": 20, "width": 10, "bag": True}, 150),
        ({"time_limit": 12, "truncate": True, "bag": True}, 150),
        ({"height": 4, "width": 4}, 200),
        ({"height": 26, "width": 12, "time_limit": 90}, 100),
        ({"height": 6, "width": 5, "next_piece": True}, 200),
        ({"time_limit": 30, "truncate": True, "bag": True, "next_piece": True}, 150),
    ],
    ids=["default", "jumanji", "standard", "truncate", "4x4", "large", "next", "next of bag"],
)
def test_games_equal_those_of_a_plain_model(options: dict[str, Any], steps: int) -> None:
    lanes = TetrisLanes(6, seed=3, **options)
    planes, height, width = lanes.frame_shape
    last = planes - 1 if lanes.next_piece(0) is not None else 2  # the plane of the piece that was drawn last
    known = {"reward": "lines", "time_limit": 400, "truncate": False, "next_piece": False, **options}
    known = {name: value for name, value in known.items() if name not in ("bag", "height", "width")}
    models = [TetrisOracle(height, width, **known) for _ in range(lanes.lanes)]
    frames, masks = lanes.reset().numpy(), lanes.masks.numpy()
    for model, *begun in zip(models, pieces(frames), pieces(frames, last), strict=True):
        model.begin(*begun)
    assert all(np.array_equal(model.planes(), frame) for model, frame in zip(models, frames, strict=True))
    rng, ended, cleared = np.random.default_rng(0), 0, 0
    for _ in range(steps):
        actions = steady_drops(rng, frames, masks)
        step = lanes.step(torch.from_numpy(actions))
        frames, masks = step.frames.numpy(), step.masks.numpy()
        drawn, first, second = pieces(step.final_frames.numpy(), last), pieces(frames), pieces(frames, last)
        for lane, model in enumerate(models):
            before = model.lines
            reward, terminated, truncated = model.step(int(actions[lane]), drawn[lane])
            assert np.array_equal(model.planes(), step.final_frames[lane].numpy())
            assert np.array_equal(model.mask, step.final_masks[lane].numpy())
            assert (terminated, truncated) == (bool(step.terminated[lane]), bool(step.truncated[lane]))
            assert step.rewards[lane] == reward
            assert step.returns[lane] == model.total
            assert [int(step.lengths[lane]), int(step.score[lane])] == [model.steps, model.lines]
            cleared += model.lines > before
            if terminated or truncated:
                ended += 1
                model.begin(first[lane], second[lane])
            assert np.array_equal(model.planes(), frames[lane])
            assert np.array_equal(model.mask, masks[lane])
    assert ended
    assert cleared


@pytest.mark.parametrize("lines", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    ("reward", "gains"),
    [("cells", (1, 8, 15, 22, 29)), ("lines", (1, 8, 29, 64, 113)), ("jumanji", (0, 40, 100, 300, 1200))],
)
def test_reward_is_by_lines(lines: int, reward: str, gains: tuple[int, ...]) -> None:
    lanes = TetrisLanes(1, reward=reward)
    state = lanes.state()
    state["piece"][:], state["masks"][:] = 0, True  # I, upright into the last column
    rows = sum(1 << (13 - row) for row in range(lines)) | 1 << 9
    state["columns"][0, :6] |= rows
    lanes.load_state(state)
    step = lanes.step(torch.tensor([6]))
    assert step.rewards.tolist() == [gains[lines]]
    assert step.score.tolist() == [lines]


def test_an_illegal_action_ends_the_game_and_gives_nothing() -> None:
    lanes = TetrisLanes(1)
    state = lanes.state()
    state["piece"][:], state["masks"][0, 6] = 3, False  # a square of which half would be outside
    lanes.load_state(state)
    step = lanes.step(torch.tensor([6]))
    assert (step.terminated.item(), step.rewards.item(), step.lengths.item()) == (True, 0.0, 1)


def test_bags_hold_every_piece_once() -> None:
    lanes = TetrisLanes(64, height=20, width=10, bag=True, seed=2)
    rng, frames = np.random.default_rng(0), lanes.reset().numpy()
    came = [[piece] for piece in pieces(frames)]
    for _ in range(60):
        step = lanes.step(torch.from_numpy(steady_drops(rng, frames, lanes.masks.numpy())))
        frames = step.frames.numpy()
        for lane, piece in enumerate(pieces(frames)):
            if step.terminated[lane]:
                came[lane] = []
            came[lane].append(piece)
            whole = len(came[lane]) // 7 * 7
            assert all(len(set(came[lane][at : at + 7])) == 7 for at in range(0, whole, 7))


@pytest.mark.parametrize("bag", [False, True])
def test_the_piece_that_is_shown_as_next_comes_next(bag: bool) -> None:
    lanes = TetrisLanes(64, height=8, bag=bag, next_piece=True, seed=2)
    rng, frames, ended = np.random.default_rng(0), lanes.reset().numpy(), 0
    bags: list[list[int]] = [[] for _ in range(64)]
    for _ in range(100):
        shown = pieces(frames, 4)
        assert [lanes.next_piece(lane) for lane in range(64)] == shown.tolist()
        for came, piece in zip(bags, pieces(frames), strict=True):
            came[:] = [*came, piece] if len(came) < 7 else [piece]
        step = lanes.step(torch.from_numpy(mostly_legal(rng, lanes.masks.numpy(), 0.05)))
        assert np.array_equal(pieces(step.final_frames.numpy()), shown)
        frames = step.frames.numpy()
        for lane in torch.nonzero(step.terminated)[:, 0].tolist():
            ended += 1
            bags[lane] = []
        assert not bag or all(len(set(came)) == len(came) for came in bags)
    assert ended > 100


def test_states_without_a_next_piece_have_no_trace_of_it() -> None:
    plain, known = TetrisLanes(4), TetrisLanes(4, next_piece=True)
    assert plain.next_piece(0) is None and plain.frame_shape == (4, 14, 7)
    assert set(known.state()) - set(plain.state()) == {"next"}


@pytest.mark.parametrize("bag", [False, True])
@pytest.mark.parametrize("next_piece", [False, True])
def test_pieces_are_equally_likely(bag: bool, next_piece: bool) -> None:
    lanes = TetrisLanes(4096, bag=bag, next_piece=next_piece, seed=4)
    frames = lanes.reset().numpy()
    found = [pieces(frames)]
    for _ in range(4):
        step = lanes.step(torch.from_numpy(mostly_legal(np.random.default_rng(0), lanes.masks.numpy(), 0.0)))
        found.append(pieces(step.frames.numpy()))
    for came in found:
        shares = np.bincount(came, minlength=7) / len(came)
        assert np.abs(shares - 1 / 7).max() < 5 * (1 / 7 / len(came)) ** 0.5


@pytest.mark.parametrize("next_piece", [False, True])
def test_a_saved_state_of_bags_continues_exactly(next_piece: bool) -> None:
    lanes, other = (TetrisLanes(16, seed=seed, bag=True, next_piece=next_piece) for seed in (1, 2))
    play(lanes, 100)
    saved = lanes.state()
    went_on = play(lanes, 100, seed=1)
    other.load_state(saved)
    assert_equal_steps(went_on, play(other, 100, seed=1))


@pytest.mark.parametrize("wrong", [{"height": 3}, {"width": 13}, {"time_limit": 0}, {"reward": "none"}])
def test_options_that_are_not_accepted_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        TetrisLanes(2, **wrong)


@pytest.mark.long
@pytest.mark.skipif(
    find_spec("jumanji") is None, reason="jumanji is missing: .venv/bin/pip install -c constraints.txt -e '.[oracles]'"
)
def test_games_equal_those_of_jumanji() -> None:
    from tests.support.games.jumanji_tetris import JumanjiTetris

    lanes = TetrisLanes(64, seed=11, **JUMANJI)
    frames, masks = lanes.reset().numpy(), lanes.masks.numpy()
    theirs = JumanjiTetris(pieces(frames))
    rng, ended, cleared = np.random.default_rng(1), 0, 0
    for _ in range(10_000):
        actions = steady_drops(rng, frames, masks)
        step = lanes.step(torch.from_numpy(actions))
        grid, mask, reward, done = theirs.step(actions, pieces(step.final_frames.numpy()))
        assert np.array_equal(grid, step.final_frames[:, 0].numpy() > 0)
        assert np.array_equal(mask, step.final_masks.numpy())
        assert np.array_equal(reward, step.rewards.numpy())
        assert np.array_equal(done, step.terminated.numpy())
        frames, masks = step.frames.numpy(), step.masks.numpy()
        grid, mask = theirs.begin(done, pieces(frames))
        assert np.array_equal(grid, frames[:, 0] > 0)
        assert np.array_equal(mask, masks)
        ended, cleared = ended + int(done.sum()), cleared + int((reward > 0).sum())
    assert ended > 1000
    assert cleared > 1000
