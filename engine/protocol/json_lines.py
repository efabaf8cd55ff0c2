"""Messages as the JSON objects that programs read: results of a game stand under their names beside other fields.

`--log-format json` prints lines of events, the sink `json-lines` writes them; commands print what they report. A game,
or a loop outside the program, may not give its results names that stand for something else (`check_names`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.protocol.messages import (
    Alert,
    Changed,
    Episode,
    Evaluation,
    Event,
    Failed,
    FinalEvaluation,
    Finished,
    Log,
    Mean,
    Phase,
    Progress,
    Saved,
    Summary,
)
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.results import Evaluated, Interval, StudentEvaluation, TaskScore
from engine.runtime.formats import json_line


class Gap(msgspec.Struct, frozen=True):
    """Events are missing from the output, because its reader was too slow: how many of each kind."""

    missing: dict[str, int]


JSON_EVENTS: dict[type[msgspec.Struct], tuple[str, tuple[str, ...]]] = {
    Progress: ("progress", ("replay", "wants", "not_finite")),
    Episode: ("episode", ()),
    Evaluation: ("evaluation", ()),
    FinalEvaluation: ("final_evaluation", ()),
    Phase: ("phase", ()),
    Changed: ("change", ()),
    Saved: ("checkpoint", ()),
    Log: ("warning", ()),
    Alert: ("alert", ()),
    Gap: ("gap", ()),
    Summary: ("summary", ()),
    Failed: ("failed", ("traceback", "usage", "final")),
}
"""The events that have a line, its name, and the fields that it leaves out."""


EVENT_NAMES = tuple(name for name, _ in JSON_EVENTS.values())
ALWAYS = ("gap", "summary", "failed")
"""Events that are told whichever others are wanted: what is missing of these, and how the run ended."""
_OF_GOALS = ("clears", "clear_rate", "clear_rate_low", "clear_rate_high")


def name_of(event: Event | Gap) -> str:
    """The name of an event in its line; empty if it has none."""
    content = event.summary if isinstance(event, Finished) else event
    name, _ = JSON_EVENTS.get(type(content), ("", ()))
    return name


def line_of(event: Event | Gap, outcome: Outcome) -> str | None:
    """The line of an event of a game with this outcome, without a line break; None if it has none."""
    content = event.summary if isinstance(event, Finished) else event
    if type(content) not in JSON_EVENTS:
        return None
    kind, left_out = JSON_EVENTS[type(content)]
    fields = {name: value for name, value in as_fields(content, outcome).items() if name not in left_out}
    return json_line({"event": kind, **_without_nan(fields)})


def _without_nan(value: Any) -> Any:
    """The value, or object of values, with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
            fields |= {name: fields[name] or None for name in ("stage", "emulator")}
            fields["tasks"] = [as_fields(task, outcome) for task in message.tasks]
            own = interval_keys(mean_keys(fields.pop("results")))
        case Evaluation():
            own = mean_keys(outcome.named(fields.pop("results")))
        case FinalEvaluation():
            fields["clear_rate"] = message.clears / message.episodes if message.episodes else None
            means = {"mean_return": fields.pop("mean_return"), **mean_keys(outcome.named(fields.pop("results")))}
            own = interval_keys(means)
        case Summary():
            own = {"result": None if message.result is None else as_fields(message.result, outcome)}
        case TaskScore():
            own = mean_keys(fields.pop("results"))
        case StudentEvaluation():
            fields["tasks"] = [as_fields(task, outcome) for task in message.tasks]
            own = mean_keys(fields.pop("results"))
        case _:
            own = {}
    if outcome.goal is None:
        fields |= {name: None for name in _OF_GOALS if name in fields}
    return fields | own


def interval_keys(means: Mapping[str, Mean | Interval]) -> dict[str, Any]:
    """Means with the ends of their intervals, by the keys that they have in JSON lines."""
    return {
        key: value
        for name, found in means.items()
        for key, value in ((name, found.mean), (f"{name}_low", found.low), (f"{name}_high", found.high))
    }


def _whole(value: float) -> float | int:
    return int(value) if value % 1 == 0 else value


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
