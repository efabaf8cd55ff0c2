"""DQN in CleanRL's single-file style on several games: python -m tests.support.peers.cleanrl_dqn [steps]; prints JSON.
Games restart within the step that ends an episode, whose last observation is then in `infos`.
"""

import json
import random
import sys
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn

import engine.games.gymnasium_api  # noqa: F401  # registers the ids

GAMES, BATCH, LEARNING_STARTS, TARGET_EVERY, GAMMA = 4, 32, 100, 100, 0.99


def q_network(actions: int) -> nn.Sequential:
    head = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()]
    return nn.Sequential(*head, nn.Flatten(), nn.Linear(64 * 2 * 4, 512), nn.ReLU(), nn.Linear(512, actions))


def main(total_steps: int) -> None:
    random.seed(1)
    torch.manual_seed(1)
    envs = RecordEpisodeStatistics(gym.make_vec("mario_tui/SuperMarioBros-1-1-v0", num_envs=GAMES, stall_steps=50))
    assert isinstance(envs.single_action_space, gym.spaces.Discrete)
    online, target = (q_network(int(envs.single_action_space.n)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer, losses = torch.optim.Adam(online.parameters(), 1e-4), list[float]()
    buffer = deque[tuple[np.ndarray, ...]](maxlen=1000)
    envs.action_space.seed(1)
    obs, _ = envs.reset(seed=1)
    for step in range(GAMES, total_steps + 1, GAMES):
        actions = envs.action_space.sample()
        if random.random() > max(0.05, 1 - 2 * step / total_steps):
            actions = online(torch.tensor(obs) / 255).argmax(1).numpy()
        next_obs, rewards, terminations, _, infos = envs.step(actions)
        last_obs = next_obs.copy()
        if "final_obs" in infos:
            last_obs[infos["_final_obs"]] = np.stack(infos["final_obs"][infos["_final_obs"]])
        buffer.extend(zip(obs, actions, rewards.astype(np.float32), last_obs, terminations, strict=True))
        obs = next_obs
        if step >= LEARNING_STARTS:
            s, a, r, next_s, done = (torch.tensor(np.array(c)) for c in zip(*random.sample(buffer, BATCH), strict=True))
            td_target = r + GAMMA * target(next_s / 255).amax(1).detach() * ~done
            loss = nn.functional.mse_loss(td_target, online(s / 255).gather(1, a[:, None])[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if step % TARGET_EVERY == 0:
            target.load_state_dict(online.state_dict())
    lengths = list(map(int, envs.length_queue))
    print(json.dumps({"steps": step, "updates": len(losses), "loss": losses[-1], "lengths": lengths}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
