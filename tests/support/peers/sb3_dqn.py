"""Stable-Baselines3's DQN, as it is, on one game after its check of the environment; prints one line of JSON.

python -m tests.support.peers.sb3_dqn [steps [id]]
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.env_checker import check_env


def main(steps: int, name: str) -> None:
    """Train for `steps` environment steps."""
    is_screen = name.startswith("SuperMarioBros")
    options: dict[str, Any] = {"stall_steps": 50} if is_screen else {}
    env = gymnasium.make(f"engine.games.gymnasium_api:mario_tui/{name}", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not is_screen:
            warnings.filterwarnings("ignore", "The minimal resolution for an image is 36x36")  # for CnnPolicy
        check_env(env)
    policy = "CnnPolicy" if is_screen else "MlpPolicy"
    model = DQN(policy, env, buffer_size=1000, learning_starts=100, train_freq=4, seed=1, device="cpu")
    model.learn(steps, log_interval=1)
    lengths = [episode["l"] for episode in model.ep_info_buffer or ()]
    loss = float(model.logger.name_to_value["train/loss"])
    env.close()
    print(json.dumps({"steps": model.num_timesteps, "updates": model._n_updates, "loss": loss, "lengths": lengths}))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 400, given[1] if given[1:] else "SuperMarioBros-1-1-v0")
