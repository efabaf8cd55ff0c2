"""Scores the learners of bench.field while they learn, and stops them when their minutes are over."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import engine.games.gymnasium_api  # noqa: F401  # registers the ids
from engine.config.run_config import RunConfig
from engine.envs.factory import make_lanes
from engine.evaluation.policy import play_episodes

SCORED_GAMES, SCORE_EVERY_S = 50, 60.0
PIECES = 2_500  # after which games of Tetris are cut off
IDS = {"snake": "mario_tui/Snake-v1", "tetris": "mario_tui/Tetris-v0"}

Act = Callable[[NDArray[np.uint8], NDArray[np.bool_] | None], NDArray[np.int64]]
"""Actions int64 [games] from boards uint8 [games, planes, height, width] and, in Tetris, the legal actions, bool
[games, actions]."""


class TimeOver(Exception):
    """The minutes of a learner are over."""


@dataclass(frozen=True)
class Task:
    game: str
    board: str  # WIDTHxHEIGHT
    seed: int

    @property
    def sides(self) -> tuple[int, int]:
        width, height = map(int, self.board.split("x"))
        return height, width

    def options(self) -> dict[str, Any]:
        """Arguments of our environments that give the rules of our runs."""
        height, width = self.sides
        if self.game == "snake":
            return {"height": height, "width": width, "time_limit": 500_000, "truncate": True,
                    "stall_limit": 2 * height * width}  # fmt: skip
        return {
            "height": height,
            "width": width,
            "time_limit": PIECES,
            "truncate": True,
            "reward": "cells",
            "bag": True,
        }

    def environment(self) -> gymnasium.Env[Any, Any]:
        return gymnasium.make(IDS[self.game], **self.options())

    def score(self, act: Act) -> float:
        """Mean score of greedy games."""
        rules = {"late_starts": 0.0} if self.game == "snake" else {"reward": "cells", "max_pieces": PIECES}
        config = RunConfig.of(game=self.game, board=self.board, **rules)
        lanes = make_lanes(config, SCORED_GAMES, threads=1, seed=self.seed + 1, evaluation=True)
        played = play_episodes(lanes, lambda obs, masks: act(obs[:, 0], masks), SCORED_GAMES)
        lanes.close()
        return float(np.mean([episode.results[0] for episode in played]))


class Judge:
    """Has a learner scored every now and then, and stops it at the end. The clock stands still meanwhile."""

    def __init__(self, score: Callable[[], float], minutes: float) -> None:
        self._score = score
        self._end = 60 * minutes
        self._begun, self._next = time.perf_counter(), SCORE_EVERY_S

    def after(self, env_steps: int) -> None:
        """To be called between steps. Raises `TimeOver`."""
        if (spent := time.perf_counter() - self._begun) < self._next:
            return
        score = self._score()
        line = json.dumps({"minutes": spent / 60, "env_steps": env_steps, "score": score})
        print(line, file=sys.__stdout__, flush=True)  # what packages print goes to stderr
        if spent >= self._end:
            raise TimeOver
        self._begun = time.perf_counter() - spent
        self._next += SCORE_EVERY_S
