"""Named sets of options: earlier programs and a paper, to compare with the defaults, and trained policies.

The configuration file and the command line override a preset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.config.fields import must_be_one_of
from engine.errors import UserError


@dataclass(frozen=True)
class Preset:
    """A set of options by field name, and what they are, in a few words."""

    help: str
    options: dict[str, Any]


PRESETS: dict[str, Preset] = {
    "parallel-classic": Preset(
        "an earlier trainer, 4 workers",
        {
            "runner": "parallel",
            "num_processes": 4,
            "parallel_envs": 1,
            "batch_size": 64,
            "learning_rate": 5e-4,
            "buffer_size": 400_000,
            "burnin": 100_000,
            "episodes": 2_000,
            "sync_every": 1_000,
            "tau": 1.0,
            "policy_tau": 0.0,
            "learning_rate_schedule": "constant",
            "double_q": True,
            "advantage_learning": 0.0,
            "save_every": 5_000,
            "prioritized_replay": False,
        },
    ),
    "apex-classic": Preset(
        "an earlier trainer, 4 actors",
        {
            "runner": "apex",
            "num_actors": 4,
            "parallel_envs": 1,
            "batch_size": 512,
            "buffer_size": 1_000_000,
            "learning_rate": 0.00025,
            "alpha": 0.6,
            "beta": 0.4,
            "beta_annealing": 0.001,
            "sync_every": 1_000,
            "tau": 1.0,
            "policy_tau": 0.0,
            "learning_rate_schedule": "constant",
            "double_q": True,
            "advantage_learning": 0.0,
            "save_every": 5_000,
        },
    ),
    # Horgan et al. 2018, appendix C: actors pull weights every 400 steps; the paper updates
    # the target network every 2,500 updates. 9.7k samples and 12.5k inserts per second.
    "apex-paper": Preset(
        "Horgan et al. 2018, 14 actors",
        {
            "runner": "apex",
            "num_actors": 14,
            "batch_size": 512,
            "buffer_size": 2_000_000,
            "burnin": 50_000,
            "n_step": 3,
            "gamma": 0.99,
            "learning_rate": 5e-4,
            "alpha": 0.6,
            "beta": 0.4,
            "beta_annealing": 0.0,
            "replay_ratio": 0.776,
            "epsilon": 0.4,
            "sync_every": 2_500,
            "pull_every": 400,
            "tau": 1.0,
            "policy_tau": 0.0,
            "learning_rate_schedule": "constant",
            "double_q": True,
            "advantage_learning": 0.0,
        },
    ),
    "tetris-10x20": Preset(
        "1,288 lines a game after 15 minutes", {"game": "tetris", "runner": "parallel", "steps": 4_000_000}
    ),
    "tetris-7x14": Preset(
        "from board and piece, without afterstates",
        {
            "game": "tetris",
            "board": "7x14",
            "runner": "single",
            "afterstates": False,
            "reward": "lines",
            "max_pieces": 400,
            "parallel_envs": 64,
            "buffer_size": 400_000,
            "replay_ratio": 4.0,
            "batch_size": 256,
            "learning_rate": 5e-4,
            "learning_rate_schedule": "constant",
            "sync_every": 250,
            "tau": 1.0,
            "policy_tau": 0.0,
            "double_q": True,
            "prioritized_replay": True,
            "epsilon": 0.4,
            "epsilon_steps": 100_000,
            "burnin": 5_000,
            "steps": 2_000_000,
        },
    ),
    "snake-12x12": Preset(
        "fills 75 of 100 boards after an hour", {"game": "snake", "runner": "single", "steps": 6_000_000}
    ),
}
"""`parallel-classic` and `apex-classic` are the defaults of earlier Mario trainers with those architectures. Those of
Tetris and Snake are how the policies of these names were trained (docs/policies.md)."""


def preset(name: str) -> dict[str, Any]:
    """The options of a preset. Raises `UserError` if the name is unknown."""
    if name not in PRESETS:
        raise UserError(f"--preset {must_be_one_of(PRESETS, name)}")
    return dict(PRESETS[name].options)
