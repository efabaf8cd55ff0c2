"""Named sets of options: earlier programs and a paper, to compare with the defaults, and trained policies.

The configuration file and the command line override a preset.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.config.fields import must_be_one_of
from engine.config.game import Preset
from engine.config.games import described, games
from engine.errors import UserError

_OF_ALL: dict[str, Preset] = {
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
}
"""`parallel-classic` and `apex-classic` are the defaults of earlier Mario trainers with those architectures."""


@cache
def presets() -> dict[str, Preset]:
    """All presets by name. Those of a game are how its policies of these names were trained
    (bench/experiments/policies.md)."""
    known = dict(_OF_ALL)
    for game in games():
        known |= {name: preset for name, preset in described(game).presets.items() if name not in known}
    return known


def preset(name: str) -> dict[str, Any]:
    """The options of a preset. Raises `UserError` if the name is unknown."""
    if name not in presets():
        raise UserError(f"--preset {must_be_one_of(presets(), name)}")
    return dict(presets()[name].options)
