"""What the descriptors of games on boards have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engine.config.capabilities import CommandOption, PersonKeys
from engine.config.fields import ConfigError
from engine.config.game import Game, Spec
from engine.config.run_config import RunConfig

BOARD_HELP = "board size in cells, width x height"


class BoardGame(Game):
    """A game with an option `board`. A policy may have been distilled from several for boards of different sizes."""

    tasks = "board"
    person_options = {"board": CommandOption("board size of Snake or Tetris, without CHECKPOINT", "WxH")}
    other_keys = ""
    keys: ClassVar[PersonKeys]
    """Those of `mario-tui play --human`."""
    limits: ClassVar[tuple[tuple[int, int], tuple[int, int]]]
    """Smallest and largest width, then height, in cells."""

    @abstractmethod
    def own_defaults(self) -> Mapping[str, Any]:
        """As `Game.defaults`, where they differ from those of all games on boards."""

    def defaults(self) -> Mapping[str, Any]:
        return {
            "n_step": 3,
            "replay_ratio": 1.0,
            "batch_size": 64,
            "learning_rate_schedule": "decay",
            "tau": 0.005,
            "prioritized_replay": False,
            "eval_every": 400_000,
            **self.own_defaults(),
        }

    def check(self, config: RunConfig) -> None:
        board = config.value("board")
        sides = board.split("x")
        if len(sides) != 2 or not all(
            side in map(str, range(low, high + 1)) for side, (low, high) in zip(sides, self.limits, strict=True)
        ):
            width, height = (f"{low} to {high}" for low, high in self.limits)
            raise ConfigError("board", f"must be WIDTHxHEIGHT, width {width} and height {height}, got {board!r}")

    def tasks_of(self, value: str) -> tuple[str, ...]:
        return tuple(value.split(","))

    def learned_apart(self, value: str) -> tuple[str, ...]:
        return self.tasks_of(value)

    def keys_of_person(self, config: RunConfig) -> PersonKeys:
        return self.keys

    def spec_for_all(self, specs: Sequence[Spec]) -> Spec:
        first, *_ = specs
        planes, height, width = (max(sides) for sides in zip(*(spec.frame_shape for spec in specs), strict=True))
        actions = max(spec.actions for spec in specs)
        return Spec((planes, height, width), actions, first.stack, first.hold, masked=first.masked)


def size_of(board: str) -> tuple[int, int]:
    """Width and height in cells of `12x10`."""
    width, height = (int(side) for side in board.split("x"))
    return width, height
