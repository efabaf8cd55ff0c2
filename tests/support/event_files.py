"""Event files as other programs write them."""

from __future__ import annotations

import struct

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from mario_tui.data.event_files import EventFolder


def record(data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<QI", len(data) if length is None else length, 0) + data + bytes(4)


def event(*values: Summary.Value, step: int = 1, wall_time: float = 1.0) -> bytes:
    return record(Event(wall_time=wall_time, step=step, summary=Summary(value=values)).SerializeToString())


def scalar(tag: str, value: float, step: int = 1, wall_time: float = 1.0) -> bytes:
    return event(Summary.Value(tag=tag, simple_value=value), step=step, wall_time=wall_time)


def read(events: EventFolder) -> bool:
    """Read all that is there; returns whether there was anything new."""
    found = False
    while True:
        news = events.collect()
        found |= events.take_in(news)
        if not news.more:
            return found
