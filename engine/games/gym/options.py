"""The options of Gymnasium environments."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.fields import option
from engine.config.game import GameOptions
from engine.config.run_config import RunConfig
from engine.games.gym.spaces import CARTPOLE

FALLBACK_STEPS = 108_000  # the frames of Machado et al. 2018 for Atari
"""Own steps after which episodes of an environment without a limit are cut off; otherwise one that goes round in
circles would never end, and with it an evaluation."""


@dataclass(frozen=True, kw_only=True)
class GymOptions(GameOptions):
    """Options of Gymnasium environments."""

    env: str = option(
        "CartPole-v1",
        "environment",
        "Gymnasium id; MODULE:ID imports the module first, which may be a file in the current folder. --game gym:ID "
        "says the same",
        metavar="ID",
        usual=("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3", "FrozenLake-v1", "MinAtar/Breakout-v1"),
    )
    env_args: str = option(
        "{}",
        "environment",
        """arguments of the environment, a JSON object: '{"is_slippery": false}'; in a file also a table""",
        metavar="JSON",
    )
    env_import: str = option(
        "none", "environment", "MODULE:FUNCTION that registers ids, called before the environment is made"
    )
    observation: str = option(
        "auto",
        "environment",
        "how images are seen: WxH-gray or WxH-color (84x84-gray), or raw; auto: 84x84-gray, small ones raw",
        usual=("auto", "raw", "84x84-gray", "84x84-color"),
        metavar="VIEW",
    )
    frame_stack: int | None = option(
        None, "environment", "frames in an observation; none: 4 of images that are resized, else 1", low=1, high=16
    )
    normalize: bool = option(
        False,
        "environment",
        "shift and scale each number of a vector by its mean and deviation in 10,000 random steps before the run",
    )
    frame_skip: int = option(1, "environment", "environment's own steps per action", low=1, high=60)
    max_of_two: bool = option(
        False, "environment", "an image is the brighter of the last two frames, for games that flicker"
    )
    reward: str = option("raw", "environment", "raw, or sign (Mnih et al. 2015: -1, 0 or 1)", choices=("raw", "sign"))
    reward_scale: float = option(
        1.0, "environment", "factor of rewards for the agent; returns are shown without it", low=1e-6, high=1e6
    )
    sticky_actions: float = option(
        0.0,
        "environment",
        "probability of repeating the previous action in each of the environment's own steps (Machado et al. 2018: "
        "0.25)",
        low=0.0,
        high=0.99,
    )
    noop_max: int = option(
        0,
        "environment",
        "maximum number of steps with action 0 at the start of an episode (Mnih et al. 2015: 30)",
        low=0,
        high=255,
    )
    life_ends: bool = option(
        False, "environment", "the loss of a life ends what the agent learns from, though the episode goes on"
    )
    max_episode_steps: int | None = option(
        None,
        "environment",
        f"steps after which an episode is cut off; none: the limit that it is registered with, else {FALLBACK_STEPS:,}",
        low=1,
    )
    network: str = option(
        "auto",
        "learning",
        "mlp (vectors), grid (small images), nature, small or impala (images); MODULE:CLASS: your own; auto: mlp, grid "
        "or nature",
        usual=("auto", "mlp", "grid", "nature", "small", "impala"),
    )
    spaces: str = option(CARTPOLE, "environment", "what the environment has told of its spaces", hidden=True)


def options_of(config: RunConfig) -> GymOptions:
    """The options of a run of a Gymnasium environment."""
    assert isinstance(config.game_options, GymOptions)
    return config.game_options
