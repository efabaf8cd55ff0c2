"""The viewer of TensorBoard's event files, as any program writes them.

`EventFolder` reads scalars, hyper-parameters and what else is there; `problem_of` tells why a file is none; `charts` is
the screen. What reads imports neither torch and NumPy nor TensorBoard's own loader, which takes a second to import and
follows a single file. Text from the files is bounded in length, but not printable: `engine.runtime.text.printable`
makes it so where it is shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mario_tui.extras.event_files.files import discards_in, event_files, problem_of, scalars_in
from mario_tui.extras.event_files.folder import EventFolder, News
from mario_tui.extras.event_files.history import MOST_POINTS, Columns, History
from mario_tui.extras.event_files.hparams import Metric, Session, metrics_of
from mario_tui.extras.event_files.others import UNNAMED, Other
from mario_tui.extras.event_files.scan import MOST_SERIES

if TYPE_CHECKING:
    from textual.screen import Screen

__all__ = [
    "MOST_POINTS",
    "MOST_SERIES",
    "UNNAMED",
    "Columns",
    "EventFolder",
    "History",
    "Metric",
    "News",
    "Other",
    "Session",
    "discards_in",
    "event_files",
    "metrics_of",
    "problem_of",
    "scalars_in",
    "screen",
    "shows",
]


def shows(path: Path) -> bool:
    """Return whether a path is an event file, or a folder with event files."""
    return bool(event_files(path)) if path.is_dir() else not problem_of(path)


def screen(path: Path) -> Screen[None]:
    """Make the screen that shows the event files at a path, which may not be there yet."""
    from mario_tui.extras.event_files.charts import ChartsScreen

    return ChartsScreen(path)
