"""Tetris and Snake as a person plays them: every test presses keys in the real game."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.config.capabilities import DOWN, LEFT, RIGHT, UP, A, B, Playable
from engine.config.game import game_of
from engine.extras.playing.stepped_game import SteppedGame
from engine.extras.playing.tetris import HARD_DROP, HOLD, TetrisPerson, seconds_per_row, turned
from engine.games.boards.lanes import BoardLanes
from engine.games.boards.tensor_lanes import TensorLanes
from engine.games.snake.rules import SnakeLanes
from engine.games.tetris.rules import TetrisLanes
from engine.games.tetris.viewer import UPRIGHT, Drop, landings

I, T = 0, 4  # noqa: E741
TICKS_OF_A_ROW = 30  # on level 1
PATIENCE_TICKS = 2000


class Table:
    """A person's game, whose controls it is; `press` is one tick with these buttons."""

    buttons = 0

    def __init__(self, game: str = "tetris", **options: object) -> None:
        self._presses: list[int] = []
        described = game_of(game)
        assert isinstance(described, Playable)
        played = described.game_of_person(self, **options)
        assert isinstance(played, SteppedGame)
        self.game = played
        self.ended = False
        self.begin()

    def begin(self, episode: int = 1) -> None:
        self.game.begin(episode, 3, None)

    def presses(self) -> list[int]:
        taken, self._presses = self._presses, []
        return taken

    def press(self, *buttons: int) -> None:
        self._presses = list(buttons)
        self.ended |= self.game.tick() is not None

    def until(self, reached: Callable[[], bool]) -> int:
        """Ticks without buttons until then."""
        for ticks in range(PATIENCE_TICKS):
            if reached():
                return ticks
            self.press()
        raise AssertionError("nothing happened")

    @property
    def person(self) -> TetrisPerson:
        person = self.game._player
        assert isinstance(person, TetrisPerson)
        return person

    @property
    def drop(self) -> Drop:
        return self.person.drop

    @property
    def tetris(self) -> TetrisLanes:
        games = self.board
        assert isinstance(games, TetrisLanes)
        return games

    @property
    def board(self) -> TensorLanes:
        assert isinstance(self.game._lanes, BoardLanes)
        return self.game._lanes.board

    def arrange(self, columns: list[int], piece: int, lines: int = 0) -> None:
        """Go on from this board, whose columns are given as bits without the floor."""
        games, state = self.tetris, self.tetris.state()
        floor = -1 << games.height
        state["columns"][0, : games.width] = torch.tensor([bits | floor for bits in columns], dtype=torch.int32)
        state["piece"][0], state["lines"][0] = piece, lines
        state["masks"][0] = False
        state["masks"][0, [action for action, _ in landings([bits | floor for bits in columns], piece)]] = True
        games.load_state(state)
        self.person._lines = lines
        self.person._enter()

    def filled(self) -> NDArray[np.bool_]:
        games = self.tetris
        return np.array(games.columns(0)) >> np.arange(games.height)[:, None] & 1 > 0


def test_a_piece_falls_by_itself_and_can_be_moved_until_shortly_after_it_has_landed() -> None:
    table = Table(board="10x20")
    start = table.drop
    assert start.row == 0 and start.rotation == UPRIGHT[start.piece]
    assert table.until(lambda: table.drop.row == 1) in (TICKS_OF_A_ROW, TICKS_OF_A_ROW + 1)
    table.until(lambda: max(y for _, y in table.drop.cells) == 19)
    for _ in range(10):
        table.press()
    table.press(LEFT)
    assert table.drop.column == start.column - 1
    landed = table.drop
    waited = table.until(lambda: table.game.steps == 1)
    assert 10 <= waited <= 15
    assert {(x, y) for y, x in np.argwhere(table.filled())} == set(landed.cells)


