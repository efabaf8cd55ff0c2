"""How to start this program again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "mario-tui"


def program() -> str:
    """What a shell calls this program: `mario-tui`, or its path if that name stands for nothing or for another one, as
    after `make train`."""
    started = Path(sys.argv[0])
    if started.name != NAME or not started.is_file():  # `python -m mario_tui`
        return NAME if shutil.which(NAME) else f"{shlex.quote(sys.executable)} -m mario_tui"
    found = shutil.which(NAME)
    if found is not None and Path(found).samefile(started):
        return NAME
    inside = started.absolute().is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(started) if inside else str(started.absolute()))
