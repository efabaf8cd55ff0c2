"""Messages of versions in which games did not declare their results, as this version has them.

Episodes had fields of Mario's instead, which other games filled with zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from engine.config.games import GAMES, game_of
from engine.protocol.framing import decode_greeting_head
from engine.protocol.message import bounded
from engine.protocol.messages import PROTOCOL, Event, KeptEvent
from engine.protocol.outcome import Outcome

LAST_PROTOCOL = 3
"""The last version of the protocol that they had."""
_Decode = Callable[[bytes], Any]
_decode = bounded(msgspec.msgpack.decode)


def decoders_for(greeting: bytes) -> tuple[_Decode, _Decode] | None:
    """For a recording that begins with this message: what decodes its events, and those in its greeting. None if it is
    not of an earlier version. Both raise as msgspec's decoders do."""
    try:
        head = decode_greeting_head(greeting)
    except msgspec.ValidationError:  # no greeting
        return None
    if head.protocol > LAST_PROTOCOL:
        return None
    outcome = game_of(head.game).outcome if head.game in GAMES else Outcome()

    def decode_event(body: bytes) -> Event:
        return msgspec.convert(_renewed(_decode(body), outcome), Event)

    def decode_kept(body: bytes) -> KeptEvent:
        return msgspec.convert(_renewed(_decode(body), outcome), KeptEvent)

    return decode_event, decode_kept


def _renewed(said: Any, outcome: Outcome) -> Any:
    """A message of an earlier version, decoded, as this version would have written it."""
    if not isinstance(said, dict):
        return said
    names = [result.name for result in outcome.results]
    match said.get("type"):
        case "Hello":
            events: Any = said.get("events")
            events = [_renewed(event, outcome) for event in events] if isinstance(events, list) else events
            return {**said, "protocol": PROTOCOL, "events": events, "outcome": msgspec.to_builtins(outcome)}
        case "Episode":
            found = [said.get(name, math.nan) for name in names]
            return {**said, "success": said.get("flag"), "task": said.get("stage", ""), "results": found}
        case "Evaluation":
            return {**said, "results": [said.get(f"mean_{name}", math.nan) for name in names]}
        case "Lanes":
            lanes: Any = said.get("lanes")
            stages: Any = said.get("stages", [])
            if isinstance(lanes, list):
                lanes = [_renewed_lane(lane, names) for lane in lanes]
            if isinstance(stages, list):
                stages = [{**each, "task": each.get("stage")} if isinstance(each, dict) else each for each in stages]
            return {**said, "lanes": lanes, "tasks": stages}
        case "Stages":
            return {**said, "type": "TimeSplits"}
        case _:
            return said


def _renewed_lane(lane: Any, names: list[str]) -> Any:
    if not isinstance(lane, dict):
        return lane
    earlier = {"x_pos": lane.get("best_x", 0), "score": lane.get("best_score", 0)}
    return {**lane, "best_results": [earlier.get(name, math.nan) for name in names]}
