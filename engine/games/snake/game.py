"""Snake: what its options mean for a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.config.game import Distillation, PersonKeys, Preset, Spec
from engine.config.joypad import MOVE_KEYS
from engine.config.run_config import RunConfig
from engine.games.boards.board_game import BoardGame, size_of
from engine.games.snake.options import SnakeOptions, options_of
from engine.games.snake.planes import PLANES
from engine.protocol.outcome import Goal, Outcome, Result

if TYPE_CHECKING:
    import torch

    from engine.envs.lanes import Lanes
    from engine.envs.played_game import PersonControls, PlayedGame

_MOVES = ("up", "right", "down", "left")


class Snake(BoardGame):
    """See `engine.config.game`."""

    name = "snake"
    options = SnakeOptions
    task_options = ("reward", "board", "death_penalty", "step_penalty")
    network_options = ("board", "paths")
    networks = ("grid", "paths")
    outcome = Outcome((Result("score", "score"),), Goal("flag", "full board"), judged_by="score")
    own_networks = {"paths": "engine.games.snake.network:make_paths"}
    policy_options = ("board", "reward", "death_penalty")
    presets = {
        "snake-12x12": Preset(
            "fills 75 of 100 boards after an hour", {"game": "snake", "runner": "single", "steps": 6_000_000}
        ),
    }
    person_keys = PersonKeys(MOVE_KEYS, {"arrows or WASD": "steer"})
    steps_per_s = 8.0
    distillation = Distillation(network="grid", lanes=32, copied=("reward", "death_penalty"))  # 32 take as long as one
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
        width, height = size_of(options_of(config).board)
        return Spec((PLANES, height, width), len(_MOVES), stack=1, hold=1, masked=False)

    def action_names(self, config: RunConfig) -> list[str]:
        return list(_MOVES)

    def network(self, config: RunConfig) -> str:
        return "paths" if options_of(config).paths else "grid"

    def make_lanes(
        self,
        config: RunConfig,
        lanes: int,
        *,
        threads: int,
        seed: int,
        device: torch.device | None = None,
        once: bool = False,
    ) -> Lanes:
        from engine.games.snake import factory

        options = options_of(config)
        in_training: dict[str, Any] = (
            {} if once else {"late_starts": options.late_starts, "step_penalty": options.step_penalty}
        )
        return factory.make(lanes, seed=seed, device=device, **_stored(vars(options)), **in_training)

    def lanes_of_policy(
        self, metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any
    ) -> Lanes:
        from engine.games.snake import factory

        shape = metadata.get("frame_shape")
        return factory.make(lanes, seed=seed, frame_size=shape and tuple(shape[-2:]), **_stored(metadata))

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        from engine.evaluation.stepped_game import game_of_person
        from engine.games.snake.person import SnakePerson

        return game_of_person(self, SnakePerson, controls, **others)

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {"board": metadata["board"], "paths": metadata["network"] == "paths"}


def _stored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that a policy is played with."""
    return {name: options[name] for name in ("board", "death_penalty")}
