"""Pictures of Tetris and Snake for people: colours that follow the pieces, ghosts, and the path of the snake."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.agents.exploration import epsilon_ladder
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.envs.lanes import GROUND
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.rules import SnakeLanes
from engine.games.snake.viewer import SnakeViewer
from engine.games.tetris.rules import TetrisLanes
from engine.games.tetris.viewer import (
    COLOURS,
    UNSEEN,
    Drop,
    TetrisViewer,
    best_drops,
    draw_tetris,
    entry,
    landing,
    landings,
)
from engine.protocol.messages import Thought
from engine.runners.actor import Actor

O, T = 3, 4  # noqa: E741
UP, RIGHT, DOWN, LEFT = range(4)


def lanes_of(game: str, **options: object) -> BoardLanes:
    lanes = make_lanes(make_config({"game": game, **options}), 4, threads=1, seed=0)
    assert isinstance(lanes, BoardLanes)
    lanes.reset()
    return lanes


def tetris_of(lanes: BoardLanes) -> TetrisViewer:
    viewer = lanes.viewer(0)
    assert isinstance(viewer, TetrisViewer)
    return viewer


def filled(games: TetrisLanes, lane: int = 0) -> NDArray[np.bool_]:
    return np.array(games.columns(lane)) >> np.arange(games.height)[:, None] & 1 > 0


def thought(q_values: NDArray[np.float64], action: int) -> Thought:
    return Thought(q_values=q_values.tolist(), action=action, random=False, shape=(0, 0, 0, 0), seen=b"")


def middles(picture: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """The colours in the middles of the cells of a board without boxes beside it."""
    side = min(240 // height, 256 // width)
    top, left = (240 - height * side) // 2 + side // 2, (256 - width * side) // 2 + side // 2
    return picture[top : top + height * side : side, left : left + width * side : side]


def test_colours_follow_the_pieces_through_cleared_lines_and_new_games() -> None:
    """The plain model keeps a letter per cell and removes full rows."""
    lanes = lanes_of("tetris", board="5x8", max_pieces=60)
    games, random = lanes.board, np.random.default_rng(1)
    assert isinstance(games, TetrisLanes)
    viewer, model = tetris_of(lanes), np.zeros((8, 5), int)
    cleared = ended = checked = 0
    for number in range(400):
        piece = games.piece(0)
        assert lanes.masks is not None
        actions = np.array([random.choice(np.flatnonzero(mask)) for mask in lanes.masks])
        if number % 3:  # low placements clear lines
            actions[0] = max(landings(games.columns(0), piece), key=lambda each: min(y for _, y in each[1].cells))[0]
        landed = landing(games.columns(0), Drop(piece, *divmod(int(actions[0]), 5)))
        assert landed is not None
        for x, y in landed.cells:
            model[y, x] = piece + 1
        kept = model[~model.all(1)]
        cleared += 8 - len(kept)
        model = np.concatenate((np.zeros((8 - len(kept), 5), int), kept))
        step = lanes.step(actions)
        if step.terminated[0] or step.truncated[0]:
            ended, model = ended + 1, np.zeros((8, 5), int)
        if number % 7 == 0:  # pictures skip placements
            assert (viewer.cells() == model).all()
            checked += 1
    assert cleared > 20 and ended > 5 and checked > 50


def test_cells_that_were_filled_unseen_are_gray() -> None:
    lanes = lanes_of("tetris")
    games = lanes.board
    assert isinstance(games, TetrisLanes)
    for _ in range(3):
        assert lanes.masks is not None
        lanes.step(lanes.masks.argmax(1))
    before = filled(games)
    viewer = tetris_of(lanes)
    assert (viewer.cells() == np.where(before, UNSEEN, 0)).all()
    piece = games.piece(0)
    assert lanes.masks is not None
    lanes.step(np.array([np.flatnonzero(mask)[-1] for mask in lanes.masks]))
    assert (viewer.cells()[filled(games) & ~before] == piece + 1).all()
    colours = middles(lanes.screen(0), games.height, games.width).reshape(-1, 3).tolist()
    assert COLOURS[UNSEEN].astype(int).tolist() in colours


def test_nobody_watches_means_that_nothing_is_kept() -> None:
    lanes = lanes_of("tetris")
    viewer = tetris_of(lanes)
    for _ in range(1001):
        assert lanes.masks is not None
        lanes.step(lanes.masks.argmax(1))
    assert tetris_of(lanes) is not viewer
    lanes.screen(0)
    again = tetris_of(lanes)
    lanes.load_state(lanes.state())  # of another game, perhaps
    assert tetris_of(lanes) is not again


def test_ghosts_are_where_the_best_placements_land() -> None:
    lanes = lanes_of("tetris")
    games = lanes.board
    assert isinstance(games, TetrisLanes) and lanes.masks is not None
    random = np.random.default_rng(0)
    lanes.screen(0)
    for _ in range(12):
        lanes.step(np.array([random.choice(np.flatnonzero(mask)) for mask in lanes.masks]))
    values = np.where(lanes.masks[0], random.random(games.actions), -np.inf)
    best = int(values.argmax())
    columns, piece = games.columns(0), games.piece(0)
    drops = best_drops(columns, piece, values.tolist())
    assert drops[0] == landing(columns, Drop(piece, *divmod(best, games.width)))
    assert len({frozenset(drop.cells) for drop in drops}) == 3
    entering = set(Drop(piece, *divmod(best, games.width)).cells)
    drawn = middles(lanes.screen(0, thought(values, best)), games.height, games.width).astype(int)
    colour, ground, locked = (
        each.astype(int) for each in (COLOURS[piece + 1], GROUND, COLOURS[tetris_of(lanes).cells()])
    )
    ghosts = {cell for drop in drops for cell in drop.cells} - entering
    for y, x in np.ndindex(games.height, games.width):
        if (x, y) in entering:
            assert (drawn[y, x] == colour).all()
        elif (x, y) in ghosts:
            assert (drawn[y, x] != colour).any() and (drawn[y, x] != ground).any()
        else:
            assert (drawn[y, x] == locked[y, x]).all()
    assert len(best_drops([-1 << 8] * 2, O, [0.0] * 8)) == 1  # the square fills the same cells in every rotation


def test_a_decision_is_drawn_until_it_is_carried_out() -> None:
    env = lanes_of("tetris")
    actor = Actor(env, ladder=epsilon_ladder(4, 0.4), epsilon_steps=100, seed=0)
    assert actor.show(0)[1] is None
    actions = actor.choose(lambda obs: torch.rand(4, env.spec.actions), env_steps=100)
    picture, told = actor.show(0)
    assert told is not None and told.facts == {"lines": 0, "height": 0}
    assert (picture != env.screen(0)).any() and (picture == env.screen(0, told)).all()
    actor.finish(actor.begin(actions))
    picture, told = actor.show(0)  # as in a pause
    assert told is not None and told.facts["height"] > 0
    assert (picture == env.screen(0)).all()
    actor.close()


def test_the_best_ghost_is_the_strongest() -> None:
    ghosts = [Drop(O, 0, column, 10) for column in (4, 0, 2)]
    drawn = middles(draw_tetris(np.zeros((14, 7), np.uint8), ghosts=ghosts), 14, 7).astype(int).sum(2)
    assert drawn[10, 4] > drawn[10, 0] > drawn[10, 2] > drawn[10, 6] == int(GROUND.sum())


@pytest.mark.parametrize("board", ["7x14", "10x20", "12x4", "4x26"])
@pytest.mark.parametrize("boxes", [0, 1, 2])
def test_board_and_boxes_fit_on_the_screen(board: str, boxes: int) -> None:
    width, height = map(int, board.split("x"))
    cells = np.full((height, width), UNSEEN, np.uint8)
    picture = draw_tetris(cells, next_piece=T if boxes else None, hold=boxes == 2, held=O if boxes == 2 else None)
    assert picture.shape == (240, 256, 3)
    shown = {tuple(colour) for colour in picture.reshape(-1, 3).tolist()}
    for content, expected in ((UNSEEN, True), (T + 1, boxes > 0), (O + 1, boxes == 2)):
        assert (tuple(COLOURS[content].astype(int).tolist()) in shown) == expected


def test_landings_are_the_legal_actions() -> None:
    lanes = lanes_of("tetris", board="6x9")
    games, random = lanes.board, np.random.default_rng(2)
    assert isinstance(games, TetrisLanes)
    for _ in range(100):
        masks = lanes.masks
        assert masks is not None
        found = [action for action, _ in landings(games.columns(0), games.piece(0))]
        assert found == np.flatnonzero(masks[0]).tolist()
        first = entry(games.columns(0), games.piece(0))
        assert first is not None and masks[0, first.rotation * 6 + first.column]
        lanes.step(np.array([random.choice(np.flatnonzero(mask)) for mask in masks]))


def test_a_snake_shows_head_fruit_and_the_way_it_came() -> None:
    games = SnakeLanes(1, height=6, width=6, seed=0)
    games.load_state(
        {
            **games.state(),
            "head": torch.tensor([[14]]), "tail": torch.tensor([[13]]), "fruit": torch.tensor([[15]]),
            "length": torch.tensor([[2.0]]), "clock": torch.tensor([[38.0]]),
            "born": torch.tensor([[0.0] * 13 + [37.0, 38.0] + [0.0] * 21 + [1e6]]),
            "next": torch.tensor([[0] * 13 + [14] + [0] * 22]), "masks": torch.ones(1, 4, dtype=torch.bool),
        }
    )  # fmt: skip
    viewer = SnakeViewer(games, 0)
    assert games.path(0) == [13, 14] and viewer.facts() == {"fruits": 1}

    def step(action: int) -> NDArray[np.int64]:
        viewer.before_step(action)
        games.step(torch.tensor([action]))
        return middles(viewer.draw(), 6, 6).astype(int)

    cells = step(RIGHT)  # and eats
    assert games.path(0) == [13, 14, 15] and viewer.facts() == {"fruits": 2}
    brightness = cells.sum(2).flatten()
    assert GROUND.sum() < brightness[13] < brightness[14] < brightness[15]
    ahead = viewer.draw()[80:120, 128 - 4 : 128 + 36]  # the cell of the head, whose eyes are to the right
    assert (ahead[:, 20:].sum(2) < 100).sum() > (ahead[:, :20].sum(2) < 100).sum()
    assert sum((cells == cells[divmod(games.fruit(0), 6)]).all(2).flatten()) == 1
