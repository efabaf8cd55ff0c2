"""What Catch is for a run: its options, and what follows from them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.config.capabilities import LEFT, RIGHT, PersonKeys
from engine.config.fields import ConfigError, option
from engine.config.game import Game, GameOptions, Preset, Spec
from engine.config.reading import Following
from engine.config.run_config import RunConfig
from engine.envs.played_game import PersonControls, PlayedGame
from engine.protocol.outcome import Goal, Outcome, Result

ACTIONS = ("left", "stay", "right")


@dataclass(frozen=True, kw_only=True)
class CatchOptions(GameOptions):
    board: str = option(
        "5x6", "environment", "board size in cells, width x height", metavar="WxH", roles=("task", "network", "policy")
    )
    paddle: int = option(2, "environment", "width of the paddle in cells", low=1, high=20, roles=("task", "policy"))
    balls: int = option(
        20, "environment", "balls of an episode, which a missed one ends", low=1, high=1000, roles=("task", "policy")
    )
    brain: str = option(
        "mlp", "learning", "grid: convolutions; mlp: two layers", choices=("grid", "mlp"), roles=("network",)
    )


class Catch(Game):
    name = "catch"
    options = CatchOptions
    tasks = "board"
    outcome = Outcome((Result("caught", "caught"),), Goal("complete", "complete game"), judged_by="caught")
    networks = ("grid", "mlp")
    own_networks = {"mlp": "plugin_catch.network:make_mlp"}
    presets = {"catch-wide": Preset("a wide board", {"game": "catch", "board": "9x9", "steps": 20_000})}
    lanes = "plugin_catch.lanes:make_lanes"
    steps_per_s = 4.0

    def defaults(self) -> Mapping[str, Any]:
        return {
            "parallel_envs": 16, "buffer_size": 20_000, "burnin": 500, "batch_size": 64, "replay_ratio": 8.0,
            "n_step": 3, "epsilon_steps": 2_000, "policy_tau": 0.0, "learning_rate": 2e-3, "eval_every": 5_000,
        }  # fmt: skip

    def check(self, config: RunConfig) -> None:
        width, _ = size_of(config.value("board"))
        if config.value("paddle") > width:
            raise ConfigError("paddle", f"must be at most the board's width, {width}, got {config.value('paddle')}")

    def follow(self, following: Following) -> None:
        width, _ = size_of(following.values["board"])
        following.at_most("paddle", width, "board")

    def spec(self, config: RunConfig) -> Spec:
        width, height = size_of(config.value("board"))
        return Spec((2, height, width), len(ACTIONS))

    def action_names(self, config: RunConfig) -> list[str]:
        return list(ACTIONS)

    def network(self, config: RunConfig) -> str:
        return str(config.value("brain"))

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {"board": metadata["board"], "brain": metadata["network"]}

    # A person can play it.

    person_options: Mapping[str, Any] = {}
    other_keys = ""

    def keys_of_person(self, config: RunConfig) -> PersonKeys:
        return PersonKeys(
            {"left": LEFT, "a": LEFT, "right": RIGHT, "d": RIGHT}, {"arrows or A and D": "move the paddle"}
        )

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        from engine.extras.playing.stepped_game import game_of_person
        from plugin_catch.person import CatchPerson

        return game_of_person(self, CatchPerson, controls, **others)


def size_of(board: str) -> tuple[int, int]:
    sides = board.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and 2 <= int(side) <= 20 for side in sides):
        raise ConfigError("board", f"must be WIDTHxHEIGHT, both 2 to 20, got {board!r}")
    width, height = map(int, sides)
    return width, height
