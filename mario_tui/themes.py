"""Colour themes from TOML files: those of the package, then the user's own in `$XDG_CONFIG_HOME/mario-tui/themes`.

A file that can't be used is reported and left out; it never stops the start.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

DEFAULT = "mario"
_COLOURS = (
    "primary", "secondary", "accent", "warning", "error", "success", "foreground", "background", "surface", "panel",
)  # fmt: skip
_REQUIRED = ("name", "primary")


class ThemeError(ValueError):
    """A theme file says something that is not accepted; the message names file and key."""


def user_folder() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(config) / "mario-tui" / "themes"


def package_folder() -> Path:
    """`themes/` inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "themes"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "themes"


def load_themes() -> tuple[list[Theme], list[str]]:
    """All themes, the user's after the package's, and what was wrong with files that were left out."""
    themes: list[Theme] = []
    complaints: list[str] = []
    for folder in (package_folder(), user_folder()):
        for path in sorted(folder.glob("*.toml")):
            try:
                themes.append(load_theme(path))
            except ThemeError as error:
                complaints.append(str(error))
    return themes, complaints


def load_theme(path: Path) -> Theme:
    """One theme. Raises `ThemeError` naming file, key and accepted values."""
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ThemeError(f"{path}: {str(error).splitlines()[0]}") from None
    accepted = ("name", "dark", *_COLOURS)
    for key, value in values.items():
        if key not in accepted:
            raise ThemeError(f"{path}: unknown key {key!r}; accepted: {', '.join(accepted)}")
        if key in _COLOURS:
            try:
                Color.parse(value)
            except (ColorParseError, TypeError):
                raise ThemeError(f"{path}: {key}: {value!r} is not a colour; accepted: #rrggbb or a name") from None
        elif not isinstance(value, bool if key == "dark" else str):
            raise ThemeError(
                f"{path}: {key}: {value!r} is not accepted; accepted: a {'bool' if key == 'dark' else 'text'}"
            )
    for key in _REQUIRED:
        if key not in values:
            raise ThemeError(f"{path}: {key}: is missing")
    names = {field.name for field in dataclasses.fields(Theme)}
    return Theme(**{key: value for key, value in values.items() if key in names})
