"""The options of Snake, and the planes of an observation. Imports nothing heavy, because the command line uses it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.fields import option
from engine.config.game import GameOptions
from engine.games.boards.board_game import BOARD_HELP

PLANES = 5
BODY, HEAD, TAIL, FRUIT, ORDER = range(PLANES)


@dataclass(frozen=True, kw_only=True)
class SnakeOptions(GameOptions):
    """Options of Snake."""

    reward: str = option(
        "fruits", "environment", "fruits", choices=("fruits",), metavar="NAME", roles=("task", "policy")
    )
    board: str = option("12x12", "environment", BOARD_HELP, metavar="WxH", roles=("task", "network", "policy"))
    death_penalty: float = option(
        3.0,  # otherwise a fruit now is worth the risk of all later ones
        "environment",
        "reward subtracted when the snake dies",
        low=0.0,
        high=100.0,
        roles=("task", "policy"),
    )
    step_penalty: float = option(
        0.01,  # otherwise long snakes go in circles
        "environment",
        "reward that the agent loses in each step, so that going in circles does not pay; not in returns",
        low=0.0,
        high=1.0,
        roles=("task",),
    )
    late_starts: float = option(
        0.3,
        "environment",
        "share of episodes that begin late in a game, with a long snake; neither counted nor evaluated",
        low=0.0,
        high=0.9,
    )
    paths: bool = option(
        True,
        "learning",
        "show the network the board from the head, and how soon each move lets the snake reach each cell",
        roles=("network",),
    )
