"""Stable-Baselines3's DQN, as it is, on one game; prints one line of JSON.

python -m tests.support.peers.sb3_dqn [steps]
"""

from __future__ import annotations

import json
import sys

import gymnasium
from stable_baselines3 import DQN

import engine.games.gymnasium_api.mario  # noqa: F401  # registers the ids


def main(steps: int) -> None:
    """Train for `steps` environment steps."""
    env = gymnasium.make("mario_tui/SuperMarioBros-1-1-v0", stall_steps=50)
    model = DQN("CnnPolicy", env, buffer_size=1000, learning_starts=100, train_freq=4, seed=1, device="cpu")
    model.learn(steps, log_interval=1)
    lengths = [episode["l"] for episode in model.ep_info_buffer or ()]
    loss = float(model.logger.name_to_value["train/loss"])
    env.close()
    print(json.dumps({"steps": model.num_timesteps, "updates": model._n_updates, "loss": loss, "lengths": lengths}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
