"""Names that a game, or a loop outside the program, may give to what its episodes yield."""

from __future__ import annotations

from engine.protocol.messages import Episode
from engine.protocol.outcome import Outcome

_TAKEN = {"event", *Episode.__struct_fields__, "return", "clear"} - {"results", "success", "task"}
"""Names that stand in JSON lines or TensorBoard tags for something else: a result `return` would be `mean_return`."""


def names_of(outcome: Outcome) -> list[str]:
    """Of results, goal and tasks."""
    goal = [] if outcome.goal is None else [outcome.goal.name]
    return [*(result.name for result in outcome.results), *goal, *([outcome.task] if outcome.tasks else [])]


def check_names(outcome: Outcome) -> None:
    """Raises `ValueError` if a name is empty, or stands for something else as well."""
    names = names_of(outcome)
    for place, name in enumerate(names):
        if not name:
            raise ValueError("a name is empty")
        if name in _TAKEN or name in names[:place]:
            raise ValueError(f"the name {name!r} stands for something else already")
