"""What the user has written about a run: tags and a note, in `annotation.json` of its folder.

It is a file of its own because the run's record belongs to its host.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from engine.errors import UserError
from engine.runs.run import Run
from engine.runtime.files import write_atomically
from engine.runtime.json_text import read_json

ANNOTATION_FILE = "annotation.json"
MOST_TAGS = 8
LONGEST_NOTE = 2000
TAG = "1 to 24 letters, digits, - and _"
_TAG = re.compile(r"[\w-]{1,24}")
_MAX_BYTES = 2**16


class Annotation(msgspec.Struct, frozen=True):
    """Tags in the order in which they were given, and a note."""

    tags: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_TAGS)] = ()
    note: Annotated[str, msgspec.Meta(max_length=LONGEST_NOTE)] = ""


def make_annotation(tags: str, note: str) -> Annotation:
    """From tags separated by spaces or commas, with or without #. Raises `UserError` that names the field."""
    words = {word.removeprefix("#").lower(): word for word in re.split(r"[\s,]+", tags) if word}
    for tag, word in words.items():
        if not _TAG.fullmatch(tag):
            raise UserError(f"tags: each must be {TAG}, got {word!r}")
    if len(words) > MOST_TAGS:
        raise UserError(f"tags: must be at most {MOST_TAGS}, got {len(words)}")
    note = " ".join(note.split())
    if len(note) > LONGEST_NOTE:
        raise UserError(f"note: must have at most {LONGEST_NOTE:,} characters, got {len(note):,}")
    return Annotation(tuple(words), note)


def read_annotation(run: Run) -> Annotation:
    """The run's annotation; an empty one if there is none or it can't be read."""
    try:
        return read_json(run.path / ANNOTATION_FILE, Annotation, _MAX_BYTES)
    except (OSError, ValueError):
        return Annotation()


def write_annotation(run: Run, annotation: Annotation) -> None:
    """Write it. Raises `UserError` if the folder can't be written."""
    try:
        write_atomically(run.path / ANNOTATION_FILE, msgspec.json.encode(annotation))
    except OSError as error:
        raise UserError(f"{run.path / ANNOTATION_FILE}: can't be written ({error.strerror or error})") from None
