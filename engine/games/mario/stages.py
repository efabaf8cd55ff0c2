"""The stages of Super Mario Bros, and the option values that select them."""

from __future__ import annotations

from engine.errors import UserError

STAGES = tuple(f"{world}-{stage}" for world in range(1, 9) for stage in range(1, 5))
WHOLE_GAME, RANDOM_STAGES = "game", "random"


def stages_of(name: str) -> tuple[str, ...]:
    """Stages at which episodes begin for `1-2`, `1-1,1-2`, `game` or `random`.

    Raises `UserError` that continues the option's name: `must be ..., got ...`.
    """
    if name in (WHOLE_GAME, RANDOM_STAGES):
        return STAGES if name == RANDOM_STAGES else ("1-1",)
    stages = tuple(part.strip() for part in name.split(","))
    if not set(stages) <= set(STAGES) or len(set(stages)) < len(stages):
        raise UserError(f"must be 1-1 to 8-4, game, random, or different stages such as 1-1,1-2, got {name!r}")
    return stages
