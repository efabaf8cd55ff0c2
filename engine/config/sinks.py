"""Names of sinks besides TensorBoard, which every run has: those that come with the program, and those of installed
packages, found without importing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from engine.config.entry_points import SINKS, Plugin, offered
from engine.config.fields import NONE, ConfigError

JSON_LINES = "json-lines"


@dataclass(frozen=True)
class Tracker:
    """A sink for an experiment tracker, whose packages an extra of the sink's name brings."""

    place: str
    """Its class, as `module:class`."""
    packages: tuple[str, ...]
    """What it imports."""


TRACKERS: Mapping[str, Tracker] = {
    "mlflow": Tracker("engine.sinks.trackers.mlflow:MLflow", ("mlflow", "sqlalchemy", "alembic")),
    "trackio": Tracker("engine.sinks.trackers.trackio:Trackio", ("trackio",)),
    "wandb": Tracker("engine.sinks.trackers.wandb:WandB", ("wandb",)),
}
_BUILT_IN = (JSON_LINES, *TRACKERS)


def sink_names(value: str) -> tuple[str, ...]:
    """The names in a value of `--sinks`."""
    return () if value == NONE else tuple(dict.fromkeys(name.strip() for name in value.split(",")))


def installed_sinks() -> Mapping[str, Plugin]:
    """The sinks of installed packages by name."""
    return {sink.name: sink for sink in offered(SINKS) if sink.name not in (*_BUILT_IN, NONE)}


def place_of(name: str) -> str:
    """The class of a sink that runs in a process of its own, as `module:class`."""
    return TRACKERS[name].place if name in TRACKERS else installed_sinks()[name].place


def check_sinks(names: Iterable[str]) -> None:
    """Raise `ConfigError` for the first name that is none of a sink, or of one whose packages are missing."""
    for name in names:
        if name in TRACKERS:
            if not all(map(_is_installed, TRACKERS[name].packages)):
                needed = f"{name} needs packages that are missing; install them with: pip install 'mario-tui[{name}]'"
                raise ConfigError("sinks", needed)
        elif name != JSON_LINES and name not in (known := installed_sinks()):
            accepted = ", ".join((*_BUILT_IN, *sorted(known)))
            raise ConfigError("sinks", f"must be {NONE}, or names among {accepted}, separated by commas; got {name!r}")


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a folder of that name, such as W&B's own, is no package
