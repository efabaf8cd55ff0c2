"""Finds event files and opens them without being held up: a pipe could block, and a device may do anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tensorboard.compat.proto.event_pb2 import Event

from engine.protocol.sinks import EVENT_FILE
from engine.runtime.files import open_regular
from mario_tui.extras.event_files.abridged import Abridged
from mario_tui.extras.event_files.records import (
    HEAD_BYTES,
    NO_EVENTS,
    RECORD_BYTES,
    Checksum,
    event_in,
    is_unwritten,
    length_of,
    parsed,
)
from mario_tui.extras.event_files.scan import MOST_BYTES, discards, scalars_of


def part_of(name: str) -> int:
    """The number of the part that wrote a file; 0 if its name does not tell."""
    found = EVENT_FILE.fullmatch(name)
    return int(found[2]) if found else 0


MARK = "tfevents"
"""What the names of event files contain."""
_MAX_DEPTH = 32
"""Maximum depth of nested folders."""
MOST_LINKED = 10_000
"""Maximum number of folders that are read because a link leads to them or to a folder above."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
"""How compressed files begin."""
_LONGEST_LOG = 4096
"""Maximum length of an event that tells of a restart."""
_SESSION_LOG = b"\x3a"
"""With this byte its field begins; few other events contain it."""
_ZEROS = bytes(HEAD_BYTES)


def event_files(path: Path) -> list[Path]:
    """Paths under a folder that are named like event files, one subfolder after the other, each in the order in which
    its files were begun; for a file, its own path.

    Links to folders are followed. A folder is read once, however many links lead to it, and under its own name if that
    is below `path` too: so links in a circle come to an end.
    """
    if not path.is_dir():
        return [path] if path.exists() else []
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    links = [path]
    followed = 0  # folders that were found through links
    while links:
        tree = links.pop(0)
        for folder, folders, names in os.walk(tree):
            here = Path(folder)
            try:
                status = here.stat()
            except OSError:
                continue
            if (status.st_dev, status.st_ino) in seen:
                folders.clear()
                continue
            followed += tree != path
            if followed > MOST_LINKED:
                links.clear()
                break
            seen.add((status.st_dev, status.st_ino))
            found += [here / name for name in names if MARK in name]
            if len(here.parts) >= len(path.parts) + _MAX_DEPTH:
                folders.clear()
            links += sorted(here / name for name in folders if (here / name).is_symlink())
    return sorted(found, key=lambda path: (path.parent, part_of(path.name), path.name))


def problem_of(path: Path) -> str:
    """Why a file is not an event file, in a few words; empty if it is one.

    It is one if it begins with an event that tells a file version, or with any event and is named like an event file.
    While that event is not whole, the name alone counts: the file may have been begun a moment ago, and zeros may be
    where its data will arrive.
    """
    try:
        with opened(path) as file:
            head = file.read(HEAD_BYTES)
            form = next((form for magic, form in _MAGIC.items() if head.startswith(magic)), None)
            if form:
                return f"compressed with {form}; decompress it first"
            length = length_of(head, 0) if len(head) == HEAD_BYTES and any(head) else 0
            data = file.read(min(length, MOST_BYTES))
            foot = file.read(4)
        whole = 0 < length == len(data) and len(foot) == 4
        told = whole and bool(event_in(data, foot, 0).file_version)
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return "" if told or MARK in path.name else NO_EVENTS


def discards_in(path: Path) -> list[tuple[int, int]]:
    """Return where in a file a program has restarted, and the step from which on all points before that are void. The
    list ends where the file can't be read any further."""
    found = []
    with suppress(OSError, ValueError), opened(path) as file:
        for place, length in _records(file):
            data = file.read(length) if length <= _LONGEST_LOG else b""
            if _SESSION_LOG in data and discards(event := event_in(data, file.read(4), place)):
                found.append((place, int(event.step)))
    return found


def scalars_in(path: Path, discards: Sequence[tuple[float, int]] = ()) -> Iterator[tuple[str, int, float, float]]:
    """Tag, step, unix time and value of each scalar in a file, in its order. Raises `OSError` or `ValueError` where it
    can't be read any further.

    Args:
        discards: places in the file, the last one first; of the points before them, those at a step and later ones are
            left out.
    """
    left = list(discards)
    with opened(path) as file:
        for place, length in _records(file):
            while left and left[-1][0] <= place:
                left.pop()
            if length <= MOST_BYTES:
                event = event_in(file.read(length), file.read(4), place)
            else:
                checksum = Checksum()
                while check_more(file, place, length, checksum):
                    pass
                event = long_event(file, place, length)
            step, wall_time = int(event.step), float(event.wall_time)
            if not left or step < left[-1][1]:
                for tag, value in scalars_of(event):
                    yield tag, step, wall_time, value


def _records(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Place and length of each whole record. Its data may be read from the file then."""
    size, place = os.fstat(file.fileno()).st_size, 0
    while len(head := file.read(HEAD_BYTES)) == HEAD_BYTES:
        if head == _ZEROS and is_unwritten(file.read(MOST_BYTES), place):
            return
        length = length_of(head, place)
        end = place + RECORD_BYTES + length
        if end > size:
            return  # still being written
        yield place, length
        place = file.seek(end)


def check_more(file: BinaryIO, place: int, length: int, checksum: Checksum) -> int:
    """Read the next piece of the long record at a place of a file. Returns its number of bytes; 0 if the record was
    read to its end, and its checksum is right. Raises `ValueError` if it is not."""
    file.seek(place + HEAD_BYTES + checksum.length)
    piece = file.read(min(MOST_BYTES, length - checksum.length))
    checksum.add(piece)
    if not piece:
        checksum.compare(file.read(4), place)
    return len(piece)


def long_event(file: BinaryIO, place: int, length: int) -> Event:
    """The event in a long record, abridged. Raises `ValueError` if it is none."""
    begin = place + HEAD_BYTES
    return parsed(Abridged(partial(_bytes_at, file.fileno()), begin, begin + length).data)


def _bytes_at(descriptor: int, place: int, count: int) -> bytes:
    return os.pread(descriptor, count, place)


def opened(path: Path) -> BinaryIO:
    """Open a file for reading. Raises `OSError` if it is not a regular file."""
    file: BinaryIO = open_regular(path, os.O_RDONLY, links=True)
    return file
