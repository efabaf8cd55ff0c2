"""Jumanji's Tetris-v0, many games at once, with the same pieces as in ours."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments.packing.tetris import utils
from jumanji.environments.packing.tetris.env import Tetris
from jumanji.environments.packing.tetris.types import State
from numpy.typing import NDArray


class JumanjiTetris:
    """Games that begin with `pieces`, int [lanes]."""

    def __init__(self, pieces: NDArray[np.int64]) -> None:
        self.env = Tetris()
        self.keys = jnp.zeros((len(pieces), 2), jnp.uint32)
        self._step = jax.jit(jax.vmap(self._step_one))
        self._begin = jax.jit(jax.vmap(self._begin_one))
        self.state = self._begin(self.keys, pieces)

    def step(
        self, actions: NDArray[np.int64], pieces: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float32], NDArray[np.bool_]]:
        """Grid [lanes, height, width], mask [lanes, actions], reward, done; `pieces` come next."""
        both = np.stack(np.divmod(actions, self.env.num_cols), 1)
        self.state, steps = self._step(self.state, both, pieces)
        return *self.look(), np.asarray(steps.reward), np.asarray(steps.last())

    def begin(self, done: NDArray[np.bool_], pieces: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """New games with `pieces` where one is `done`; grid and mask of all."""
        fresh = self._begin(self.keys, pieces)

        def choose(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        self.state = jax.tree_util.tree_map(choose, fresh, self.state)
        return self.look()

    def look(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        grid = np.asarray(self.state.grid_padded)[:, : self.env.num_rows, : self.env.num_cols] > 0
        return grid, np.asarray(self.state.action_mask).reshape(len(grid), -1)

    def _step_one(self, state: State, action: jax.Array, piece: jax.Array) -> tuple[State, object]:
        drawn, utils.sample_tetromino_list = utils.sample_tetromino_list, lambda _, boxes: (boxes[piece, 0], piece)
        try:  # this happens only while it is traced
            return self.env.step(state, action)
        finally:
            utils.sample_tetromino_list = drawn

    def _begin_one(self, key: jax.Array, piece: jax.Array) -> State:
        drawn, utils.sample_tetromino_list = utils.sample_tetromino_list, lambda _, boxes: (boxes[piece, 0], piece)
        try:
            return self.env.reset(key)[0]
        finally:
            utils.sample_tetromino_list = drawn
