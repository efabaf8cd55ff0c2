"""`mario-tui export`: the scalars of event files as a table, in CSV, JSON lines or Parquet.

A row is one point, as it was written: nothing is thinned or resampled. Points that a restarted program has discarded
are left out. Rows are written as they are read, so a run of any length fits in memory.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import chain, groupby, islice
from math import inf
from pathlib import Path
from typing import BinaryIO

from engine.errors import UserError
from engine.runtime.files import open_output, replacing
from engine.runtime.formats import json_line
from engine.runtime.processes import exits_on_signals
from engine.runtime.text import install_command, printable
from mario_tui.data.format import counted
from mario_tui.extras.event_files import discards_in, event_files, scalars_in

COLUMNS = ("run", "tag", "step", "wall_time", "value")
Row = tuple[str, str, int, float, float]

_ROW_GROUP = 100_000
"""Rows that a Parquet file keeps together; they are in memory at once."""
_MOST_QUOTED = 8
"""Maximum number of tags in an error."""


class Points:
    """The rows of all event files under a folder, or of one file.

    Args:
        name: what the files of the folder itself are called in the column `run`; those of a subfolder have its path.
        tags: patterns as in the shell; only tags that match one of them are read. Empty: all tags.
    """

    def __init__(self, path: Path, name: str, tags: Sequence[str] = ()) -> None:
        self._path, self._name, self._patterns = path, name, tags
        self.count = 0
        self.broken: dict[Path, str] = {}
        """Errors of files that can't be read any further."""
        self.unused = set(tags)
        """Patterns that no tag has matched."""
        self.others: list[str] = []
        """Some of the tags that have matched none."""

    def __iter__(self) -> Iterator[Row]:
        root = self._path if self._path.is_dir() else self._path.parent
        for folder, paths in groupby(event_files(self._path), key=lambda path: path.parent):
            inside = folder.relative_to(root).as_posix()
            run = printable(self._name if inside == "." else inside)
            for path, discards in _with_discards(paths):
                try:
                    for tag, step, wall_time, value in scalars_in(path, discards):
                        if self._is_wanted(tag):
                            self.count += 1
                            yield run, printable(tag), step, wall_time, value
                except OSError as error:
                    self.broken[path] = error.strerror or str(error)
                except ValueError as error:
                    self.broken[path] = str(error)

    def _is_wanted(self, tag: str) -> bool:
        if not self._patterns:
            return True
        matching = [pattern for pattern in self._patterns if fnmatchcase(tag, pattern)]
        if matching:
            self.unused.difference_update(matching)
        elif len(self.others) < _MOST_QUOTED and (shown := printable(tag)) not in self.others:
            self.others.append(shown)
        return bool(matching)


def _with_discards(paths: Iterable[Path]) -> list[tuple[Path, list[tuple[float, int]]]]:
    """The files of a folder, and for each of them, the last one first: a place, and the step from which on the points
    before that place are void, because the program has restarted there or later, or in a later file."""
    found: list[tuple[Path, list[tuple[float, int]]]] = []
    later: list[tuple[float, int]] = []  # the lowest step of later files
    for path in reversed(list(paths)):
        discards = list(later)
        for place, step in reversed(discards_in(path)):
            if not discards or step < discards[-1][1]:
                discards.append((place, step))
        later = [(inf, step) for _, step in discards[-1:]]
        found.append((path, discards))
    return found[::-1]


def export(points: Points, output: Path | None, format: str) -> int:
    """Write the points to a file, or to standard output if `output` is None. Returns the exit status: 1 if some of the
    event files are damaged.

    Raises `UserError` if there are no points, or if they can't be written; the file is then as it was.
    """
    if format == "parquet" and find_spec("pyarrow") is None:
        raise UserError(f"--output: Parquet needs PyArrow; install it with: {install_command('parquet')}")
    if output is None:
        if format == "parquet" and sys.stdout.isatty():
            raise UserError("--output -: Parquet is binary; send it to a file or a pipe")
        FORMATS[format](_some(points), sys.stdout.buffer)
    else:
        _to_file(points, output, format)
    for pattern in sorted(points.unused):
        print(f"mario-tui: --tag: no tag matches {pattern!r}", file=sys.stderr)
    for path, reason in points.broken.items():
        print(f"mario-tui: {path}: {reason}; exported up to there", file=sys.stderr)
    if output is not None:
        print(f"wrote {output}: {counted(points.count, 'point')}", file=sys.stderr)
    return 1 if points.broken else 0


def _to_file(points: Points, output: Path, format: str) -> None:
    is_special = output.exists() and not output.is_file()  # a pipe or a device; there is nothing to replace
    try:
        target = open_output(output) if is_special else replacing(output.resolve(), 0o666)
        with exits_on_signals(), target as file, _progress(points):
            FORMATS[format](_some(points), file)
    except OSError as error:
        raise UserError(f"--output: {output}: can't be written ({error.strerror or error})") from None


def _some(points: Points) -> Iterator[Row]:
    """The rows. Raises `UserError` if there are none, before anything is written."""
    rows = iter(points)
    first = next(rows, None)
    if first is not None:
        return chain([first], rows)
    for path, reason in points.broken.items():
        raise UserError(f"{path}: {reason}")
    if points.others:
        what = " or ".join(map(repr, sorted(points.unused)))
        raise UserError(f"--tag: no tag matches {what}; there are tags such as {', '.join(points.others)}")
    raise UserError("there are no scalars yet")


@contextlib.contextmanager
def _progress(points: Points) -> Iterator[None]:
    """On a terminal, show how many points have been written."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
    from rich.text import Text

    from mario_tui.terminal.console import SafeConsole

    class Count(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(counted(points.count, "point"))

    with Progress(
        SpinnerColumn(), Count(), TimeElapsedColumn(), console=SafeConsole(stderr=True), transient=True
    ) as bar:
        bar.add_task("")
        yield


def _to_csv(rows: Iterable[Row], file: BinaryIO) -> None:
    writer = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    file.flush()


def _to_json_lines(rows: Iterable[Row], file: BinaryIO) -> None:
    for row in rows:
        file.write(json_line(dict(zip(COLUMNS, row, strict=True))).encode() + b"\n")
    file.flush()


def _to_parquet(rows: Iterable[Row], file: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    types = (pa.string(), pa.string(), pa.int64(), pa.float64(), pa.float64())
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    rows = iter(rows)
    with ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(rows, _ROW_GROUP)):
            columns = [pa.array(column, kind) for column, kind in zip(zip(*group, strict=True), types, strict=True)]
            writer.write_table(pa.table(columns, schema=schema))


FORMATS: dict[str, Callable[[Iterable[Row], BinaryIO], None]] = {
    "csv": _to_csv,
    "jsonl": _to_json_lines,
    "parquet": _to_parquet,
}
