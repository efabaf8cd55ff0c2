"""The user's home folder, which a process may not have."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The user's home folder.

    A user without an entry in the password database, as in containers, has none unless `HOME` is set. Nothing can be
    found or created below the path that stands for it then, just as in a home that can't be read or written.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)
