"""Jumanji's A2C on Jumanji's Snake and Tetris, with the options of its own configuration files, for bench.field."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.judge import PIECES, SCORED_GAMES, Judge, Task

EPOCH = 5  # updates between two looks at the clock


class _Jumanji:
    """Jumanji's A2C with its own options for the game."""

    def __init__(self, task: Task) -> None:
        import jax
        import optax
        from jumanji.environments import Snake, Tetris
        from jumanji.training import networks
        from jumanji.training.agents.a2c import A2CAgent
        from jumanji.training.types import ActingState, TrainingState
        from jumanji.wrappers import VmapAutoResetWrapper

        self._jax = jax
        rows, columns = task.sides
        network: Any
        if task.game == "snake":
            self._game: Any = Snake(rows, columns)
            network = networks.make_actor_critic_networks_snake(self._game, 32, [64, 64], [128, 128])
            batch, n_steps, gamma, trace = 128, 20, 0.997, 0.95
        else:
            self._game = Tetris(rows, columns, time_limit=PIECES)
            network = networks.make_actor_critic_networks_tetris(self._game, 64, [16, 16], [128])
            batch, n_steps, gamma, trace = 128, 30, 0.9, 0.9
        env = VmapAutoResetWrapper(self._game)
        self._agent = A2CAgent(
            env, n_steps, batch, network, optax.adam(3e-4), normalize_advantage=False, discount_factor=gamma,
            bootstrapping_factor=trace, l_pg=1.0, l_td=1.0, l_en=0.01,
        )  # fmt: skip
        self.steps_per_epoch = EPOCH * n_steps * batch
        parameters, start, play, self._key = jax.random.split(jax.random.PRNGKey(task.seed), 4)
        state, timestep = jax.jit(env.reset)(jax.random.split(start, batch))
        zero = jax.numpy.zeros((), float)
        acting = ActingState(state=state, timestep=timestep, key=play, episode_count=zero, env_step_count=zero)
        state = TrainingState(params_state=self._agent.init_params(parameters), acting_state=acting)
        self._state = jax.tree_util.tree_map(lambda leaf: leaf[None], state)  # one device

        def epoch(state: Any) -> Any:
            return jax.lax.scan(lambda state, _: (self._agent.run_epoch(state)[0], None), state, None, EPOCH)[0]

        self._epoch = jax.pmap(epoch, axis_name="devices")
        self._lines = jax.numpy.array([40, 100, 300, 1200]) if task.game == "tetris" else None
        self._play = {sampled: jax.jit(partial(self._step, sampled)) for sampled in (False, True)}

    def learn(self) -> None:
        self._state = self._jax.block_until_ready(self._epoch(self._state))

    def score(self) -> float:
        return max(self._score(sampled) for sampled in self._play)

    def _score(self, sampled: bool) -> float:
        jax = self._jax
        self._key, start = jax.random.split(self._key)
        state, timestep = jax.jit(jax.vmap(self._game.reset))(jax.random.split(start, SCORED_GAMES))
        alive, scores = np.ones(SCORED_GAMES, np.bool_), np.zeros(SCORED_GAMES)
        while alive.any():
            self._key, key = jax.random.split(self._key)
            actor = jax.tree_util.tree_map(lambda leaf: leaf[0], self._state.params_state.params.actor)
            state, timestep, gained = self._play[sampled](actor, state, timestep, key)
            scores += np.asarray(gained) * alive
            alive &= ~np.asarray(timestep.last())
        return float(scores.mean())

    def _step(self, sampled: bool, actor: Any, state: Any, timestep: Any, key: Any) -> tuple[Any, Any, Any]:
        jax = self._jax
        action, _ = self._agent.make_policy(actor, stochastic=sampled)(timestep.observation, key)
        state, timestep = jax.vmap(self._game.step)(state, action)
        gained = timestep.reward
        if self._lines is not None:
            gained = (gained[:, None] >= self._lines).sum(1)
        return state, timestep, gained


def jumanji_a2c(task: Task, minutes: float) -> None:
    program, steps = _Jumanji(task), 0
    judge = Judge(program.score, minutes)
    while True:
        program.learn()
        steps += program.steps_per_epoch
        judge.after(steps)
