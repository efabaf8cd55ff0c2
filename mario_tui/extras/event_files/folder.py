"""An event file, or all event files under a folder, read piece by piece while they grow."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from tensorboard.compat.proto.event_pb2 import Event

from mario_tui.extras.event_files.files import check_more, event_files, long_event, opened
from mario_tui.extras.event_files.history import Columns, History, HistoryBuilder
from mario_tui.extras.event_files.hparams import MOST_SESSIONS, Session, session_of
from mario_tui.extras.event_files.others import Other, others_of
from mario_tui.extras.event_files.records import HEAD_BYTES, RECORD_BYTES, Checksum, event_in, is_unwritten, length_of
from mario_tui.extras.event_files.scan import MOST_BYTES, MOST_SERIES, Scanner, add_event, discards

MOST_IN_ALL = 2_000_000
"""Maximum number of points of all series together, 64 MB."""
MOST_OTHERS = 2_000
"""Maximum number of series of images, text and the like."""
_FIRST_PIECE, _PIECE = 2**14, 2**17
"""Bytes read of a file before it is the next subfolder's turn: first a little, so that all tags appear soon."""
_FIRST_BATCH, _BATCH = 2**20, 2**23
"""Bytes read before they are shown: first a little, so that something is seen soon."""
_LEAST_COST = 2**12
"""What it costs to open a file, in bytes that could have been read instead."""
_START_BYTES = 64
"""A file that begins with other bytes than before is another file: they tell when it was begun."""

_T = TypeVar("_T")
Key = tuple[str, str]
"""Tag and subfolder of a series."""


@dataclass
class News:
    """What was written since the last call, and what became of it. It comes from at most `_BATCH` bytes of files, and
    one record."""

    histories: dict[Key, History] = field(default_factory=dict)
    """Series that have changed."""
    others: dict[Key, Other] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    """By subfolder."""
    replaced: set[str] = field(default_factory=set)
    """Subfolders that are read from the beginning again; what is known of them is dropped first."""
    broken: dict[Path, str] = field(default_factory=dict)
    """Errors of files that can't be read any further, or not now."""
    recovered: set[Path] = field(default_factory=set)
    """Files that could not be read before, and now can."""
    scalars: int = 0
    """Number of points that were read."""
    files: int = 0
    bytes_read: int = 0
    bytes_there: int = 0
    """Of all files, since the first call."""
    left_out: bool = False
    """Series were dropped, because there are more than `MOST_SERIES`."""
    more: bool = False
    """The batch was full, so more can be read at once."""

    def add_event(self, inside: str, event: Event) -> None:
        """Add what an event contains besides scalars."""
        for value in event.summary.value:
            session = session_of(value)
            if session is not None and (inside in self.sessions or len(self.sessions) <= MOST_SESSIONS):
                self.sessions.setdefault(inside, Session()).update(session)
        for tag, other in others_of(event):
            if (tag, inside) in self.others or len(self.others) <= MOST_OTHERS:
                self.others.setdefault((tag, inside), Other(other.kind)).update(other)

    def __bool__(self) -> bool:
        return bool(self.histories or self.others or self.sessions or self.replaced or self.broken or self.recovered)


@dataclass
class _File:
    """How far a file was read."""

    at: int = 0
    start: bytes = b""
    """Its first bytes, at most `_START_BYTES` of those that were read."""
    stamp: tuple[int, int] = (0, 0)
    """Size and time of change when it was last looked at."""
    failure: str = ""
    """Why it could not be read any further when it was last tried."""
    waits: bool = False
    """It is tried again even if it does not seem to have changed."""
    checksum: Checksum = field(default_factory=Checksum)
    """Of a long record, as far as it was read."""

    @property
    def size(self) -> int:
        return self.stamp[0]

    @property
    def read(self) -> int:
        """Number of bytes that were read."""
        return self.at + self.checksum.length

    def has_changed(self, path: Path) -> bool:
        """Return whether it may have changed since the last call."""
        try:
            status = path.stat()
        except OSError:
            return True
        before, self.stamp = self.stamp, (status.st_size, status.st_mtime_ns)
        return before != self.stamp or self.waits

    def check(self, stream: BinaryIO) -> None:
        """Raise `_Replaced` if the file is shorter than what was read, or begins differently."""
        if os.fstat(stream.fileno()).st_size < self.at or stream.read(len(self.start)) != self.start:
            raise _Replaced

    def remember(self, stream: BinaryIO) -> None:
        """Remember how the file begins."""
        if len(self.start) < min(self.at, _START_BYTES):
            stream.seek(0)
            self.start = stream.read(min(self.at, _START_BYTES))


class _Replaced(Exception):
    """A file is not the one that was read before."""


