"""Events as lines of JSON: what `--log-format json` prints, and what the sink `json-lines` writes."""

from __future__ import annotations

import math

import msgspec

from engine.protocol.json_lines import as_fields
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
from engine.protocol.outcome import Outcome
from engine.runtime.text import json_line


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
