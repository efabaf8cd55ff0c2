"""The stages of Super Mario Bros, and how one or several of them are named."""

from __future__ import annotations

from engine.errors import UserError

STAGES = tuple(f"{world}-{stage}" for world in range(1, 9) for stage in range(1, 5))
WHOLE_GAME, RANDOM_STAGES = "game", "random"


def stages_of(name: str) -> tuple[str, ...]:
    """Where episodes begin under `1-2`, `1-1,1-2`, `game` or `random`. Raises `UserError` naming what is accepted."""
    if name in (WHOLE_GAME, RANDOM_STAGES):
        return STAGES if name == RANDOM_STAGES else ("1-1",)
    stages = tuple(part.strip() for part in name.split(","))
    if not set(stages) <= set(STAGES) or len(set(stages)) < len(stages):
        raise UserError(f"{name!r} is not accepted; accepted: 1-1 to 8-4, game, random, or several, each once: 1-1,1-2")
    return stages
