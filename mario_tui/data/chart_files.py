"""Saves what is shown as files: the measured points of a chart as CSV, tables in several formats, and a chart as a
vector picture for a paper, with axes and bands, by matplotlib (the extra `pictures`).

A picture is drawn in a process of its own: importing matplotlib would hold up the screen, and reads a file
`matplotlibrc` of the working folder, which must not change the picture.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import UserError
from engine.runtime.processes import how_it_ended
from engine.runtime.text import install_command, printable

_MOST_BYTES = 190
"""Maximum length of a name without number and suffix; file systems accept 255 bytes, some of them fewer."""


@dataclass(frozen=True)
class Line:
    """A line of a chart as it was measured, without smoothing. `setting` and `seed`: those of a run that a mean is
    shown of."""

    name: str
    steps: Sequence[float]
    seconds: Sequence[float]
    values: Sequence[float]
    setting: str | None = None
    seed: int | None = None


def save_chart(title: str, lines: Sequence[Line], picture: Picture, folder: Path, *, steps: str) -> tuple[Path, str]:
    """Save a chart as `<title>.csv` and, if that is possible, as a picture. Existing files are not overwritten.

    Args:
        steps: name of the column with the lines' steps.

    Returns:
        the path without suffix, and why there is no picture. Raises `OSError` if the table can't be written.
    """
    points = io.StringIO(newline="")
    csv.writer(points).writerows(_rows(lines, steps))
    path = save_files(title, {".csv": points.getvalue()}, folder, later=SUFFIXES)
    try:
        _write(path, draw(picture))
    except (OSError, UserError) as error:
        return path, str(error)
    return path, ""


def save_files(title: str, contents: Mapping[str, str], folder: Path, *, later: Sequence[str] = ()) -> Path:
    """Write `<title><suffix>` for each suffix, all or none; returns the path without suffix. Existing files are not
    overwritten, also those with the suffixes of what follows `later`. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _free(folder, title, (*contents, *later))
    _write(path, {suffix: content.encode() for suffix, content in contents.items()})
    return path


def _write(path: Path, contents: Mapping[str, bytes]) -> None:
    """All or none."""
    with contextlib.ExitStack() as undo:
        for suffix, content in contents.items():
            with Path(f"{path}{suffix}").open("xb") as file:
                undo.callback(Path(f"{path}{suffix}").unlink)
                file.write(content)
        undo.pop_all()


def _rows(lines: Sequence[Line], steps: str) -> list[tuple[str, ...]]:
    """The head, and a row per point; with setting and seed if any line has them."""
    with_seeds = any(line.setting is not None for line in lines)
    rows: list[tuple[str, ...]] = [("series", *(("setting", "seed") if with_seeds else ()), steps, "seconds", "value")]
    for line in lines:
        seed = "" if line.seed is None else printable(f"{line.seed}")
        names = printable(line.name), *((printable(line.setting or ""), seed) if with_seeds else ())
        for step, at, value in zip(line.steps, line.seconds, line.values, strict=True):
            rows.append((*names, f"{step:.0f}", f"{at:.3f}", repr(float(value))))
    return rows


def _free(folder: Path, title: str, suffixes: Iterable[str]) -> Path:
    """A path of which there is no file yet: the title, or with a number `title-2`, `title-3` ..."""
    name = re.sub(r"[^\w.-]+", "-", printable(title)).encode()[:_MOST_BYTES].decode(errors="ignore")
    name = name.strip("-.") or "chart"
    path, number = folder / name, 1
    while any(os.path.lexists(f"{path}{suffix}") for suffix in suffixes):
        number += 1
        path = folder / f"{name}-{number}"
    return path


