"""Saves what a chart shows: its points as CSV, and the screen as SVG."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.runtime.text import printable


@dataclass(frozen=True)
class Line:
    """A line of a chart, as it was reported: without smoothing."""

    name: str
    steps: Sequence[float]
    seconds: Sequence[float]
    values: Sequence[float]


def save_chart(title: str, lines: Iterable[Line], picture: str, folder: Path) -> Path:
    """Write `<title>.csv` and `<title>.svg`; returns the path without suffix. Existing files are not overwritten.

    Args:
        picture: the screen as SVG.

    Raises `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = _free(folder, re.sub(r"[^\w.-]+", "-", printable(title)).strip("-.") or "chart")
    with Path(f"{path}.csv").open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("series", "env_steps", "seconds", "value"))
        for line in lines:
            for step, at, value in zip(line.steps, line.seconds, line.values, strict=True):
                writer.writerow((printable(line.name), f"{step:.0f}", f"{at:.3f}", repr(float(value))))
    Path(f"{path}.svg").write_text(picture, encoding="utf-8")
    return path


def _free(folder: Path, name: str) -> Path:
    """A path with that name of which there is no file yet: `name`, `name-2`, `name-3` ..."""
    number = 1
    while Path(f"{(path := folder / (name if number == 1 else f'{name}-{number}'))}.csv").exists():
        number += 1
    return path
