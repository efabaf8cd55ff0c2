"""What Catch is for a run: its options, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.config.fields import ConfigError, option
from engine.config.following import Following
from engine.config.game import Game, GameOptions, PersonKeys, Preset, Spec
from engine.config.joypad import LEFT, RIGHT
from engine.config.run_config import RunConfig
from engine.envs.played_game import PersonControls, PlayedGame
from engine.evaluation.stepped_game import game_of_person
from engine.protocol.outcome import Goal, Outcome, Result
from plugin_catch.lanes import ACTIONS, CatchLanes


@dataclass(frozen=True, kw_only=True)
class CatchOptions(GameOptions):
    board: str = option("5x6", "environment", "board size in cells, width x height", metavar="WxH")
    paddle: int = option(2, "environment", "width of the paddle in cells", low=1, high=20)
    balls: int = option(20, "environment", "balls of an episode, which a missed one ends", low=1, high=1000)
    brain: str = option("mlp", "learning", "grid: convolutions; mlp: two layers", choices=("grid", "mlp"))


class Catch(Game):
    name = "catch"
    options = CatchOptions
    tasks = "board"
    task_options = ("board", "paddle", "balls")
    network_options = ("board", "brain")
    networks = ("grid", "mlp")
    own_networks = {"mlp": "plugin_catch.network:make_mlp"}
    policy_options = ("board", "paddle", "balls")
    outcome = Outcome((Result("caught", "caught"),), Goal("complete", "complete game"), judged_by="caught")
    presets = {"catch-wide": Preset("a wide board", {"game": "catch", "board": "9x9", "steps": 20_000})}
    person_keys = PersonKeys(
        {"left": LEFT, "a": LEFT, "right": RIGHT, "d": RIGHT}, {"arrows or A and D": "move the paddle"}
    )
    steps_per_s = 4.0
    sample_bytes = 200

    def defaults(self) -> Mapping[str, Any]:
        return {
            "parallel_envs": 16, "buffer_size": 20_000, "burnin": 500, "batch_size": 64, "replay_ratio": 8.0,
            "n_step": 3, "epsilon_steps": 2_000, "policy_tau": 0.0, "learning_rate": 2e-3, "eval_every": 5_000,
        }  # fmt: skip

    def check(self, config: RunConfig) -> None:
        width, _ = _size(config.value("board"))
        if config.value("paddle") > width:
            raise ConfigError("paddle", f"must be at most the board's width, {width}, got {config.value('paddle')}")

    def follow(self, following: Following) -> None:
        width, _ = _size(following.values["board"])
        following.at_most("paddle", width, "board")

    def spec(self, config: RunConfig) -> Spec:
        width, height = _size(config.value("board"))
        return Spec((2, height, width), len(ACTIONS), stack=1, hold=1, masked=False)

    def action_names(self, config: RunConfig) -> list[str]:
        return list(ACTIONS)

    def network(self, config: RunConfig) -> str:
        return str(config.value("brain"))

    def tasks_of(self, value: str) -> tuple[str, ...]:
        return (value,)

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {"board": metadata["board"], "brain": metadata["network"]}

    def make_lanes(self, config: RunConfig, lanes: int, *, seed: int, **_: Any) -> CatchLanes:
        return self.lanes_of_policy({name: config.value(name) for name in self.policy_options}, lanes, seed=seed)

    def lanes_of_policy(self, metadata: Mapping[str, Any], lanes: int, *, seed: int, **_: Any) -> CatchLanes:
        width, height = _size(metadata["board"])
        return CatchLanes(lanes, width, height, paddle=metadata["paddle"], balls=metadata["balls"], seed=seed)

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        from plugin_catch.person import CatchPerson

        return game_of_person(self, CatchPerson, controls, **others)


def _size(board: str) -> tuple[int, int]:
    sides = board.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and 2 <= int(side) <= 20 for side in sides):
        raise ConfigError("board", f"must be WIDTHxHEIGHT, both 2 to 20, got {board!r}")
    width, height = map(int, sides)
    return width, height
