"""Tetris: what its options mean for a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.config.capabilities import MOVE_KEYS, SELECT, START, A, B, PersonKeys
from engine.config.features import feature
from engine.config.game import Preset, Spec
from engine.config.run_config import RunConfig
from engine.games.boards.board_game import BoardGame, size_of
from engine.games.tetris.options import PLANES, TetrisOptions
from engine.protocol.outcome import Conditions, Outcome, Result

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from engine.envs.lanes import Curriculum
    from engine.envs.played_game import PersonControls, PlayedGame

_ROTATIONS = 4


class Tetris(BoardGame):
    """See `engine.config.game` and `engine.config.capabilities`."""

    name = "tetris"
    options = TetrisOptions
    networks = ("columns", "afterstates")
    plain_networks = ("columns", "afterstates")
    outcome = Outcome((Result("score", "score"),), judged_by="score")
    own_networks = {
        "columns": "engine.games.tetris.network:ColumnsQNetwork",
        "afterstates": "engine.games.tetris.network:make_afterstates",
    }
    presets = {
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
    }
    lanes = "engine.games.tetris.factory:of_run"
    steps_per_s = 2.5
    keys = PersonKeys(  # the buttons of `engine.extras.playing.tetris`
        {**MOVE_KEYS, "x": A, "z": B, "space": START, "c": SELECT},
        {"arrows or WASD": "move", "up or x": "turn", "z": "turn back", "space": "drop", "c": "hold"},
    )
    other_keys = "in Tetris space drops, c holds"
    limits = ((4, 12), (4, 26))

    def own_defaults(self) -> Mapping[str, Any]:
        return {
            "gamma": 0.97,
            "learning_rate": 1e-3,
            "policy_tau": 0.0005,
            "epsilon": 0.005,  # a wrong placement costs several lines
            "epsilon_steps": 5_000,
            "burnin": 2_000,
            "eval_episodes": 30,
        }

    def spec(self, config: RunConfig) -> Spec:
        options = TetrisOptions.of(config)
        width, height = size_of(options.board)
        return Spec((PLANES + options.next_piece, height, width), _ROTATIONS * width, stack=1, hold=1, masked=True)

    def action_names(self, config: RunConfig) -> list[str]:
        width, _ = size_of(TetrisOptions.of(config).board)
        return [f"{90 * turn}° col {column}" for turn in range(_ROTATIONS) for column in range(1, width + 1)]

    def network(self, config: RunConfig) -> str:
        return "afterstates" if TetrisOptions.of(config).afterstates else "columns"

    def game_of_policy(
        self, policy: Path, metadata: Mapping[str, Any], conditions: Conditions, **others: Any
    ) -> PlayedGame:
        return feature("players", "playing a game")("tetris").of_policy(policy, metadata, conditions)

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        return feature("players", "playing a game")("tetris").of_person(self, controls, **others)

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "board": metadata["board"],
            "afterstates": metadata["network"] == "afterstates",
            "next_piece": metadata.get("next_piece", False),
        }

    def prepare_network(self, config: RunConfig, network: nn.Module) -> None:
        from engine.games.tetris import factory
        from engine.games.tetris.network import AfterstateQNetwork

        if isinstance(network, AfterstateQNetwork):
            network.set_rewards(factory.scaled_gains(config), config.gamma, factory.scaled_costs(config))

    def keeps_gamma(self, config: RunConfig) -> bool:
        return TetrisOptions.of(config).curriculum

    def make_curriculum(self, config: RunConfig, begin: int) -> Curriculum | None:
        from engine.games.tetris.curriculum import RewardCurriculum

        options = TetrisOptions.of(config)
        return RewardCurriculum(options.curriculum_steps, begin) if options.curriculum else None
