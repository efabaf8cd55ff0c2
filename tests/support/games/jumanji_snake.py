"""Jumanji's Snake-v1, many games at once, with fruit and new snakes in the same places as in ours."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments.routing.snake.env import Snake
from jumanji.environments.routing.snake.types import Position, State
from numpy.typing import NDArray


class JumanjiSnake:
    """Games that begin as `frames` show, uint8 [lanes, 5, height, width]."""

    def __init__(self, frames: NDArray[np.uint8]) -> None:
        self.env = Snake()
        self.template, _ = self.env.reset(jax.random.PRNGKey(0))
        self._step = jax.jit(jax.vmap(self._step_one))
        self._begin = jax.jit(jax.vmap(self._begin_one))
        self._look = jax.jit(jax.vmap(self.env._state_to_observation))
        self.state = self._begin(*places(frames))

    def step(
        self, actions: NDArray[np.int64], frames: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.float32], NDArray[np.bool_]]:
        """Planes as ours, mask, reward, done; a fruit that is due appears where `frames` show one."""
        self.state, steps = self._step(self.state, actions, places(frames)[1])
        planes, mask = self.planes()
        return planes, mask, np.asarray(steps.reward), np.asarray(steps.last())

    def begin(self, done: NDArray[np.bool_], frames: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """New games where one is `done`, as `frames` show them; planes and mask of all."""
        fresh = self._begin(*places(frames))

        def choose(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        self.state = jax.tree_util.tree_map(choose, fresh, self.state)
        return self.planes()

    def planes(self) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        seen = self._look(self.state)
        grid = np.moveaxis(np.asarray(seen.grid, np.float64), -1, 1)
        return np.ceil(grid * 255 - 1e-3).astype(np.uint8), np.asarray(seen.action_mask)

    def _step_one(self, state: State, action: jax.Array, fruit: jax.Array) -> tuple[State, object]:
        self.env._sample_fruit_coord = lambda body, key: Position(row=fruit[0], col=fruit[1])  # only while it is traced
        return self.env.step(state, action)

    def _begin_one(self, head: jax.Array, fruit: jax.Array) -> State:
        position = Position(row=head[0], col=head[1])
        body = jnp.zeros_like(self.template.body).at[head[0], head[1]].set(True)
        order = body.astype(jnp.int32)
        return self.template.replace(
            body=body,
            body_state=order,
            head_position=position,
            tail=body,
            fruit_position=Position(row=fruit[0], col=fruit[1]),
            action_mask=self.env._get_action_mask(position, order),
        )


def places(frames: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Row and column of head and fruit, int32 [lanes, 2] each."""
    flat = frames.reshape(len(frames), 5, -1).argmax(2)
    head, fruit = (np.stack(np.divmod(flat[:, plane], frames.shape[3]), 1).astype(np.int32) for plane in (1, 3))
    return head, fruit