SUFFIXES = (".svg", ".pdf")
_TIMEOUT_S = 120
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Of Okabe and Ito: they differ for colour-blind eyes, too."""
_STYLES = ("-", "--", "-.", ":")
_MOST_NAMED = 40
"""Curves up to which there is a legend."""
_SETTINGS: dict[str, Any] = {
    "axes.grid": True, "axes.spines.right": False, "axes.spines.top": False, "font.size": 8, "grid.alpha": 0.3,
    "legend.fontsize": 6, "lines.linewidth": 1.2, "lines.markersize": 3, "pdf.fonttype": 42,
    "svg.hashsalt": "mario-tui", "text.parse_math": False,
}  # fmt: skip


class PictureCurve(msgspec.Struct, frozen=True):
    """A line, with the ends of an interval and the number of runs at each of its points if it is a mean."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    bounds: Sequence[Sequence[float]] = ()
    counts: Sequence[int] = ()


class Picture(msgspec.Struct, frozen=True):
    """A chart. `x_range`: what is shown of x."""

    title: str
    x_label: str
    x_range: tuple[float, float]
    logarithmic: bool
    curves: Sequence[PictureCurve]


def draw(picture: Picture) -> dict[str, bytes]:
    """The picture by its suffixes. Raises `UserError` if matplotlib is missing or fails."""
    if find_spec("matplotlib") is None:
        raise UserError(f"for pictures: {install_command('pictures')}")
    command = [sys.executable, "-P", "-m", __name__]
    try:
        given = msgspec.msgpack.encode(picture, enc_hook=list)  # arrays, too
        done = subprocess.run(command, input=given, capture_output=True, timeout=_TIMEOUT_S, check=False)
        return msgspec.msgpack.decode(done.stdout, type=dict[str, bytes])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the picture could not be drawn: {error}") from None
    except msgspec.DecodeError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [how_it_ended(done.returncode)]
        raise UserError(f"the picture could not be drawn: {printable(lines[-1])}") from None


def _drawn(picture: Picture) -> dict[str, bytes]:
    os.chdir("/")
    os.environ["MATPLOTLIBRC"] = os.devnull
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import EngFormatter

    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_SETTINGS)
    figure = Figure(figsize=(5.5, 3.4), layout="constrained")
    axes = figure.subplots()
    handles = []
    for number, curve in enumerate(picture.curves):
        colour, style = _COLOURS[number % len(_COLOURS)], _STYLES[number // len(_COLOURS) % len(_STYLES)]
        marker = "o" if len(curve.xs) == 1 else ""
        handles += axes.plot(curve.xs, curve.ys, color=colour, linestyle=style, marker=marker)
        if curve.bounds:
            axes.fill_between(curve.xs, *curve.bounds, color=colour, alpha=0.2, linewidth=0)
        for at in changes(curve.counts):
            place, count = (curve.xs[at], curve.ys[at]), curve.counts[at]
            axes.annotate(f"n={count}", place, (0, 2), textcoords="offset points", color=colour, fontsize=5)
    names = [curve.name for curve in picture.curves]
    if any(curve.bounds for curve in picture.curves):
        handles.append(Patch(color="gray", alpha=0.3, linewidth=0))
        names.append("95 % interval (Student's t)")
    if len(picture.curves) <= _MOST_NAMED:
        legend = figure.legend(handles, ["name"] * len(names), loc="outside lower center", ncols=2)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(name)  # afterwards: a legend leaves out names that begin with an underscore
    axes.set(xlabel=picture.x_label, ylabel=picture.title)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if picture.logarithmic:
        axes.set_yscale("log", nonpositive="mask")
    if picture.x_range[0] < picture.x_range[1]:
        axes.set_xlim(*picture.x_range)
    files = {}
    for suffix, date in zip(SUFFIXES, ("Date", "CreationDate"), strict=True):
        figure.savefig(file := io.BytesIO(), format=suffix[1:], metadata={date: None})
        files[suffix] = file.getvalue()
    return files


def changes(counts: Sequence[int]) -> list[int]:
    """Return where the number of runs changes, and the start, if it does."""
    pairs = enumerate(pairwise([0, *counts])) if len(set(counts)) > 1 else ()
    return [at for at, (before, count) in pairs if count != before]


if __name__ == "__main__":
    sys.stdout.buffer.write(
        msgspec.msgpack.encode(_drawn(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Picture)))
    )
