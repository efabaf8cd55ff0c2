"""What has happened to the runs of a sweep: `journal.jsonl` in its folder, one JSON object a line.

With the run's own record, it tells everybody the state of each run (`mario_tui.extras.sweeps.results`). Lines are only
appended, by one process at a time. One that is cut off, by a kill or a full disk, or that is none of ours is skipped.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec

from engine.errors import ScarceError, UserError
from engine.runtime.files import is_full, open_lock, open_regular
from engine.runtime.formats import parsed_json

JOURNAL_FILE = "journal.jsonl"
MOST_RUNS = 2000
TRIES = 2
"""How often a run is begun, the first time included, before it counts as failed."""
_MAX_BYTES = 2**24
_LONGEST = 1000
"""Characters of a reason."""
Event = Literal[
    "begun", "finished", "stopped", "failed", "lost", "refused", "pruned", "resumed", "moved", "deleted", "started",
    "stopping",
]  # fmt: skip
_Text = Annotated[str, msgspec.Meta(max_length=_LONGEST)]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line. What happened, by event:

    - `begun`: a host was started
    - `finished`, `stopped`, `failed`: it has ended; `reason` says why, and who stopped it
    - `lost`: it ended with the node or the process that it was on
    - `refused`: it can't be started, and is not tried again
    - `pruned`: its setting was given up
    - `resumed`: it is to be begun, however often it was tried before
    - `moved`: its last try has left files, which are now in the folder `reason` of the sweep
    - `deleted`: the user has deleted it
    - `started`, `stopping`: the queue of the sweep
    """

    event: Event
    at: Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    """Unix time."""
    runs: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MOST_RUNS)] = ()
    """Names; none if it is about the sweep."""
    reason: _Text = ""
    counts: bool = True
    """Of `lost`: whether that was a try. It was not if a whole node is gone."""


@dataclass
class EndedTry:
    """A try that was stopped or has failed."""

    event: Event
    reason: str
    folder: str = ""
    """Where in the sweep's folder its files are, if another try has its place."""


@dataclass
class History:
    """What has happened to a run."""

    tries: int = 0
    """How often it was begun, or could not be, since it was last resumed."""
    is_open: bool = False
    """Whether it was begun, and its end is not noted yet."""
    is_pruned: bool = False
    last: Event | None = None
    """What has happened to it last, other than `pruned` and `moved`."""
    ended: list[EndedTry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        event = entry.event
        if event == "pruned":
            self.is_pruned = True
            return
        if event == "moved":
            if not self.ended or self.ended[-1].folder:
                self.ended.append(EndedTry("lost", "its end was not noted"))
            self.ended[-1].folder = entry.reason
            return
        if event == "begun":
            self.tries += 1
        elif event == "resumed":
            self.tries = 0
        elif event in ("failed", "lost", "refused"):
            self.tries = TRIES if event == "refused" else self.tries + entry.counts - self.is_open
        if event in ("stopped", "failed", "lost", "refused"):
            self.ended.append(EndedTry(event, entry.reason))
        self.is_open = event == "begun" or (event == "resumed" and self.is_open)
        if not (event == "stopped" and self.last == "resumed"):  # then it had been stopped before
            self.last = event


class Journal:
    """The journal of the sweep in a folder; `before`: what was noted by earlier versions, elsewhere."""

    def __init__(self, folder: Path, before: Iterable[Entry] = ()) -> None:
        self._path = folder / JOURNAL_FILE
        self._before = tuple(before)
        self._begin()

    def _begin(self) -> None:
        self._read_to = 0
        self._histories = defaultdict[str, History](History)
        self.is_stopping = False
        """Whether the queue was told to stop, and none has begun since."""
        for entry in self._before:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        if entry.event in ("started", "stopping"):
            self.is_stopping = entry.event == "stopping"
            return
        for name in entry.runs:
            if name in self._histories or len(self._histories) < 2 * MOST_RUNS:  # not all need be runs of the sweep
                self._histories[name].add(entry)

    def read(self) -> Self:
        """Take what is new. Raises `UserError` if it can't be read."""
        try:
            with open_regular(self._path, os.O_RDONLY) as file:
                size = os.fstat(file.fileno()).st_size
                if size > _MAX_BYTES:
                    raise OSError(errno.EFBIG, f"must have at most {_MAX_BYTES:,} bytes")
                if size < self._read_to:  # another file
                    self._begin()
                file.seek(self._read_to)
                new = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return self
        except OSError as error:
            raise UserError(f"{self._path}: can't be read ({error.strerror or error})") from None
        *lines, rest = new.split(b"\n")
        self._read_to += len(new) - len(rest)
        for line in lines:
            with contextlib.suppress(ValueError):
                self._add(parsed_json(line, Entry))
        return self

    def of(self, run: str) -> History:
        """The history of a run, by its name."""
        return self._histories[run]


def note(folder: Path, event: Event, *runs: str, reason: str = "", counts: bool = True) -> None:
    """Add to the journal of the sweep in `folder`. Raises `UserError` if it can't be written."""
    entry = Entry(event, time.time(), runs, reason[:_LONGEST], counts)
    try:
        with open_lock(folder / JOURNAL_FILE, os.O_APPEND) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            is_cut_off = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            line = b"\n" * is_cut_off + msgspec.json.encode(entry) + b"\n"
            if size + len(line) > _MAX_BYTES:
                raise OSError(errno.EFBIG, "it is full")
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        kind = ScarceError if is_full(error) else UserError
        raise kind(f"{folder / JOURNAL_FILE}: can't be written ({error.strerror or error})") from None
