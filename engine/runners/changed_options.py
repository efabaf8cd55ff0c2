"""Which options have changed since a checkpoint was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.config.reading import load_toml
from engine.config.run_config import RunConfig, specs_of
from engine.runs.run import CONFIG_FILE


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
