"""Reading TOML files that a user names or edits: run options, settings, themes. They may be anything, also no file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from engine.runtime.files import read_bounded

_MAX_BYTES = 2**20


def read_toml(path: Path) -> dict[str, Any]:
    """The values in a TOML file.

    Raises `OSError` if it is not a regular file, is larger than 1 MiB or can't be read, and `ValueError`, with a reason
    of one line, if it is not TOML in UTF-8.
    """
    return parsed_toml(toml_text(path))


def toml_text(path: Path) -> str:
    """The text of a TOML file. Raises as `read_toml` does."""
    return read_bounded(path, _MAX_BYTES, links=True).decode("utf-8")


def parsed_toml(text: str) -> dict[str, Any]:
    """The values in the text of a TOML file. Raises `ValueError` with a reason of one line."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also a number of 5,000 digits
        raise ValueError(str(error).splitlines()[0]) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
