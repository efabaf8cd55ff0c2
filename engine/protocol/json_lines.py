"""Messages as the JSON objects that programs read: results of a game stand under their names beside other fields."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from engine.protocol.messages import Episode, Evaluation
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.results import Evaluated, StudentEvaluation, TaskScore

_REPLACED = {"results", "success", "task", "cleared"}
"""Fields that stand in the words of the game instead."""


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


def keys_twice(outcome: Outcome) -> list[str]:
    """Names of results, goal and task that other keys of the same JSON object have."""
    names = [result.name for result in outcome.results]
    means = [*mean_keys(dict.fromkeys(names, 0.0))]
    of_episode = [*names, *([outcome.goal.name] if outcome.goal is not None else [])]
    if outcome.tasks:
        of_episode += [outcome.task, "cleared"]
    own: dict[type[msgspec.Struct], list[str]] = {
        Episode: of_episode,
        Evaluation: means,
        Evaluated: [*means, *(f"{mean}_{end}" for mean in means for end in ("low", "high"))],
    }
    found: list[str] = []
    for kind, keys in own.items():
        others = {"event", *(field.name for field in msgspec.structs.fields(kind))} - _REPLACED
        found += [key for key, count in Counter([*keys, *others]).items() if count > 1]
    return found


def _whole(value: float) -> float | int:
    return int(value) if value % 1 == 0 else value
