"""Snake: what its options mean for a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from engine.config.capabilities import MOVE_KEYS, CommandOption, PersonKeys
from engine.config.features import feature
from engine.config.game import Preset, Spec
from engine.config.run_config import RunConfig
from engine.games.boards.board_game import BoardGame, size_of
from engine.games.snake.options import PLANES, SnakeOptions
from engine.protocol.outcome import Goal, Outcome, Result

if TYPE_CHECKING:
    from engine.envs.lanes import Lanes
    from engine.envs.played_game import PersonControls, PlayedGame

_MOVES = ("up", "right", "down", "left")


class Snake(BoardGame):
    """See `engine.config.game` and `engine.config.capabilities`."""

    name = "snake"
    options = SnakeOptions
    networks = ("grid", "paths")
    outcome = Outcome((Result("score", "score"),), Goal("flag", "full board"), judged_by="score")
    own_networks = {"paths": "engine.games.snake.network:make_paths"}
    presets = {
        "snake-12x12": Preset(
            "fills 75 of 100 boards after an hour", {"game": "snake", "runner": "single", "steps": 6_000_000}
        )
    }
    lanes = "engine.games.snake.factory:of_run"
    played_options: ClassVar[Mapping[str, CommandOption]] = {}
    keys = PersonKeys(MOVE_KEYS, {"arrows or WASD": "steer"})
    steps_per_s = 8.0
    limits = ((3, 30), (3, 30))

    def own_defaults(self) -> Mapping[str, Any]:
        return {
            "parallel_envs": 64,
            "buffer_size": 400_000,
            "gamma": 0.98,
            "final_gamma": 0.99,  # before, the agent would rather eat fast than fill the board
            "learning_rate": 5e-4,
            "policy_tau": 0.0007,
            "double_q": True,
            "epsilon": 0.1,  # a long snake does not survive many wrong moves
            "epsilon_steps": 20_000,
            "burnin": 3_000,
            "eval_episodes": 50,
        }

    def spec(self, config: RunConfig) -> Spec:
        width, height = size_of(SnakeOptions.of(config).board)
        return Spec((PLANES, height, width), len(_MOVES), stack=1, hold=1, masked=False)

    def action_names(self, config: RunConfig) -> list[str]:
        return list(_MOVES)

    def network(self, config: RunConfig) -> str:
        return "paths" if SnakeOptions.of(config).paths else "grid"

    def lanes_of_policy(
        self, metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any
    ) -> Lanes:
        from engine.games.snake import factory

        return factory.of_policy(metadata, lanes, seed=seed)

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        return feature("players", "playing a game")("snake").of_person(self, controls, **others)

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {"board": metadata["board"], "paths": metadata["network"] == "paths"}
