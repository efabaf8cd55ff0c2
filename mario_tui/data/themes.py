"""Colour themes from TOML files: those of the package, then the user's own in `$XDG_CONFIG_HOME/mario-tui/themes`.

An invalid file is reported and skipped; it never prevents the start. `ThemeWatch` detects changed files.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from engine.config.fields import must_be_one_of
from engine.errors import UserError
from engine.runtime.toml_file import read_toml
from mario_tui.data.settings import config_folder

WITHOUT_COLOUR = "ansi"
"""The theme used with NO_COLOR: it does not depend on colours."""
_COLOURS = (
    "primary", "secondary", "accent", "warning", "error", "success", "foreground", "background", "surface", "panel",
)  # fmt: skip
_FLAGS = ("dark", "ansi")
_REQUIRED = ("name", "primary")
_STYLES = ("none", "bold", "dim", "italic", "reverse", "underline")
_ACCEPTED = ("name", *_FLAGS, *_COLOURS, "variables")


class ThemeError(UserError):
    """A theme file is invalid; the message names file and key."""


def user_folder() -> Path:
    return config_folder() / "themes"


def package_folder() -> Path:
    """`themes/` inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parents[1] / "themes"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "themes"


def load_themes() -> tuple[list[Theme], list[str]]:
    """All themes, the package's first, and an error message for each invalid file."""
    themes: list[Theme] = []
    errors: list[str] = []
    for folder in (package_folder(), user_folder()):
        try:
            paths = sorted(folder.glob("*.toml"))
        except OSError as error:
            errors.append(f"{folder}: can't be read ({error.strerror or error})")
            continue
        for path in paths:
            try:
                themes.append(load_theme(path))
            except ThemeError as error:
                errors.append(str(error))
    return themes, errors


def load_theme(path: Path) -> Theme:
    """One theme. Raises `ThemeError` naming file, key and accepted values."""
    try:
        values = read_toml(path)
    except OSError as error:
        raise ThemeError(f"{path}: can't be read ({error.strerror or error})") from None
    except ValueError as error:
        raise ThemeError(f"{path}: {error}") from None
    for key, value in values.items():
        if key not in _ACCEPTED:
            raise ThemeError(f"{path}: unknown key {key!r}; must be one of {', '.join(_ACCEPTED)}")
        if key in _COLOURS:
            _check_colour(path, key, value)
        elif key == "variables":
            _check_variables(path, value)
        elif not isinstance(value, bool if key in _FLAGS else str):
            kind = "true or false" if key in _FLAGS else "text"
            raise ThemeError(f"{path}: {key} must be {kind}, got {value!r}")
    for key in _REQUIRED:
        if not values.get(key):
            raise ThemeError(f"{path}: {key} is missing")
    theme = Theme(**values)
    known = theme.to_color_system().generate()
    for name in theme.variables:
        if name not in known and name not in _variables():
            raise ThemeError(f"{path}: variables.{name} is not a variable of Textual's themes")
    if theme.ansi:  # Textual derives fewer variables from its colours than its style sheets use
        theme.variables = BUILTIN_THEMES["ansi-dark" if theme.dark else "ansi-light"].variables | theme.variables
    return theme


class ThemeWatch:
    """Detects changes of the user's theme files, with one `stat` per file."""

    def __init__(self) -> None:
        self._seen = self._look()

    def changed(self) -> bool:
        """Whether a file was added, removed or written since the last call."""
        before, self._seen = self._seen, self._look()
        return before != self._seen

    def _look(self) -> dict[str, tuple[int, int]]:
        found = {}
        with contextlib.suppress(OSError):  # the folder can't be read at the moment
            for path in user_folder().glob("*.toml"):
                with contextlib.suppress(OSError):  # deleted in the meantime
                    status = path.stat()
                    found[str(path)] = (status.st_mtime_ns, status.st_size)
        return found


def _check_colour(path: Path, key: str, value: object) -> None:
    try:
        Color.parse(value)
    except (ColorParseError, TypeError, AttributeError):
        raise ThemeError(f"{path}: {key} must be a colour (#rrggbb or a name), got {value!r}") from None


def _check_variables(path: Path, values: object) -> None:
    if not isinstance(values, dict):
        raise ThemeError(f"{path}: variables must be a table, got {values!r}")
    for name, value in values.items():
        if not name.endswith("-style"):
            _check_colour(path, f"variables.{name}", value)
        elif not isinstance(value, str) or not set(value.split()) <= set(_STYLES):
            raise ThemeError(f"{path}: variables.{name} {must_be_one_of(_STYLES, value)}")


def _variables() -> set[str]:
    """Names of the variables in Textual's built-in themes."""
    return {name for theme in BUILTIN_THEMES.values() for name in theme.variables}
