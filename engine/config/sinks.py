"""Names of sinks besides TensorBoard, which every run has: those that come with the program, and those of installed
packages, found without importing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from engine.config.entry_points import SINKS, Plugin, offered
from engine.config.fields import NONE, ConfigError
from engine.runtime.extras import install_command

JSON_LINES = "json-lines"


@dataclass(frozen=True)
class Tracker:
    """A sink for an experiment tracker, whose packages an extra of the sink's name brings."""

    place: str
    """Its class, as `module:class`."""
    packages: tuple[str, ...]
    """What it imports."""


POLICY = ":policy"
"""Behind the name of a tracker: at its end, the run's policy goes there too."""
_MLFLOW = Tracker("engine.sinks.trackers.mlflow:MLflow", ("mlflow", "sqlalchemy", "alembic"))
_WANDB = Tracker("engine.sinks.trackers.wandb:WandB", ("wandb",))
TRACKERS: Mapping[str, Tracker] = {
    "mlflow": _MLFLOW,
    f"mlflow{POLICY}": _MLFLOW,
    "trackio": Tracker("engine.sinks.trackers.trackio:Trackio", ("trackio",)),
    "wandb": _WANDB,
    f"wandb{POLICY}": _WANDB,
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
    """Raise `ConfigError` for the first name that is none of a sink, that stands for the same tracker as another, or
    whose packages are missing."""
    names = list(names)
    for name in names:
        extra = name.removesuffix(POLICY)
        if extra != name and extra in names:
            raise ConfigError("sinks", f"must name {extra} once, with {POLICY} or without")
        if name in TRACKERS:
            if not all(map(_is_installed, TRACKERS[name].packages)):
                needed = f"{name} needs packages that are missing; install them with: {install_command(extra)}"
                raise ConfigError("sinks", needed)
        elif name != JSON_LINES and name not in (known := installed_sinks()):
            accepted = ", ".join((*_BUILT_IN, *sorted(known)))
            raise ConfigError("sinks", f"must be {NONE}, or names among {accepted}, separated by commas; got {name!r}")


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a folder of that name, such as W&B's own, is no package
