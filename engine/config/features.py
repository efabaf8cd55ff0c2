"""The features beside the core, which are in `engine.extras`: where each begins.

The core imports nothing of `engine.extras`; what it calls or starts there, it finds by a name in `FEATURES`. Any folder
of `engine.extras` may be missing: then a line says so to whoever asks for something in it, and all else works.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from engine.errors import UserError

FEATURES: Mapping[str, str] = {
    "games that are played": "engine.extras.playing.play",
    "guide": "engine.extras.distillation.mario.ways:begin_on_ways",
    "gymnasium environments": "engine.extras.gymnasium_api",
    "distillation": "engine.extras.distillation.contract",
    "downloads from the Hub": "engine.extras.hub.download",
    "uploads to the Hub": "engine.extras.hub.upload:put",
    "export of ONNX models": "engine.extras.export.export_onnx",
    "mlflow": "engine.extras.trackers.mlflow:MLflow",
    "profiles": "engine.extras.profiling.profile",
    "ray": "engine.extras.ray.named_cluster",
    "ray actors": "engine.extras.ray.actors:RayActors",
    "players": "engine.extras.playing:of_game",
    "Reporter": "engine.extras.reporting:Reporter",
    "release of policies": "engine.extras.release.release_policy:main",
    "torchrun": "engine.extras.torchrun",
    "trackio": "engine.extras.trackers.trackio:Trackio",
    "wandb": "engine.extras.trackers.wandb:WandB",
}
"""A module, or something in one as `module:name`, by the feature's name."""


def feature(name: str, asked_for: str) -> Any:
    """Import a feature. Raises `UserError` if it is missing; `asked_for` is what needs it, such as a flag."""
    return pkgutil.resolve_name(place_of_feature(name, asked_for))


def place_of_feature(name: str, asked_for: str) -> str:
    """Return where a feature is, one of `FEATURES`. Raises `UserError` if it is missing."""
    module = FEATURES[name].partition(":")[0]
    if not has_feature(name):
        raise UserError(f"{asked_for} needs {'.'.join(module.split('.')[:3])}, which is not installed")
    return FEATURES[name]


def has_feature(name: str) -> bool:
    """Return whether a feature is there, without importing its module."""
    return is_there(FEATURES[name])


def is_there(place: str) -> bool:
    """Return whether the folder of a module, or of `module:name`, is there, without importing it."""
    try:
        spec = find_spec(".".join(place.partition(":")[0].split(".")[:3]))
    except ModuleNotFoundError:  # the package around it is missing
        return False
    return spec is not None and spec.origin is not None  # none if only a cache of compiled modules is left
