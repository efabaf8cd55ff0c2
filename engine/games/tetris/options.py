"""The options of Tetris, and the planes of an observation. Imports nothing heavy, because the command line uses it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.fields import option
from engine.config.game import GameOptions
from engine.games.boards.board_game import BOARD_HELP

FILLED, REACHED, PIECE, MASKS, NEXT = range(5)
PLANES = 4
"""Without `NEXT`, which is shown with the option only."""


@dataclass(frozen=True, kw_only=True)
class TetrisOptions(GameOptions):
    """Options of Tetris."""

    reward: str = option(
        "cells",  # squares of lines, as in `lines`, make the agent stack too high
        "environment",
        "per piece: cells (1 + cells cleared), lines (1 + width x lines^2), or jumanji (0, 40, 100, 300 or 1200 for 0 "
        "to 4 lines)",
        choices=("cells", "lines", "jumanji"),
        metavar="NAME",
        roles=("task", "policy"),
    )
    board: str = option("10x20", "environment", BOARD_HELP, metavar="WxH", roles=("task", "network", "policy"))
    pieces: str = option(
        "uniform",
        "environment",
        "uniform: every piece equally likely; bag: all seven pieces before any of them repeats",
        choices=("uniform", "bag"),
        roles=("task", "policy"),
    )
    next_piece: bool = option(
        False,
        "environment",
        "draw each piece one placement earlier and show it to the agent",
        roles=("task", "network", "policy"),
    )
    max_pieces: int = option(
        10_000,  # four thousand lines
        "environment",
        "pieces after which a game is cut off",
        low=1,
        high=10_000_000,
        roles=("task", "policy"),
    )
    curriculum: bool = option(
        False,
        "environment",
        "penalties for height, holes and bumpiness that grow with each phase; not in evaluations",
        roles=("task", "network"),
    )
    curriculum_steps: int = option(
        100_000, "environment", "environment steps per phase; the second half blends in the next phase", low=1
    )
    afterstates: bool = option(
        True,
        "learning",
        "value a placement by its reward and the board that it leaves, rather than from board and piece",
        roles=("network",),
    )
