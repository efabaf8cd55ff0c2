"""Event files as other programs write them."""

from __future__ import annotations

import struct
from pathlib import Path

from google_crc32c import value
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from mario_tui.extras.event_files import EventFolder
from mario_tui.extras.event_files.records import masked


def record(data: bytes, length: int | None = None) -> bytes:
    """A record as TensorBoard writes it; it may claim to be of another length."""
    head = struct.pack("<Q", len(data) if length is None else length)
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked(value(data)))


def event(*values: Summary.Value, step: int = 1, wall_time: float = 1.0) -> bytes:
    return record(Event(wall_time=wall_time, step=step, summary=Summary(value=values)).SerializeToString())


def scalar(tag: str, value: float, step: int = 1, wall_time: float = 1.0) -> bytes:
    return event(Summary.Value(tag=tag, simple_value=value), step=step, wall_time=wall_time)


def restart(step: int) -> bytes:
    """What discards all points at a step and later ones."""
    return record(Event(wall_time=1.0, step=step, session_log=SessionLog(status=SessionLog.START)).SerializeToString())


def write_sessions(folder: Path) -> None:
    """Sessions of a program that was restarted twice, in a file each, and once more within the second file."""
    version = record(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
    sessions: list[list[int | range]] = [
        [0, range(100)],
        [60, range(60, 90), 70, range(70, 80)],
        [75, range(75, 200)],
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for number, parts in enumerate(sessions):
        content = version
        for part in parts:
            if isinstance(part, int):
                content += restart(part)
            else:
                content += b"".join(scalar(tag, 1000.0 * number + step, step, 5.0) for step in part for tag in "ab")
        (folder / f"events.out.tfevents.{number}").write_bytes(content)


def read(events: EventFolder) -> bool:
    """Read all that is there; returns whether there was anything new."""
    found = False
    while True:
        news = events.collect()
        found |= events.take_in(news)
        if not news.more:
            return found
