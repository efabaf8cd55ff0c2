"""The layout and axes of a screen with panels, saved in `$XDG_STATE_HOME/mario-tui/<place>.json`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.runtime.files import write_if_possible
from engine.runtime.home import program_folder
from engine.runtime.json_text import read_json
from mario_tui.data.keys import Place
from mario_tui.widgets.charts.view import SMOOTHINGS, Axis
from mario_tui.widgets.panels.actors import COLUMNS

SORTS = [column.name for column in COLUMNS]
_MAX_BYTES = 2**16


class Remembered(msgspec.Struct):
    """The saved layout. Unknown keys are ignored, so that an older version can read a newer file."""

    hidden: list[str] = []
    maximised: str = ""
    logarithmic: list[str] = []
    smoothing: float = 0.0
    axis: Axis = "steps"
    sort: str = "lane"  # of the actors
    turned: bool = False
    introduced: bool = False
    """Whether the panels have been explained."""


def file(place: Place) -> Path:
    return program_folder("STATE") / f"{place}.json"


def recall(place: Place) -> Remembered:
    """Load the saved layout; the default if the file is missing or invalid."""
    try:
        found = read_json(file(place), Remembered, _MAX_BYTES, links=True)
    except (OSError, ValueError):
        return Remembered()
    if found.smoothing not in SMOOTHINGS or found.sort not in SORTS:
        return Remembered()
    return found


def remember(place: Place, state: Remembered) -> None:
    """Save the layout, if the user's home can be written."""
    write_if_possible(file(place), msgspec.json.encode(state))
