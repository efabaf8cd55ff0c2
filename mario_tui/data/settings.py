"""The user's settings: theme, frame rate and graphics of the game view, notifications and key map, in
`$XDG_CONFIG_HOME/mario-tui/settings.toml`; and themes, which are TOML files of the package and, in the folder `themes`
beside the settings, of the user.

An invalid value is reported with file, key and accepted values, and replaced by its default; an invalid theme is
skipped. Neither prevents the start. The program writes only the theme's line, when the user chooses another theme.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from engine.config.fields import must_be_one_of
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runtime.files import program_folder, write_atomically
from engine.runtime.formats import parsed_toml, toml_text
from mario_tui.data.keys import KEYS, PLACES
from mario_tui.terminal.graphics import GRAPHICS
from mario_tui.terminal.internals import key_name

DEFAULT_THEME = RunConfig.game
"""The theme that is named like the default game."""
GAME_FPS = (1, 15)
"""Minimum and maximum frame rate of the game view, in frames per second."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_frame_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and GAME_FPS[0] <= value <= GAME_FPS[1]


_ACCEPTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "theme": (_is_text, "a theme's name"),
    "game_fps": (_is_frame_rate, f"between {GAME_FPS[0]} and {GAME_FPS[1]}"),
    "graphics": (GRAPHICS.__contains__, f"one of {', '.join(GRAPHICS)}"),
    "notifications": (lambda value: isinstance(value, bool), "true or false"),
    "alert_command": (_is_text, "a command of the shell"),
    "keys": (lambda value: isinstance(value, dict), 'a table: [keys], then lines such as "dashboard.save" = "S"'),
}
"""What each setting may be, and how an error tells it."""
_THEME_LINE = re.compile(r"""^[ \t]*theme[ \t]*=[ \t]*("[^"\n]*"|'[^'\n]*')""", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """The settings in effect. `keys` maps action ids to keys: `dashboard.save` -> `w,f2`."""

    theme: str = DEFAULT_THEME
    game_fps: float = 10.0
    keys: Mapping[str, str] = field(default_factory=dict)
    graphics: str = "auto"
    notifications: bool = True
    """Whether the terminal's bell rings, and a desktop notification is sent, when something has happened to a run."""
    alert_command: str = ""
    """The default of `mario-tui alerts --alert-command`."""


def config_folder() -> Path:
    """Folder of the settings and the user's themes."""
    return program_folder("CONFIG")


def settings_path() -> Path:
    return config_folder() / "settings.toml"


def load_settings() -> tuple[Settings, list[str]]:
    """The settings, and a message for each invalid one. Never raises."""
    path = settings_path()
    try:
        _, values = _read(path, may_miss=True)
    except UserError as error:
        return Settings(), [str(error)]
    good: dict[str, Any] = {}
    errors: list[str] = []
    for key, value in values.items():
        if key not in _ACCEPTED:
            errors.append(f"{path}: unknown key {key!r}; must be one of {', '.join(_ACCEPTED)}")
            continue
        accepts, expected = _ACCEPTED[key]
        if not accepts(value):
            errors.append(f"{path}: {key} must be {expected}, got {value!r}")
        elif key == "keys":
            good[key], wrong = _key_map(value, path)
            errors += wrong
        else:
            good[key] = float(value) if key == "game_fps" else value
    return Settings(**good), [str(UserError(error)) for error in errors]


def remember_theme(name: str) -> None:
    """Write the theme's line and leave all others unchanged. Raises `UserError` if that is not possible."""
    path = settings_path()
    line = f'theme = "{name}"'
    try:
        before, values = _read(path, may_miss=True)
        if values.get("theme") == name:
            return
        after, count = _THEME_LINE.subn(lambda found: line, before, count=1)
        if not count or parsed_toml(after) != {**values, "theme": name}:
            after = f"{line}\n{before}"  # before the first table
        if parsed_toml(after) != {**values, "theme": name}:
            raise UserError(f"{path}: theme can't be changed automatically; add the line {line}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path.resolve(), after.encode())  # a link stays a link
    except ValueError:
        raise UserError(f"{path}: theme can't be changed automatically; add the line {line}") from None
    except OSError as error:
        raise UserError(f"{path}: can't be written ({error.strerror or error})") from None


def _read(path: Path, *, may_miss: bool = False) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file, and the values in it; nothing of one that `may_miss` and does. Raises `UserError`."""
    try:
        text = toml_text(path)
        return text, parsed_toml(text)
    except OSError as error:
        if may_miss and isinstance(error, FileNotFoundError):
            return "", {}
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def _key_map(values: Mapping[str, object], path: Path) -> tuple[dict[str, str], list[str]]:
    """The valid part of a key map, with Textual's key names, and an error message for each other entry."""
    defaults = {key.id: key.keys for key in KEYS}
    good: dict[str, str] = {}
    errors: list[str] = []
    for name, value in _flat(values):
        where = f"{path}: keys.{name}"
        if name not in defaults:
            place = name.partition(".")[0]
            here = [key.id for key in KEYS if key.place == place] or [f"{place}. ..." for place in PLACES]
            errors.append(f"{where}: no such action; must be one of {', '.join(here)}")
            continue
        names = [key_name(part.strip()) for part in value.split(",")] if isinstance(value, str) else [None]
        if None in names:
            expected = "one or more keys separated by commas, such as a, f2, ctrl+g, space, left"
            errors.append(f"{where} must be {expected}, got {value!r}")
            continue
        good[name] = ",".join(str(part) for part in names)
    for name in list(good):
        other = _conflict(name, {**defaults, **good})
        if other is not None:
            errors.append(f"{path}: keys.{name}: {good.pop(name)!r} is already used by {other}; give that another key")
    return good, errors


def _flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Entries with dotted names: `"home.new" = "a"` and `home.new = "a"` are the same."""
    found: list[tuple[str, object]] = []
    for name, value in values.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found


def _conflict(name: str, keys: Mapping[str, str]) -> str | None:
    """Another action with one of the same keys at the same place; None if there is none."""
    place = name.partition(".")[0]
    wanted = set(keys[name].split(","))
    for other, theirs in keys.items():
        elsewhere = other.partition(".")[0]
        together = place == elsewhere or "everywhere" in (place, elsewhere)
        if other != name and together and wanted & set(theirs.split(",")):
            return other
    return None


WITHOUT_COLOUR = "ansi"
"""The theme used with NO_COLOR: it does not depend on colours."""
_COLOURS = (
    "primary", "secondary", "accent", "warning", "error", "success", "foreground", "background", "surface", "panel",
)  # fmt: skip
_FLAGS = ("dark", "ansi")
_REQUIRED = ("name", "primary")
_STYLES = ("none", "bold", "dim", "italic", "reverse", "underline")
_THEMES_ACCEPTED = ("name", *_FLAGS, *_COLOURS, "variables")


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
            except UserError as error:
                errors.append(str(error))
    return themes, errors


def load_theme(path: Path) -> Theme:
    """One theme. Raises `UserError` naming file, key and accepted values."""
    _, values = _read(path)
    for key, value in values.items():
        if key not in _THEMES_ACCEPTED:
            raise UserError(f"{path}: unknown key {key!r}; must be one of {', '.join(_THEMES_ACCEPTED)}")
        if key in _COLOURS:
            _check_colour(path, key, value)
        elif key == "variables":
            _check_variables(path, value)
        elif not isinstance(value, bool if key in _FLAGS else str):
            kind = "true or false" if key in _FLAGS else "text"
            raise UserError(f"{path}: {key} must be {kind}, got {value!r}")
    for key in _REQUIRED:
        if not values.get(key):
            raise UserError(f"{path}: {key} is missing")
    theme = Theme(**values)
    known = theme.to_color_system().generate()
    for name in theme.variables:
        if name not in known and name not in _variables():
            raise UserError(f"{path}: variables.{name} is not a variable of Textual's themes")
    if theme.ansi:  # Textual derives fewer variables from its colours than its style sheets use
        theme.variables = BUILTIN_THEMES["ansi-dark" if theme.dark else "ansi-light"].variables | theme.variables
    return theme


def theme_files() -> dict[str, tuple[int, int]]:
    """Time and size of each of the user's theme files: others once a file was added, removed or written."""
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
        raise UserError(f"{path}: {key} must be a colour (#rrggbb or a name), got {value!r}") from None


def _check_variables(path: Path, values: object) -> None:
    if not isinstance(values, dict):
        raise UserError(f"{path}: variables must be a table, got {values!r}")
    for name, value in values.items():
        if not name.endswith("-style"):
            _check_colour(path, f"variables.{name}", value)
        elif not isinstance(value, str) or not set(value.split()) <= set(_STYLES):
            raise UserError(f"{path}: variables.{name} {must_be_one_of(_STYLES, value)}")


def _variables() -> set[str]:
    """Names of the variables in Textual's built-in themes."""
    return {name for theme in BUILTIN_THEMES.values() for name in theme.variables}
