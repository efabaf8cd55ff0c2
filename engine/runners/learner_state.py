"""Reads what a learner has written into a checkpoint, and tells which options have changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays

from engine.config.reading import load_toml
from engine.config.run_config import RunConfig, specs_of
from engine.runs.checkpoint_state import ARRAYS_FILE, Extra, read_state
from engine.runs.checkpoints import CheckpointError
from engine.runs.run import CONFIG_FILE


def read_extra(folder: Path) -> tuple[Extra, dict[str, NDArray[Any]]]:
    """The `extra` and `arrays` that were passed to `write_checkpoint`. Raises `CheckpointError`."""
    path = folder / ARRAYS_FILE
    try:
        return read_state(folder).extra, load_arrays(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged ({str(error).splitlines()[0]})") from None


def unchanged(config: RunConfig, checkpoint: Path, *options: str) -> bool:
    """Whether options have the same values as in the run that wrote a checkpoint. One that its file lacks was unset, of
    another game, or did not exist yet."""
    return not changed(config, checkpoint, *options)


def changed(config: RunConfig, checkpoint: Path, *options: str) -> dict[str, Any]:
    """Those of the options that had other values in the run that wrote a checkpoint, with the earlier values."""
    usual = {name: spec.default for name, spec in specs_of(config.game).items()}
    earlier = {**usual, **load_toml(checkpoint / CONFIG_FILE)}
    before = {option: earlier[option] for option in options}
    return {option: value for option, value in before.items() if value != config.value(option)}
