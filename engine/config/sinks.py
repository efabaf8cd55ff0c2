"""Names of sinks besides TensorBoard, which every run has: the one that comes with the program, and those of installed
packages, found without importing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from engine.config.fields import NONE, ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

JSON_LINES = "json-lines"
ENTRY_POINTS = "mario_tui.sinks"
"""The group of entry points by which a package offers sinks, as `name = "module:Class"`."""


def sink_names(value: str) -> tuple[str, ...]:
    """The names in a value of `--sinks`."""
    return () if value == NONE else tuple(dict.fromkeys(name.strip() for name in value.split(",")))


def installed_sinks() -> Mapping[str, EntryPoint]:
    """The sinks of installed packages by name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS) if point.name not in (JSON_LINES, NONE)}


def check_sinks(names: Iterable[str]) -> None:
    """Raise `ConfigError` for the first name that is none of a sink."""
    for name in names:
        if name != JSON_LINES and name not in (known := installed_sinks()):
            accepted = ", ".join((JSON_LINES, *sorted(known)))
            raise ConfigError("sinks", f"must be {NONE}, or names among {accepted}, separated by commas; got {name!r}")
