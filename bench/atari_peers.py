"""Other DQNs on an Atari game, beside `bench.environments ALE/NAME --preset atari`: one complete run.

    python -m bench.atari_peers LEARNER ENV [--steps N] [--seed S] [--csv FILE]

LEARNER is `stable-baselines3`, with the options of RL Baselines3 Zoo for Atari, or `cleanrl`, a loop in one function as
in CleanRL's dqn_atari.py, with its options. Both have one thread, 100,000 transitions, and epsilon falls to 0.01 in the
first tenth of the run. The environment is as in the preset: four frames per action, the maximum of two, 84x84 in gray,
sticky actions (Machado et al. 2018), signs of rewards. The CSV has the columns of `bench.environments`; its evaluations
play eight greedy episodes. Minutes are those of the processor, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack
from torch.nn import functional as F

from bench.environments import Point, write_csv
from bench.networks import Nature, greedy

REPLAY, BATCH, LEARNING_RATE, GAMMA = 100_000, 32, 1e-4, 0.99
LEAST_EPSILON, EXPLORED = 0.01, 0.1  # the second: share of the run in which epsilon falls
PLAYED_BETWEEN, TARGET_EVERY = 4, 1_000  # environment steps
EVAL_EVERY, EVAL_EPISODES, AVERAGED = 50_000, 8, 100

Choose = Callable[[NDArray[np.uint8]], NDArray[np.int64]]
"""Actions [1] for observations [1, 84, 84, 4]."""


def environment(name: str, seed: int) -> VecEnv:
    """One environment, as a vector with observations uint8 [1, 84, 84, 4]."""
    gymnasium.register_envs(ale_py)
    wrapped = {"terminal_on_life_loss": False, "action_repeat_probability": 0.25}
    given = {"frameskip": 1, "repeat_action_probability": 0.0}
    return VecFrameStack(
        make_vec_env(name, 1, seed=seed, wrapper_class=AtariWrapper, wrapper_kwargs=wrapped, env_kwargs=given), 4
    )


class Watch:
    """Takes down the returns of training, and evaluates."""

    def __init__(self, name: str, seed: int, path: Path | None) -> None:
        self._env, self._seed, self._path = name, seed, path
        self._judged = environment(name, seed + 1)
        self._returns, self._points = deque[float](maxlen=AVERAGED), list[Point]()

    def after(self, env_steps: int, infos: list[dict[str, Any]], choose: Choose) -> None:
        self._returns += [info["episode"]["r"] for info in infos if "episode" in info]
        if env_steps % EVAL_EVERY:
            return
        trained = statistics.mean(self._returns) if self._returns else math.nan
        score = statistics.mean(itertools.islice(self._games(choose), EVAL_EPISODES))
        self._points.append(Point(self._env, self._seed, time.process_time() / 60, env_steps, trained, score))
        print(self._points[-1], flush=True)
        if self._path:
            write_csv(self._points, self._path)

    def _games(self, choose: Choose) -> Iterator[float]:
        obs: Any = self._judged.reset()
        while True:
            obs, _, _, infos = self._judged.step(choose(obs))
            if "episode" in infos[0]:
                yield infos[0]["episode"]["r"]


def stable_baselines3(name: str, steps: int, seed: int, watch: Watch) -> None:
    class Callback(BaseCallback):
        def _on_step(self) -> bool:
            watch.after(self.num_timesteps, self.locals["infos"], lambda obs: model.predict(obs, deterministic=True)[0])
            return True

    model = DQN(
        "CnnPolicy", environment(name, seed), seed=seed, device="cpu", buffer_size=REPLAY, batch_size=BATCH,
        learning_rate=LEARNING_RATE, gamma=GAMMA, learning_starts=100_000, target_update_interval=TARGET_EVERY,
        train_freq=PLAYED_BETWEEN, gradient_steps=1, exploration_fraction=EXPLORED,
        exploration_final_eps=LEAST_EPSILON, optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )  # fmt: skip
    model.learn(steps, callback=Callback(), log_interval=10**9)


def planes(obs: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[batch, 4, 84, 84] from [batch, 84, 84, 4]."""
    return obs.transpose(0, 3, 1, 2)


def cleanrl(name: str, steps: int, seed: int, watch: Watch) -> None:
    torch.manual_seed(seed)
    random, env = np.random.default_rng(seed), environment(name, seed)
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    actions = int(env.action_space.n)
    online, target = Nature(actions), Nature(actions)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), LEARNING_RATE)
    seen, following = (np.zeros((REPLAY, 84, 84, 4), np.uint8) for _ in range(2))
    chosen, rewards, ended = np.zeros(REPLAY, np.int64), np.zeros(REPLAY, np.float32), np.zeros(REPLAY, np.float32)

    def best(obs: NDArray[np.uint8]) -> NDArray[np.int64]:
        return greedy(online, planes(obs))

    obs: Any = env.reset()
    for step in range(1, steps + 1):
        epsilon = max(LEAST_EPSILON, 1 - (1 - LEAST_EPSILON) * step / (EXPLORED * steps))
        action = random.integers(0, actions, 1) if random.random() < epsilon else best(obs)
        next_obs, reward, over, infos = env.step(action)
        at = (step - 1) % REPLAY
        terminated = over[0] and not infos[0]["TimeLimit.truncated"]
        seen[at], chosen[at], rewards[at], ended[at] = obs[0], action[0], reward[0], terminated
        following[at] = infos[0].get("terminal_observation", next_obs[0])
        obs = next_obs
        watch.after(step, infos, best)
        if step <= 80_000 or step % PLAYED_BETWEEN:
            continue
        picked = random.integers(0, min(step, REPLAY), BATCH)
        with torch.no_grad():
            value = target(torch.from_numpy(planes(following[picked]))).amax(1) * (1 - torch.from_numpy(ended[picked]))
            goal = torch.from_numpy(rewards[picked]) + GAMMA * value
        q = (
            online(torch.from_numpy(planes(seen[picked])))
            .gather(1, torch.from_numpy(chosen[picked])[:, None])
            .squeeze(1)
        )
        optimizer.zero_grad()
        F.mse_loss(goal, q).backward()
        optimizer.step()
        if step % TARGET_EVERY == 0:
            target.load_state_dict(online.state_dict())


LEARNERS = {"stable-baselines3": stable_baselines3, "cleanrl": cleanrl}


def main() -> None:
    parser = argparse.ArgumentParser(description="Other DQNs on an Atari game.")
    parser.add_argument("learner", choices=LEARNERS)
    parser.add_argument("env", metavar="ENV")
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    LEARNERS[given.learner](given.env, given.steps, given.seed, Watch(given.env, given.seed, given.csv))


if __name__ == "__main__":
    main()
