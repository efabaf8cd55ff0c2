"""Other packages that learn Snake and Tetris, for bench.field.

    python -m bench.learners LEARNER GAME BOARD MINUTES SEED

Stable-Baselines3, Tianshou, TorchRL and a loop in CleanRL's style learn with our environments through Gymnasium, with
one network and one set of options: DQN, batches of 64, one sample learned per step, gamma 0.97, learning rate 5e-4,
uniform replay of 100,000 transitions, epsilon from 1 to 0.05 in 50,000 steps. Jumanji's A2C learns with Jumanji's own
environments and options. Every score is printed as a line of JSON: the mean of greedy games (of A2C: of greedy or
sampled ones, whichever is higher).
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bench.judge import IDS, Judge, Task, TimeOver
from bench.jumanji_a2c import jumanji_a2c
from bench.networks import HIDDEN, Features, greedy, q_network

BATCH, GAMMA, LEARNING_RATE, REPLAY = 64, 0.97, 5e-4, 100_000
EPSILON, EPSILON_STEPS, BURNIN, TARGET_EVERY = 0.05, 50_000, 5_000, 250  # the last: in updates
GAMES = 16  # played at once


def epsilon(env_steps: int) -> float:
    return max(EPSILON, 1 - (1 - EPSILON) * env_steps / EPSILON_STEPS)


def cleanrl_style(task: Task, minutes: float) -> None:
    """A loop in one function, as in CleanRL's dqn.py, which plays Tetris by legal actions only."""
    env = gymnasium.make_vec(IDS[task.game], GAMES, vectorization_mode="vector_entry_point", **task.options())
    one = task.environment()
    online, target = q_network(one), q_network(one)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), LEARNING_RATE)
    judge = Judge(partial(task.score, partial(greedy, online)), minutes)
    random = np.random.default_rng(task.seed)
    shape = one.observation_space.shape
    assert shape is not None
    boards, next_boards = (np.zeros((REPLAY, *shape), np.uint8) for _ in range(2))
    chosen, rewards, ended = np.zeros(REPLAY, np.int64), np.zeros(REPLAY, np.float32), np.zeros(REPLAY, np.float32)
    assert isinstance(one.action_space, gymnasium.spaces.Discrete)
    next_masks = np.zeros((REPLAY, int(one.action_space.n)), np.bool_)
    obs, infos = env.reset(seed=task.seed)
    steps = updates = learned = 0
    while True:
        masks = legal(task, infos)
        actions = greedy(online, obs, masks)
        explore = random.random(GAMES) < epsilon(steps)
        actions[explore] = [random.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in masks[explore]]
        next_obs, reward, terminated, _, infos = env.step(actions)
        last, last_masks = next_obs.copy(), legal(task, infos).copy()
        for game in np.flatnonzero(infos.get("_final_obs", np.zeros(GAMES))):
            last[game] = infos["final_obs"][game]
            last_masks[game] = legal(task, infos["final_info"])[game]
        at = np.arange(steps, steps + GAMES) % REPLAY
        boards[at], next_boards[at], next_masks[at] = obs, last, last_masks
        chosen[at], rewards[at], ended[at] = actions, reward * scale(task), terminated
        obs, steps = next_obs, steps + GAMES
        judge.after(steps)
        while steps > BURNIN and learned < steps - BURNIN:
            picked = random.integers(0, min(steps, REPLAY), BATCH)
            with torch.no_grad():
                q = target(torch.from_numpy(next_boards[picked]))
                best = q.masked_fill(~torch.from_numpy(next_masks[picked]), -1e9).amax(1)
                goal = torch.from_numpy(rewards[picked]) + GAMMA * best * (1 - torch.from_numpy(ended[picked]))
            value = online(torch.from_numpy(boards[picked])).gather(1, torch.from_numpy(chosen[picked])[:, None])
            optimizer.zero_grad()
            F.smooth_l1_loss(value.squeeze(1), goal).backward()
            optimizer.step()
            updates, learned = updates + 1, learned + BATCH
            if updates % TARGET_EVERY == 0:
                target.load_state_dict(online.state_dict())


def legal(task: Task, infos: dict[str, Any]) -> NDArray[np.bool_]:
    """The actions from which a game's player chooses, bool [games, actions]. In Snake, it may crash."""
    masks: NDArray[np.bool_] = infos["action_mask"]
    return masks if task.game == "tetris" else np.ones_like(masks)


def scale(task: Task) -> float:
    """Factor of the rewards: a placement in Tetris gives 1 and more."""
    return 0.1 if task.game == "tetris" else 1.0


def scaled(task: Task) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TransformReward(task.environment(), lambda reward: float(reward) * scale(task))


