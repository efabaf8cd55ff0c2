"""N games of Catch in NumPy arrays; see `engine.envs.lanes.Lanes`."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.config.run_config import RunConfig
from engine.envs.lanes import Lanes, VectorStep
from plugin_catch.game import size_of


def make_lanes(config: RunConfig, lanes: int, *, seed: int, **_: Any) -> CatchLanes:
    """See `engine.envs.factory.MakeLanes`."""
    return CatchLanes(config, lanes, seed)


class CatchLanes(Lanes):
    """A ball falls by a cell a step. A caught one is a reward of 1, and the next one falls; a missed one ends the
    episode. The last ball cuts it off, because observations don't show how many are left."""

    def __init__(self, config: RunConfig, lanes: int, seed: int) -> None:
        self.lanes, self.spec, self._seed = lanes, config.spec, seed
        self._width, self._height = size_of(config.value("board"))
        self._paddle, self._balls = config.value("paddle"), config.value("balls")
        self._drawn = 0
        """Random numbers depend on the seed and how often some were drawn."""
        self._row, self._column, self._at, self._caught, self._length = np.zeros((5, lanes), np.int64)

    def reset(self) -> np.ndarray:
        self._begin(np.ones(self.lanes, bool))
        return self._frames()

    def step(self, actions: np.ndarray) -> VectorStep:
        self._at = np.clip(self._at + actions - 1, 0, self._width - self._paddle)
        self._row = self._row + 1
        self._length = self._length + 1
        landed = self._row == self._height - 1
        caught = landed & (self._at <= self._column) & (self._column < self._at + self._paddle)
        missed = landed & ~caught
        self._caught = self._caught + caught
        done = self._caught == self._balls
        total, lengths, final_frames = self._caught, self._length, self._frames()
        self._drop(caught)
        self._begin(missed | done)
        return VectorStep(
            frames=self._frames(),
            final_frames=final_frames,
            rewards=caught.astype(np.float32),
            terminated=missed,
            truncated=done,
            returns=total.astype(np.float32),
            lengths=lengths,
            results=total[:, None].astype(float),
            success=done,
        )

    def _begin(self, which: np.ndarray) -> None:
        self._at = np.where(which, (self._width - self._paddle) // 2, self._at)
        self._caught, self._length = np.where(which, 0, self._caught), np.where(which, 0, self._length)
        self._drop(which)

    def _drop(self, which: np.ndarray) -> None:
        self._drawn += 1
        numbers = np.random.Generator(np.random.Philox(key=[self._seed, self._drawn]))
        self._column = np.where(which, numbers.integers(self._width, size=self.lanes), self._column)
        self._row = np.where(which, 0, self._row)

    def _frames(self) -> np.ndarray:
        frames = np.zeros((self.lanes, 2, self._height, self._width), np.uint8)
        lanes = np.arange(self.lanes)
        frames[lanes, 0, self._row, self._column] = 255
        for cell in range(self._paddle):
            frames[lanes, 1, -1, self._at + cell] = 255
        return frames

    def screen(self, lane: int, thought: object = None) -> np.ndarray:
        ball, paddle = self._frames()[lane]
        picture = np.zeros((240, 256, 3), np.uint8)
        side = min(240 // self._height, 256 // self._width)
        cells = np.stack([np.maximum(ball, paddle), ball // 2, paddle], 2)
        cells = cells.repeat(side, 0).repeat(side, 1)
        picture[: cells.shape[0], : cells.shape[1]] = cells
        return picture

    def facts(self, lane: int) -> dict[str, int]:
        return {"caught": int(self._caught[lane])}

    def state(self) -> dict[str, Any]:
        games = np.stack([self._row, self._column, self._at, self._caught, self._length])
        return {"games": games, "random": np.array([self._seed, self._drawn])}

    def load_state(self, state: dict[str, Any]) -> None:
        self._row, self._column, self._at, self._caught, self._length = state["games"].copy()
        self._seed, self._drawn = state["random"].tolist()

    def rewind(self) -> None:
        self._drawn = 0

    def task_of(self, lane: int) -> str:
        return f"{self._width}x{self._height}"
