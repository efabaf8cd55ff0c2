"""Reads what a learner has written into a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
from numpy.typing import NDArray
from safetensors.numpy import load_file as load_arrays

from engine.agents.autotune import Choices
from engine.config.reading import load_toml
from engine.config.run_config import RunConfig
from engine.runs.checkpoints import CheckpointError
from engine.runs.run import CONFIG_FILE, Count
from engine.runtime.files import read_bounded

STATE_FILE = "state.json"
ARRAYS_FILE = "lanes.safetensors"
_MAX_STATE_BYTES = 2**28
LARGEST_CREDIT = 1e4
"""Updates that a learner may be behind or ahead when it is resumed."""


class LearnerState(msgspec.Struct):
    """Contents of a checkpoint's `state.json`. The file may be foreign, so its numbers have bounds: a learner that owed
    a trillion updates would never return."""

    updates: Count
    credit: Annotated[float, msgspec.Meta(ge=-LARGEST_CREDIT, le=LARGEST_CREDIT)]
    beta: Annotated[float, msgspec.Meta(ge=0, le=1)]
    random: dict[str, Any]
    choices: Choices
    accumulate: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    fill: Count
    torch_random: str
    scaler: dict[str, Any]
    extra: dict[str, Any]
    """State of the runner, with `counters` and `tuned` among it; see `Coordinator`."""
    device_random: str | None = None
    """Of the generator that draws batches on a GPU."""


def read_extra(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The `extra` and `arrays` that were passed to `write_checkpoint`."""
    return read_state(folder).extra, load_arrays(folder / ARRAYS_FILE)


def read_state(folder: Path) -> LearnerState:
    """Reads `state.json` of a checkpoint. Raises `CheckpointError` if it is missing or damaged."""
    path = folder / STATE_FILE
    try:
        return msgspec.convert(json.loads(read_bounded(path, _MAX_STATE_BYTES)), LearnerState)
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from None


def unchanged(config: RunConfig, checkpoint: Path, *options: str) -> bool:
    """Whether options have the same values as in the run that wrote a checkpoint. One that its file lacks was unset, of
    another game, or did not exist yet."""
    return not changed(config, checkpoint, *options)


def changed(config: RunConfig, checkpoint: Path, *options: str) -> dict[str, Any]:
    """Those of the options that had other values in the run that wrote a checkpoint, with the earlier values."""
    earlier, specs = load_toml(checkpoint / CONFIG_FILE), RunConfig.__dataclass_fields__
    before = {option: earlier.get(option, specs[option].default) for option in options}
    return {option: value for option, value in before.items() if value != getattr(config, option)}
