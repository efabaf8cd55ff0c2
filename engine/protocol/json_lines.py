"""Messages as the JSON objects that programs read: results of a game stand under their names beside other fields.

`--log-format json` prints lines of events, the sink `json-lines` writes them; commands print what they report.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from engine.protocol.messages import (
    Changed,
    Episode,
    Evaluation,
    Event,
    Failed,
    Finished,
    Log,
    Phase,
    Progress,
    Saved,
    Summary,
)
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.results import Evaluated, StudentEvaluation, TaskScore
from engine.runtime.json_text import json_line


class Gap(msgspec.Struct, frozen=True):
    """Events are missing from the output, because its reader was too slow: how many of each kind."""

    missing: dict[str, int]


JSON_EVENTS: dict[type[msgspec.Struct], tuple[str, tuple[str, ...]]] = {
    Progress: ("progress", ("replay",)),
    Episode: ("episode", ()),
    Evaluation: ("evaluation", ()),
    Phase: ("phase", ()),
    Changed: ("change", ()),
    Saved: ("checkpoint", ()),
    Log: ("warning", ()),
    Gap: ("gap", ()),
    Summary: ("summary", ()),
    Failed: ("failed", ("traceback", "usage", "final")),
}
"""The events that have a line, its name, and the fields that it leaves out."""


def line_of(event: Event | Gap, outcome: Outcome) -> str | None:
    """The line of an event of a game with this outcome, without a line break; None if it has none."""
    content = event.summary if isinstance(event, Finished) else event
    if type(content) not in JSON_EVENTS:
        return None
    kind, left_out = JSON_EVENTS[type(content)]
    fields = {name: value for name, value in as_fields(content, outcome).items() if name not in left_out}
    fields = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
    return json_line({"event": kind, **fields})


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
            if outcome.goal is None:
                fields |= dict.fromkeys(("clears", "clear_rate", "clear_rate_low", "clear_rate_high"))
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
