"""Stable-Baselines3's DQN with the settings of RL Baselines3 Zoo, for `bench.environments --zoo`: one complete run.

    python -m bench.zoo ENV [--seed S] [--steps N] [--reach RETURN] [--eval-every N] [--threads N]

Prints lines of JSON as `mario-tui --log-format json` does. Evaluations, of 16 episodes as ours, choose the policy that
100 fresh episodes judge: one that reaches RETURN, which ends the run if they do too, or the best at the end. Clocks
stand still meanwhile. Settings are those of `hyperparams/dqn.yml` there.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from typing import Any

import psutil
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

_DENSE: dict[str, Any] = {
    "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "gamma": 0.99,
    "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1, "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
}  # fmt: skip
SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "CartPole-v1": (50_000, {
        "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "gamma": 0.99,
        "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
    }),
    "LunarLander-v3": (100_000, _DENSE),
    "Acrobot-v1": (100_000, _DENSE),
    "MountainCar-v0": (120_000, {
        "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000, "gamma": 0.98,
        "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8, "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07,
    }),
}  # fmt: skip
"""Steps and settings of each environment."""
_EVALUATED, _FRESH = 16, 100
_STARTED = time.monotonic() - (time.time() - psutil.Process().create_time())


class Judged(BaseCallback):
    """Evaluates and judges while the clocks stand still."""

    def __init__(self, env: str, seed: int, reach: float, every: int) -> None:
        super().__init__()
        self._env, self._seed, self._reach, self._every = env, seed, reach, every
        self._begun, self._apart = (_STARTED, 0.0), (0.0, 0.0)
        self._best, self._judged_best = -math.inf, False
        self._weights: dict[str, torch.Tensor] = {}
        self._best_at = 0

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                say(event="episode", episode_return=float(info["episode"]["r"]))
        return self.num_timesteps % self._every > 0 or self._evaluate()

    def _evaluate(self) -> bool:
        begun = (time.monotonic(), time.process_time())
        minutes, cpu_minutes = (
            (now - then - apart) / 60 for now, then, apart in zip(begun, self._begun, self._apart, strict=True)
        )
        mean = statistics.mean(self._returns(_EVALUATED, self._seed + 1))
        best = mean > self._best
        say(event="evaluation", env_steps=self.num_timesteps, mean_return=mean, best=best, minutes=minutes,
            cpu_minutes=cpu_minutes)  # fmt: skip
        go_on = True
        if best:
            self._best, self._best_at = mean, self.num_timesteps
            self._weights = {name: tensor.clone() for name, tensor in self.model.policy.state_dict().items()}
            self._judged_best = mean >= self._reach
            go_on = not (self._judged_best and self._judge() >= self._reach)
        self._apart = (self._apart[0] + time.monotonic() - begun[0], self._apart[1] + time.process_time() - begun[1])
        return go_on

    def _on_training_end(self) -> None:
        if not self._weights:  # the run was shorter than an interval
            self._evaluate()
        if not self._judged_best:
            self.model.policy.load_state_dict(self._weights)
            self._judge()

    def _judge(self) -> float:
        found = self._returns(_FRESH, self._seed + 1_000_000)
        mean, off = statistics.mean(found), 1.96 * statistics.stdev(found) / math.sqrt(len(found))
        say(event="final_evaluation", policy_env_steps=self._best_at, mean_return=mean, mean_return_low=mean - off,
            mean_return_high=mean + off)  # fmt: skip
        return mean

    def _returns(self, episodes: int, seed: int) -> list[float]:
        lanes = make_vec_env(self._env, _EVALUATED, seed=seed)
        found, _ = evaluate_policy(self.model, lanes, episodes, return_episode_rewards=True)
        lanes.close()
        return [float(each) for each in found]


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Stable-Baselines3's DQN with the zoo's settings: one complete run.")
    parser.add_argument("env", choices=SETTINGS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--reach", type=float, default=math.inf)
    parser.add_argument("--eval-every", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    steps, settings = SETTINGS[arguments.env]
    torch.set_num_threads(arguments.threads)
    model = DQN("MlpPolicy", make_vec_env(arguments.env, 1), policy_kwargs={"net_arch": [256, 256]},
                seed=arguments.seed, device="cpu", **settings)  # fmt: skip
    judged = Judged(arguments.env, arguments.seed, arguments.reach, arguments.eval_every)
    model.learn(arguments.steps or steps, callback=judged)


if __name__ == "__main__":
    main()