@pytest.mark.parametrize("keys", [(A, B), (LEFT, RIGHT)])
def test_a_landed_piece_can_be_moved_fifteen_times(keys: tuple[int, int]) -> None:
    table = Table(board="10x20")
    table.until(lambda: table.drop == table.person._ghost)
    moves = 0
    while table.game.steps == 0:
        before = table.drop
        table.press(keys[moves % 2])
        moves += table.drop != before
        for _ in range(12):  # less than half a second
            table.press()
    assert moves == 15


def test_a_hard_drop_and_a_soft_drop_place_the_piece_where_its_ghost_is() -> None:
    table = Table(board="10x20")
    table.press(LEFT, LEFT, LEFT, LEFT, LEFT, LEFT)
    assert table.drop.column == 0  # the wall
    bottom = 19 - table.drop.row - max(y for _, y in table.drop._replace(row=0).cells)
    table.press(HARD_DROP, RIGHT)
    assert table.game.steps == 1 and table.filled()[:, 0].any() and table.filled()[19].any()
    assert table.game.facts()["points"] == 2 * bottom
    middle = table.drop.column
    table.press()
    assert table.drop.column == middle + 1  # a key after the drop is for the next piece
    for _ in range(20):
        if table.game.steps == 1:
            table.press(DOWN)
    assert table.game.steps == 2 and int(table.game.facts()["points"]) > 2 * bottom
    assert table.filled().sum() == 8


@pytest.mark.parametrize(("key", "by", "back"), [(UP, 1, B), (A, 1, B), (B, -1, A)])
def test_keys_turn_a_piece_both_ways(key: int, by: int, back: int) -> None:
    table = Table(board="10x20")
    table.press(*[DOWN] * 4)
    start = table.drop
    table.press(key, back)
    assert table.drop == start
    for turn in range(1, 5):
        table.press(key)
        assert table.drop.rotation == (start.rotation + turn * by) % 4
    assert table.drop == start


@pytest.mark.parametrize("piece", range(7))
def test_four_turns_in_the_open_are_none(piece: int) -> None:
    open_board = [-1 << 20] * 10
    for by in (1, -1):
        start = drop = Drop(piece, UPRIGHT[piece], 4, 8)
        for _ in range(4):
            after = turned(open_board, drop, by)
            assert after is not None and abs(after.column - drop.column) <= 2
            drop = after
        assert drop == start


def test_a_piece_at_the_wall_or_on_the_ground_finds_room_to_turn() -> None:
    upright, lying = Drop(0, 0, 9, 3), Drop(0, 3, 3, 19)
    open_board = [-1 << 20] * 10
    assert turned(open_board, upright, 1) == Drop(0, 1, 6, 5)  # four cells wide
    assert turned(open_board, lying, 1) == Drop(0, 0, 5, 16)  # four cells high
    pit = [-1 << 20] * 3 + [-1 << 15] + [-1 << 20] * 6
    assert turned(pit, Drop(0, 0, 2, 16), 1) is None


def test_a_piece_cannot_be_moved_below_others() -> None:
    table = Table(board="7x14")
    table.arrange([1 << 8, 1 << 8, 0, 0, 0, 0, 0], T)
    table.until(lambda: table.drop.row >= 9)
    before = table.drop
    table.press(*[LEFT] * 5)
    assert min(x for x, _ in table.drop.cells) >= 2 and table.drop.row == before.row


@pytest.mark.parametrize("pieces", ["bag", "uniform"])
def test_a_piece_is_held_once_and_comes_back(pieces: str) -> None:
    table = Table(board="10x20", pieces=pieces)
    first, upcoming = table.drop.piece, table.tetris.next_piece(0)
    assert (table.game.picture()[:, :60] > 0).any()  # the empty box
    table.press(HOLD)
    second = table.drop.piece
    assert second == upcoming
    assert table.person._held == first and table.tetris.piece(0) == second and table.game.steps == 0
    table.press(HOLD)
    assert (table.person._held, table.drop.piece) == (first, second)  # only once
    table.press(HARD_DROP)
    assert table.game.steps == 1 and table.filled().sum() == 4
    assert set(table.person._viewer.cells()[table.filled()].tolist()) == {second + 1}
    third = table.drop.piece
    upcoming = table.tetris.next_piece(0)
    table.press(HOLD)
    assert (table.person._held, table.drop.piece) == (third, first)
    assert table.tetris.next_piece(0) == upcoming
    table.press(HARD_DROP)
    assert table.game.steps == 2 and table.filled().sum() == 8 and not table.ended