class EventFolder:
    """All event files under a folder, or a single file. `collect` may run in a thread; `take_in` adds its result in the
    thread that draws, before the next `collect`. Everything public belongs to that thread.

    Subfolders take turns, so that each is seen early. Files in one subfolder are read one after the other in the order
    of their names, which contain the time, or of a run's parts: a resumed program continues its curves in a new file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path.parent if path.is_file() else path
        """Base folder for the displayed file names."""
        self.tags: dict[str, dict[str, History]] = {}
        """By tag, then by the file's subfolder ("." for the folder itself)."""
        self.others: dict[str, dict[str, Other]] = {}
        """Images, text and the like, in the same way."""
        self.sessions: dict[str, Session] = {}
        """Hyper-parameters by subfolder."""
        self.broken: dict[Path, str] = {}
        """Errors of files that can't be read any further."""
        self.left_out = False
        """Whether series were dropped because there are more than `MOST_SERIES`, `MOST_OTHERS` or `MOST_SESSIONS`."""
        self.has_files = False
        """Whether there are any files."""
        self.loading: float | None = None
        """Which part of the bytes has been read, 0 to 1; None once all has been read that was there."""
        # the rest belongs to `collect`
        self._series: dict[Key, HistoryBuilder] = {}
        self._new: dict[Key, Columns] = {}
        self._points = 0
        self._scanner = Scanner()
        self._files: dict[Path, _File] = {}
        self._turns: deque[deque[Path]] = deque()  # the files of each subfolder that may have more to read
        self._batch = _FIRST_BATCH

    # ------------------------------------------------------------------------------------------ reading

    def collect(self) -> News:
        """Read what was written since the last call."""
        news = News()
        if not self._turns:
            self._look()
        room = self._batch
        while self._turns and room > 0:
            paths = self._turns.popleft()
            room -= _LEAST_COST
            try:
                cost = self._read(paths[0], news)
                room -= cost
                if not cost:
                    paths.popleft()
            except _Replaced:
                paths = self._again(paths[0], news)
            if paths:
                self._turns.append(paths)
        self._batch = min(2 * self._batch, _BATCH) if self._turns else _FIRST_BATCH
        self._extend(news)
        self._thin(news)
        news.more = bool(self._turns)
        news.files = len(self._files)
        news.bytes_there = sum(file.size for file in self._files.values())
        news.bytes_read = sum(file.size if file.failure else file.read for file in self._files.values())
        return news

    def _look(self) -> None:
        """Give a turn to the files that have changed."""
        self._files = {path: self._files.get(path, _File()) for path in event_files(self.path)}
        turns: dict[Path, deque[Path]] = {}
        for path, file in self._files.items():
            if file.has_changed(path):
                turns.setdefault(path.parent, deque()).append(path)
        self._turns = deque(turns.values())

    def _again(self, replaced: Path, news: News) -> deque[Path]:
        """Forget a subfolder, because its series can't be told apart by file. Returns its files."""
        inside = self._inside(replaced)
        news.replaced.add(inside)
        news.sessions.pop(inside, None)
        for kept in (self._series, self._new, news.others):
            for key in [key for key in kept if key[1] == inside]:
                del kept[key]
        self._points = sum(len(builder.history) for builder in self._series.values())
        paths = deque(path for path in self._files if path.parent == replaced.parent)
        for path in paths:
            self._files[path] = _File(stamp=self._files[path].stamp)
        return paths

    def _inside(self, path: Path) -> str:
        # A path that was waited for may turn out to be a file.
        return "." if path == self.path else path.parent.relative_to(self.root).as_posix()

    def _read(self, path: Path, news: News) -> int:
        """Read a piece of a file. Returns the number of bytes, without those skipped; 0 if there is no more for now.

        Raises `_Replaced` if it is not the file that was read before.
        """
        file, read, problem = self._files[path], 0, ""
        before, file.failure, file.waits = file.failure, "", False
        try:
            with opened(path) as stream:
                file.check(stream)
                read = self._advance(file, stream, self._inside(path), news)
                file.remember(stream)
        except OSError as error:
            if path.is_symlink() or path.exists():  # not deleted in the meantime
                problem, file.waits = error.strerror or str(error), True
        except ValueError as error:
            problem, file.checksum = str(error), Checksum()
        file.failure = problem
        if problem and problem != before:
            news.broken[path] = problem
        elif before and not problem:
            news.recovered.add(path)
        return 0 if problem else read

    def _advance(self, file: _File, stream: BinaryIO, inside: str, news: News) -> int:
        """Read at least one record, if there is a whole one. Returns the number of bytes that were read.

        Raises `ValueError` if there is something else than a record.
        """
        size = os.fstat(stream.fileno()).st_size
        stream.seek(file.at)
        piece = stream.read(_PIECE if file.at else _FIRST_PIECE)
        used = self._take(inside, news, partial(self._scanner.scan, piece))
        if not used and len(piece) >= HEAD_BYTES:
            file.waits = not any(piece[:HEAD_BYTES])
            if file.waits and is_unwritten(piece, file.at):
                return 0
            length = length_of(piece, file.at)
            if file.at + RECORD_BYTES + length > size:
                return 0  # still being written
            stream.seek(file.at + HEAD_BYTES)
            if length <= MOST_BYTES:
                event = event_in(stream.read(length), stream.read(4), file.at)
            elif read := check_more(stream, file.at, length, file.checksum):
                return read
            else:
                event = long_event(stream, file.at, length)
                file.checksum = Checksum()
            self._take(inside, news, partial(add_event, event))
            used = RECORD_BYTES + length
        file.at += used
        return used

    def _take(self, inside: str, news: News, read: Callable[[dict[str, Columns], Callable[[Event], None]], _T]) -> _T:
        """Add the events that `read` passes on: scalars by tag, and a call for each event with anything else."""
        scalars: dict[str, Columns] = {}
        voids: list[int] = []

        def other(event: Event) -> None:
            if discards(event):
                voids.append(event.step)
            news.add_event(inside, event)

        result = read(scalars, other)
        if voids:
            self._drop_from(min(voids), inside, news)
        self._add_scalars(scalars, inside, news)
        return result

    def _drop_from(self, step: int, inside: str, news: News) -> None:
        """Drop points that a restarted program has discarded."""
        for key in [key for key in self._series if key[1] == inside]:
            if key in self._new:
                self._new[key].drop_from(step)
            self._change(key, lambda builder: builder.drop_from(step), news)

    def _add_scalars(self, scalars: dict[str, Columns], inside: str, news: News) -> None:
        for tag, columns in scalars.items():
            known = self._new.get((tag, inside))
            if known is not None:
                known.extend(columns)
            elif (tag, inside) in self._series or len(self._series) < MOST_SERIES:
                self._series.setdefault((tag, inside), HistoryBuilder())
                self._new[tag, inside] = columns
            else:
                news.left_out = True

    def _extend(self, news: News) -> None:
        """Add what was read to the series: once a batch, since each time copies the columns."""
        for key, columns in self._new.items():
            self._change(key, partial(HistoryBuilder.extend, new=columns), news)
            news.scalars += len(columns)
        self._new.clear()

    def _thin(self, news: News) -> None:
        """Keep the total number of points within `MOST_IN_ALL`, at the cost of the longest series."""
        while self._points > MOST_IN_ALL:
            for key in sorted(self._series, key=lambda each: len(self._series[each].history), reverse=True):
                self._change(key, HistoryBuilder.thin, news)
                if self._points <= MOST_IN_ALL:
                    return

    def _change(self, key: tuple[str, str], change: Callable[[HistoryBuilder], object], news: News) -> None:
        """Change a series, and tell."""
        builder = self._series[key]
        before = len(builder.history)
        change(builder)
        self._points += len(builder.history) - before
        news.histories[key] = builder.history

    # ------------------------------------------------------------------------------------------ showing

    def take_in(self, news: News) -> bool:
        """Add the result of `collect`; returns whether it contained anything."""
        for inside in news.replaced:
            self._forget(inside)
        for (tag, inside), history in news.histories.items():
            if len(history):
                self.tags.setdefault(tag, {})[inside] = history
            else:  # all of it was discarded
                _drop(self.tags, tag, inside)
        self.left_out = self.left_out or news.left_out
        for (tag, inside), other in news.others.items():
            known = self.others.get(tag, {}).get(inside)
            if known is not None:
                known.update(other)
            elif self._has_room(sum(map(len, self.others.values())), MOST_OTHERS):
                self.others.setdefault(tag, {})[inside] = other
        for inside, session in news.sessions.items():
            if inside in self.sessions or self._has_room(len(self.sessions), MOST_SESSIONS):
                self.sessions.setdefault(inside, Session()).update(session)
        self.broken = {path: why for path, why in (self.broken | news.broken).items() if path not in news.recovered}
        self.has_files = news.files > 0
        self.loading = news.bytes_read / news.bytes_there if news.more and news.bytes_there else None
        return bool(news)

    def _has_room(self, count: int, most: int) -> bool:
        self.left_out = self.left_out or count >= most
        return count < most

    def _forget(self, inside: str) -> None:
        self.sessions.pop(inside, None)
        for tag in list(self.tags):
            _drop(self.tags, tag, inside)
        for tag in list(self.others):
            _drop(self.others, tag, inside)


def _drop(kept: dict[str, dict[str, _T]], tag: str, inside: str) -> None:
    """Drop a series, and its tag if that has no other one."""
    series = kept.get(tag, {})
    if series.pop(inside, None) is not None and not series:
        del kept[tag]