def stable_baselines3(task: Task, minutes: float) -> None:
    """Its DQN does not know of legal actions: an illegal one ends a game of Tetris."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Extractor(BaseFeaturesExtractor):
        def __init__(self, space: Any) -> None:
            features = Features(space.shape)
            super().__init__(space, features.width)
            self.features = features

        def forward(self, boards: Tensor) -> Tensor:
            seen: Tensor = self.features(boards)
            return seen

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            judge.after(self.num_timesteps)
            return True

    model = DQN(
        "MlpPolicy", make_vec_env(partial(scaled, task), GAMES, seed=task.seed), seed=task.seed, device="cpu",
        batch_size=BATCH, gamma=GAMMA, learning_rate=LEARNING_RATE, buffer_size=REPLAY, learning_starts=BURNIN,
        train_freq=BATCH // GAMES, gradient_steps=1, target_update_interval=TARGET_EVERY * BATCH,
        exploration_fraction=EPSILON_STEPS / 1e9, exploration_final_eps=EPSILON,
        policy_kwargs={
            "features_extractor_class": Extractor, "net_arch": [HIDDEN],
            "normalize_images": False,  # `Features` does that
        },
    )  # fmt: skip
    judge = Judge(lambda: task.score(lambda boards, _: model.predict(boards, deterministic=True)[0]), minutes)
    model.learn(int(1e9), callback=Watch(), log_interval=1_000_000)


def tianshou(task: Task, minutes: float) -> None:
    """Its DQN knows legal actions only from observations that hold them, which ours do not."""
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, CollectStats, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.torch_utils import policy_within_training_step

    torch.manual_seed(task.seed)
    one = task.environment()
    envs = DummyVectorEnv([partial(scaled, task)] * GAMES)
    envs.seed(task.seed)
    network = q_network(one)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[Tensor, Any]:
            return self.network(torch.as_tensor(obs)), state

    policy = DiscreteQLearningPolicy(
        model=Model(), action_space=one.action_space, observation_space=one.observation_space, eps_training=1.0
    )
    algorithm: Any = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=LEARNING_RATE), gamma=GAMMA, target_update_freq=TARGET_EVERY
    )
    replay = VectorReplayBuffer(REPLAY, GAMES)
    collector = Collector[CollectStats](algorithm, envs, replay, exploration_noise=True)
    collector.reset()
    with policy_within_training_step(policy):
        collector.collect(n_step=BURNIN // GAMES * GAMES)

    judge = Judge(lambda: task.score(lambda boards, _: greedy(network, boards)), minutes)

    def between(epoch: int, env_steps: int) -> None:
        judge.after(env_steps + BURNIN)
        policy.set_eps_training(epsilon(env_steps + BURNIN))

    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            test_collector=None,
            max_epochs=10_000,
            epoch_num_steps=100_000,
            collection_step_num_env_steps=BATCH,
            update_step_num_gradient_steps_per_sample=1 / BATCH,
            batch_size=BATCH,
            training_fn=between,
            show_progress=False,
            verbose=False,
        )
    )


def torchrl(task: Task, minutes: float) -> None:
    """Its DQN, put together as in its example for CartPole; it does not know of legal actions."""
    from tensordict.nn import TensorDictSequential
    from torchrl.collectors import Collector
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs import GymWrapper, SerialEnv
    from torchrl.modules import EGreedyModule, QValueActor
    from torchrl.objectives import DQNLoss, HardUpdate

    torch.manual_seed(task.seed)
    envs = SerialEnv(GAMES, lambda: GymWrapper(scaled(task), categorical_action_encoding=True))
    envs.set_seed(task.seed)
    network = q_network(task.environment())
    actor = QValueActor(network, in_keys=["observation"], spec=envs.action_spec_unbatched, action_space="categorical")
    explorer = EGreedyModule(actor.spec, eps_init=1.0, eps_end=EPSILON, annealing_num_steps=EPSILON_STEPS)
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(REPLAY), batch_size=BATCH)
    loss = DQNLoss(actor, loss_function="smooth_l1", delay_value=True, action_space="categorical")
    loss.make_value_estimator(gamma=GAMMA)
    target = HardUpdate(loss, value_network_update_interval=TARGET_EVERY)
    optimizer = torch.optim.Adam(loss.parameters(), LEARNING_RATE)
    judge = Judge(lambda: task.score(lambda boards, _: greedy(network, boards)), minutes)
    steps = 0
    for played in Collector(
        envs, TensorDictSequential(actor, explorer), frames_per_batch=BATCH, init_random_frames=BURNIN
    ):
        replay.extend(played.reshape(-1))
        explorer.step(played.numel())
        steps += played.numel()
        judge.after(steps)
        if steps > BURNIN:
            optimizer.zero_grad()
            loss(replay.sample())["loss"].backward()
            optimizer.step()
            target.step()


class Learner(Protocol):
    def __call__(self, task: Task, minutes: float) -> None: ...


LEARNERS: dict[str, Learner] = {
    "stable-baselines3": stable_baselines3,
    "tianshou": tianshou,
    "torchrl": torchrl,
    "cleanrl-style": cleanrl_style,
    "jumanji-a2c": jumanji_a2c,
}
NEEDED = {"stable-baselines3": "stable_baselines3", "tianshou": "tianshou", "torchrl": "torchrl",
          "cleanrl-style": "torch", "jumanji-a2c": "rlax"}  # fmt: skip


if __name__ == "__main__":
    learner, game, board, minutes, seed = sys.argv[1:]
    with contextlib.suppress(TimeOver), contextlib.redirect_stdout(sys.stderr):
        LEARNERS[learner](Task(game, board, int(seed)), float(minutes))
