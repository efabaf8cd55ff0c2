"""The user's home folder, which a process may not have, and this program's folders in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

_USUAL = {"CACHE": ".cache", "CONFIG": ".config", "STATE": ".local/state"}


def home() -> Path:
    """The user's home folder.

    A user without an entry in the password database, as in containers, has none unless `HOME` is set. Nothing can be
    found or created below the path that stands for it then, just as in a home that can't be read or written.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def program_folder(kind: Literal["CACHE", "CONFIG", "STATE"]) -> Path:
    """This program's folder for its caches, settings or state: `mario-tui` below `$XDG_<kind>_HOME`, or below the usual
    place in the home folder. A relative one is ignored (https://specifications.freedesktop.org/basedir-spec/): it would
    be another folder in each process, and in a run's host one of the run."""
    given = Path(os.environ.get(f"XDG_{kind}_HOME", ""))
    return (given if given.is_absolute() else home() / _USUAL[kind]) / "mario-tui"