def test_a_bag_is_dealt_whole_also_with_a_held_piece() -> None:
    table = Table(board="10x20", pieces="bag")
    seen = [table.drop.piece]
    table.press(HOLD)
    seen.append(table.drop.piece)
    for column in (0, 2, 4, 6, 7):
        table.press(*[LEFT] * 9, *[RIGHT] * column, HARD_DROP)
        seen.append(table.drop.piece)
    assert sorted(seen) == list(range(7))


def test_lines_raise_points_and_level_and_pieces_fall_faster() -> None:
    table = Table(board="4x20")
    table.arrange([1 << 19, 1 << 19, 1 << 19, 0], I, lines=9)
    table.press(UP, *[RIGHT] * 3, HARD_DROP)
    info = table.game.facts()
    assert (info["lines"], info["level"], info["height"]) == (10, 2, 3)
    assert info["points"] == 2 * 16 + 100
    speeds = [seconds_per_row(level) for level in range(1, 21)]
    assert speeds[0] == 1.0 and speeds == sorted(speeds, reverse=True) and 0 < speeds[-1] < 0.01


def test_a_game_played_to_its_end_begins_anew() -> None:
    table = Table(board="4x8")
    while not table.ended:
        table.press(HARD_DROP)
    steps = table.game.steps
    table.begin(2)
    assert steps > 1 and table.game.steps == 0 and not table.filled().any() and table.game.facts()["points"] == 0


def test_a_snake_waits_for_the_first_key_and_goes_on() -> None:
    table = Table("snake", board="12x12")
    games = table.board
    assert isinstance(games, SnakeLanes)
    table.press(A)  # means nothing here
    start = games.path(0)
    assert table.game.idle and table.game.steps == 0
    table.press(LEFT if start[0] % 12 > 5 else RIGHT)
    assert table.game.steps == 1 and games.path(0)[-1] - start[-1] in (-1, 1)
    table.until(lambda: table.game.steps == 3)


def test_a_snake_does_not_turn_back_into_its_neck() -> None:
    table, random = Table("snake", board="4x4"), np.random.default_rng(0)
    ahead = {1: RIGHT, 4: DOWN, -1: LEFT, -4: UP}
    back = {RIGHT: LEFT, DOWN: UP, LEFT: RIGHT, UP: DOWN}
    tried = 0
    for episode in range(1, 200):
        table.ended = False
        table.begin(episode)
        board = table.board
        assert isinstance(board, SnakeLanes)
        while not table.ended:
            before = board.path(0)
            if len(before) > 1:
                table.press(back[ahead[before[-1] - before[-2]]])
                tried += 1
                assert table.ended or board.path(0)[-1] != before[-2]
            else:
                table.press(int(random.choice(list(back))))
    assert tried > 20


@pytest.mark.parametrize(("keys", "turns"), [((DOWN, LEFT), (12, -1)), ((DOWN, UP, LEFT), (-12, -1))])
def test_a_snake_takes_two_turns_that_are_pressed_in_one_step(keys: tuple[int, ...], turns: tuple[int, int]) -> None:
    """Opposite keys correct each other."""
    table = Table("snake", board="12x12")
    board = table.board
    assert isinstance(board, SnakeLanes)
    while not (1 < board.path(0)[-1] % 12 < 9 and 2 < board.path(0)[-1] // 12 < 9):
        table.begin(table.game.steps + 2)
    table.press(RIGHT)
    heads = [board.path(0)[-1]]
    table.press(*keys)
    for steps in (2, 3):
        while table.game.steps < steps:
            table.press()
        heads.append(board.path(0)[-1])
    assert np.diff(heads).tolist() == list(turns)
