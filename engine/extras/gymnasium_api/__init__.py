"""Gymnasium environments for all games. Importing this package registers their ids, and nothing heavy.

Gymnasium 1.x loads no plugins of installed packages; an id that names this package needs no import:

    gymnasium.make("engine.games.gymnasium_api:mario_tui/SuperMarioBros-1-1-v0", actions="simple")
"""

from __future__ import annotations

import gymnasium

from engine.games import BUILT_IN
from engine.games.mario.actions import RANDOM_STAGES, STAGES, WHOLE_GAME


def _register(name: str, module: str, game: str, **options: str) -> None:
    """Register `mario_tui/NAME`, unless it is, for the environments of a game in a module of this package."""
    if (identifier := f"mario_tui/{name}") not in gymnasium.registry:
        gymnasium.register(
            identifier,
            entry_point=f"{__name__}.{module}:{game}Env",
            vector_entry_point=f"{__name__}.{module}:{game}VectorEnv",
            kwargs=options,
        )


_register("SuperMarioBros-v0", "mario", "Mario", stage=WHOLE_GAME)
_register("SuperMarioBrosRandomStages-v0", "mario", "Mario", stage=RANDOM_STAGES)
for _stage in STAGES:
    _register(f"SuperMarioBros-{_stage}-v0", "mario", "Mario", stage=_stage)
for _game, _id in (("snake", "Snake-v1"), ("tetris", "Tetris-v0")):
    if _game in BUILT_IN:
        _register(_id, "boards", _game.capitalize())
