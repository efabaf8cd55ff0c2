"""Names of sinks besides TensorBoard, which every run has: those that come with the program, and those of installed
packages, found without importing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from engine.config.entry_points import SINKS, Plugin, offered
from engine.config.features import place_of_feature
from engine.config.fields import NONE, ConfigError
from engine.runtime.text import install_command

JSON_LINES = "json-lines"


@dataclass(frozen=True)
class Tracker:
    """A sink for an experiment tracker: a feature of its name, whose packages an extra of this name brings."""

    packages: tuple[str, ...]
    """What it imports."""
    database: tuple[str, str] | None = None
    """The variable that names the place of its SQLite database, and the value for the usual one in a run's folder, from
    the folder's path; None if it has none."""


POLICY = ":policy"
"""Behind the name of a tracker: at its end, the run's policy goes there too."""
_MLFLOW = Tracker(("mlflow", "sqlalchemy", "alembic"), ("MLFLOW_TRACKING_URI", "sqlite:///{}/mlflow.db"))
_WANDB = Tracker(("wandb",))
TRACKERS: Mapping[str, Tracker] = {
    "mlflow": _MLFLOW,
    f"mlflow{POLICY}": _MLFLOW,
    "trackio": Tracker(("trackio",), ("TRACKIO_DIR", "{}/trackio")),
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
    """Return the class of a sink that runs in a process of its own, as `module:class`. Raises `UserError` if it belongs
    to a tracker, and those are missing."""
    if name in TRACKERS:
        return place_of_feature(name.removesuffix(POLICY), f"--sinks {name}")
    return installed_sinks()[name].place


def check_sinks(names: Iterable[str]) -> None:
    """Raise `ConfigError` for the first name that is none of a sink, that stands for the same tracker as another, or
    whose packages are missing."""
    names = list(names)
    for name in names:
        extra = name.removesuffix(POLICY)
        if extra != name and extra in names:
            raise ConfigError("sinks", f"must name {extra} once, with {POLICY} or without")
        if name in TRACKERS:
            place_of(name)
            specs = map(find_spec, TRACKERS[name].packages)
            if any(spec is None or spec.origin is None for spec in specs):  # a mere folder, as W&B's own, is no package
                needed = f"{name} needs packages that are missing; install them with: {install_command(extra)}"
                raise ConfigError("sinks", needed)
        elif name != JSON_LINES and name not in (known := installed_sinks()):
            accepted = ", ".join((*_BUILT_IN, *sorted(known)))
            raise ConfigError("sinks", f"must be {NONE}, or names among {accepted}, separated by commas; got {name!r}")
