"""Games on boards for a person: the lanes of a policy, at the game's pace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.config.game import Game
from engine.config.reading import make_config
from engine.envs.factory import describe_task
from engine.envs.lanes import Lanes
from engine.envs.played_game import PersonControls
from engine.evaluation.stepped_game import Player, SteppedGame


def game_of_person(
    game: Game, new_player: Callable[[Lanes, int], Player], controls: PersonControls, **options: Any
) -> SteppedGame:
    """The game of a person, with these options of the game."""
    metadata = describe_task(make_config({"game": game.name, **options}))
    return SteppedGame(metadata, new_player, steps_per_s=game.steps_per_s, presses=controls.presses)
