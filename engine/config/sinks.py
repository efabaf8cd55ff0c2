"""Names of sinks besides TensorBoard, which every run has: the one that comes with the program, and those of installed
packages, found without importing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.config.entry_points import SINKS, Plugin, offered
from engine.config.fields import NONE, ConfigError

JSON_LINES = "json-lines"


def sink_names(value: str) -> tuple[str, ...]:
    """The names in a value of `--sinks`."""
    return () if value == NONE else tuple(dict.fromkeys(name.strip() for name in value.split(",")))


def installed_sinks() -> Mapping[str, Plugin]:
    """The sinks of installed packages by name."""
    return {sink.name: sink for sink in offered(SINKS) if sink.name not in (JSON_LINES, NONE)}


def check_sinks(names: Iterable[str]) -> None:
    """Raise `ConfigError` for the first name that is none of a sink."""
    for name in names:
        if name != JSON_LINES and name not in (known := installed_sinks()):
            accepted = ", ".join((JSON_LINES, *sorted(known)))
            raise ConfigError("sinks", f"must be {NONE}, or names among {accepted}, separated by commas; got {name!r}")
