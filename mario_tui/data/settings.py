"""The user's settings: theme, frame rate and graphics of the game view, notifications and key map, in
`$XDG_CONFIG_HOME/mario-tui/settings.toml`.

An invalid value is reported with file, key and accepted values, and replaced by its default; it never prevents the
start. The program writes only the theme's line, when the user chooses another theme.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.config.fields import must_be_one_of
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runtime.files import write_atomically
from engine.runtime.home import program_folder
from engine.runtime.toml_file import parsed_toml, toml_text
from mario_tui.data.keys import KEYS, PLACES
from mario_tui.terminal.graphics import GRAPHICS
from mario_tui.terminal.internals import key_name

DEFAULT_THEME = RunConfig.game
"""The theme that is named like the default game."""
GAME_FPS = (1, 15)
"""Minimum and maximum frame rate of the game view, in frames per second."""
_ACCEPTED = ("theme", "game_fps", "graphics", "notifications", "keys")
_THEME_LINE = re.compile(r"""^[ \t]*theme[ \t]*=[ \t]*("[^"\n]*"|'[^'\n]*')""", re.MULTILINE)


class SettingsError(UserError):
    """The settings file can't be read or written; the message names it."""


@dataclass(frozen=True)
class Settings:
    """The settings in effect. `keys` maps action ids to keys: `dashboard.save` -> `w,f2`."""

    theme: str = DEFAULT_THEME
    game_fps: float = 10.0
    keys: Mapping[str, str] = field(default_factory=dict)
    graphics: str = "auto"
    notifications: bool = True
    """Whether the terminal's bell rings, and a desktop notification is sent, when something has happened to a run."""


def config_folder() -> Path:
    """Folder of the settings and the user's themes."""
    return program_folder("CONFIG")


def settings_path() -> Path:
    return config_folder() / "settings.toml"


def load_settings() -> tuple[Settings, list[str]]:
    """The settings, and a message for each invalid one. Never raises."""
    path = settings_path()
    try:
        _, values = _read(path)
    except SettingsError as error:
        return Settings(), [str(error)]
    good: dict[str, Any] = {}
    errors: list[str] = []

    def reject(key: str, value: object, expected: str) -> None:
        errors.append(f"{path}: {key} must be {expected}, got {value!r}")

    for key, value in values.items():
        if key == "theme":
            if isinstance(value, str) and value:
                good[key] = value
            else:
                reject(key, value, "a theme's name")
        elif key == "game_fps":
            low, high = GAME_FPS
            if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
                good[key] = float(value)
            else:
                reject(key, value, f"between {low} and {high}")
        elif key == "notifications":
            if isinstance(value, bool):
                good[key] = value
            else:
                reject(key, value, "true or false")
        elif key == "graphics":
            if value in GRAPHICS:
                good[key] = value
            else:
                errors.append(f"{path}: graphics {must_be_one_of(GRAPHICS, value)}")
        elif key == "keys":
            if isinstance(value, dict):
                good[key], wrong = _key_map(value, path)
                errors += wrong
            else:
                reject(key, value, 'a table: [keys], then lines such as "dashboard.save" = "S"')
        else:
            errors.append(f"{path}: unknown key {key!r}; must be one of {', '.join(_ACCEPTED)}")
    return Settings(**good), [str(SettingsError(error)) for error in errors]


def remember_theme(name: str) -> None:
    """Write the theme's line and leave all others unchanged. Raises `SettingsError` if that is not possible."""
    path = settings_path()
    line = f'theme = "{name}"'
    try:
        before, values = _read(path)
        if values.get("theme") == name:
            return
        after, count = _THEME_LINE.subn(lambda found: line, before, count=1)
        if not count or parsed_toml(after) != {**values, "theme": name}:
            after = f"{line}\n{before}"  # before the first table
        if parsed_toml(after) != {**values, "theme": name}:
            raise SettingsError(f"{path}: theme can't be changed automatically; add the line {line}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path.resolve(), after.encode())  # a link stays a link
    except ValueError:
        raise SettingsError(f"{path}: theme can't be changed automatically; add the line {line}") from None
    except OSError as error:
        raise SettingsError(f"{path}: can't be written ({error.strerror or error})") from None


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of the file, and the values in it. Raises `SettingsError`."""
    try:
        text = toml_text(path)
        return text, parsed_toml(text)
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        raise SettingsError(f"{path}: can't be read ({error.strerror or error})") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None


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
