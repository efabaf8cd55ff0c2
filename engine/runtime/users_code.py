"""Where in the user's own code an error was raised."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from engine.runtime.text import printable

_NOT_OF_USER = ("<", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).parents[1]}/")
"""What the paths of Python's and the engine's own code begin with."""
_INSTALLED = ("site-packages", "dist-packages")


def place_of(error: BaseException) -> str:
    """` (FILE:LINE)`, or nothing if none of the user's own code is in the traceback."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if not str(path).startswith(_NOT_OF_USER) and not set(_INSTALLED) & set(path.parts):
            place = f" ({printable(path.name)}:{line})"
    return place
