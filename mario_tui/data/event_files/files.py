"""Finds event files and opens them without being held up: a pipe could block, and a device may do anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mario_tui.data.event_files.scan import (
    HEAD_BYTES,
    MOST_BYTES,
    NO_EVENTS,
    RECORD_BYTES,
    length_of,
    parsed,
    scalars_of,
)

MARK = "tfevents"
"""What the names of event files contain."""
_MAX_DEPTH = 32
"""Maximum depth of nested folders."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
"""How compressed files begin."""


def event_files(path: Path) -> list[Path]:
    """Paths under a folder that are named like event files; for a file, its own path."""
    if not path.is_dir():
        return [path] if path.exists() else []
    found: list[Path] = []
    for folder, folders, names in os.walk(path):  # links to folders are not followed
        found += [Path(folder, name) for name in names if MARK in name]
        if len(Path(folder).parts) >= len(path.parts) + _MAX_DEPTH:
            folders.clear()
    return sorted(found)


def problem_of(path: Path) -> str:
    """Why a file is not an event file, in a few words; empty if it is one.

    It is one if it begins with an event that tells a file version, or with any event and is named like an event file.
    While that event is not whole, the name alone counts: the file may have been begun a moment ago.
    """
    try:
        with opened(path) as file:
            head = file.read(HEAD_BYTES)
            form = next((form for magic, form in _MAGIC.items() if head.startswith(magic)), None)
            if form:
                return f"compressed with {form}; decompress it first"
            length = length_of(head) if len(head) == HEAD_BYTES else 0
            data = file.read(min(length, MOST_BYTES))
        whole = 0 < length == len(data)
        told = whole and bool(parsed(data).file_version)
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return "" if told or MARK in path.name else NO_EVENTS


def scalars_in(path: Path) -> Iterator[tuple[str, int, float, float]]:
    """Tag, step, unix time and value of each scalar in a file, in its order. Raises `OSError` or `ValueError` where it
    can't be read any further."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        while len(head := file.read(HEAD_BYTES)) == HEAD_BYTES:
            length = length_of(head)
            end = file.tell() + length + RECORD_BYTES - HEAD_BYTES
            if end > size:
                return  # still being written
            if length <= MOST_BYTES:
                event = parsed(file.read(length))
                for tag, value in scalars_of(event):
                    yield tag, int(event.step), float(event.wall_time), value
            file.seek(end)


def opened(path: Path) -> BinaryIO:
    """Open a file for reading. Raises `ValueError` if it is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise ValueError("not a regular file")
    return file
