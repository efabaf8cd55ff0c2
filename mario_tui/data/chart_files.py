"""Saves what is shown as files: the points of a chart as CSV and the screen as SVG, tables in several formats."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.runtime.text import printable

_MOST_BYTES = 190
"""Maximum length of a name without number and suffix; file systems accept 255 bytes, some of them fewer."""


@dataclass(frozen=True)
class Line:
    """A line of a chart without smoothing: values, or means with the lower and upper bounds of an interval."""

    name: str
    steps: Sequence[float]
    seconds: Sequence[float]
    values: Sequence[float]
    bounds: Sequence[Sequence[float]] = ()


def save_chart(title: str, lines: Sequence[Line], picture: str, folder: Path, *, steps: str) -> Path:
    """`save_files` for `<title>.csv` and `<title>.svg`.

    Args:
        picture: the screen as SVG.
        steps: name of the column with the lines' steps.
    """
    points = io.StringIO(newline="")
    csv.writer(points).writerows(_rows(lines, steps))
    return save_files(title, {".csv": points.getvalue(), ".svg": picture}, folder)


def save_files(title: str, contents: Mapping[str, str], folder: Path) -> Path:
    """Write `<title><suffix>` for each suffix, all or none; returns the path without suffix. Existing files are not
    overwritten. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _free(folder, title, contents)
    with contextlib.ExitStack() as undo:
        for suffix, content in contents.items():
            with Path(f"{path}{suffix}").open("x", newline="", encoding="utf-8") as file:
                undo.callback(Path(file.name).unlink)
                file.write(content)
        undo.pop_all()
    return path


def _rows(lines: Sequence[Line], steps: str) -> list[tuple[str, ...]]:
    """The head, and a row per point; with the bounds if any line has them."""
    bounds = ("low", "high") if any(line.bounds for line in lines) else ()
    rows: list[tuple[str, ...]] = [("series", steps, "seconds", "value", *bounds)]
    for line in lines:
        unknown = [""] * len(line.values)
        columns = [list(map(_digits, values)) for values in line.bounds] or [unknown for _ in bounds]
        for step, at, value, *ends in zip(line.steps, line.seconds, line.values, *columns, strict=True):
            rows.append((printable(line.name), f"{step:.0f}", f"{at:.3f}", _digits(value), *map(str, ends)))
    return rows


def _digits(value: float) -> str:
    return repr(float(value))


def _free(folder: Path, title: str, suffixes: Iterable[str]) -> Path:
    """A path of which there is no file yet: the title, or with a number `title-2`, `title-3` ..."""
    name = re.sub(r"[^\w.-]+", "-", printable(title)).encode()[:_MOST_BYTES].decode(errors="ignore")
    name = name.strip("-.") or "chart"
    path, number = folder / name, 1
    while any(os.path.lexists(f"{path}{suffix}") for suffix in suffixes):
        number += 1
        path = folder / f"{name}-{number}"
    return path
