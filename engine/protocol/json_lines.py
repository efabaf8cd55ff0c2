"""Messages as the JSON objects that programs read: results of a game stand under their names beside other fields."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.protocol.messages import Episode, Evaluation
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.results import Evaluated, StudentEvaluation, TaskScore


def as_fields(message: msgspec.Struct, outcome: Outcome) -> dict[str, Any]:
    """The fields of a message of a game with this outcome, in the words of the game."""
    fields: dict[str, Any] = msgspec.structs.asdict(message)
    match message:
        case Episode():
            own: dict[str, Any] = {name: _whole(value) for name, value in outcome.named(fields.pop("results")).items()}
            success, task, cleared = (fields.pop(name) for name in ("success", "task", "cleared"))
            if outcome.goal is not None:
                own[outcome.goal.name] = success
            if outcome.tasks:
                own |= {outcome.task: task, "cleared": cleared}
        case Evaluated():
            del fields["outcome"]
            fields["tasks"] = [as_fields(task, outcome) for task in message.tasks]
            own = {}
            for name, found in fields.pop("results").items():
                own |= {f"mean_{name}": found.mean, f"mean_{name}_low": found.low, f"mean_{name}_high": found.high}
        case Evaluation():
            own = mean_keys(outcome.named(fields.pop("results")))
        case TaskScore():
            own = mean_keys(fields.pop("results"))
        case StudentEvaluation():
            fields["tasks"] = [as_fields(task, outcome) for task in message.tasks]
            own = mean_keys(fields.pop("results"))
        case _:
            own = {}
    return fields | own


def _whole(value: float) -> float | int:
    return int(value) if value % 1 == 0 else value
