"""Makes a run's options from a file or from values by name: unknown names are refused, earlier names replaced, and
missing ones take the defaults of the game and runner."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine.config.defaults import defaults
from engine.config.fields import GAMES, RUNNERS, ConfigError, check, coerce
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runtime.files import read_bounded

ALIASES: dict[str, tuple[str, Any]] = {"use_mmap_buffer": ("replay_device", "files")}
"""Earlier names of switches, which files and command lines may still use, and the option that each one sets."""
_MAX_FILE_BYTES = 2**20
"""Largest options file that is read."""


def load_toml(path: Path) -> dict[str, Any]:
    """Options from a TOML file, not yet validated.

    Raises `UserError` naming the file, and the accepted keys if one is unknown.
    """
    try:
        values = tomllib.loads(read_bounded(path, _MAX_FILE_BYTES, links=True).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        raise UserError(f"{path}: not valid TOML: {str(error).splitlines()[0]}") from None
    return _known(values, str(path))


def make_config(values: Mapping[str, Any], source: str | None = None) -> RunConfig:
    """A validated `RunConfig` from field values; missing ones take the defaults of the game and runner.

    Raises `ConfigError`, or `UserError` that starts with `source` (a file) if it is given.
    """
    game, runner = values.get("game", RunConfig.game), values.get("runner", RunConfig.runner)
    specs = RunConfig.__dataclass_fields__
    known = {k: coerce(specs[k], v) for k, v in _known(values, source or "options").items()}
    try:
        check(specs["game"], game)
        check(specs["runner"], runner)
        for spec in specs.values():
            for kind, chosen, all_of_them in (("game", game, GAMES), ("runner", runner, RUNNERS)):
                accepted = spec.metadata[f"{kind}s"]
                if spec.name in known and chosen in all_of_them and chosen not in accepted:
                    flags = " or ".join(f"--{kind} {each}" for each in accepted)
                    raise ConfigError(spec.name, f"is not an option of {chosen}; it needs {flags}")
        return RunConfig(**{**defaults(game, runner), **known})
    except ConfigError as error:
        if source is None:
            raise
        raise UserError(f"{source}: {error.field} {error.reason}") from None


def _known(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    values = _without_aliases(values)
    names = [spec.name for spec in fields(RunConfig)]
    for key in values:
        if key not in names:
            raise UserError(f"{source}: unknown key {key!r}; must be one of {', '.join(names)}")
    return dict(values)


def _without_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with earlier names of options replaced; what is given by its own name wins."""
    found = dict(values)
    for name, (option_name, value) in ALIASES.items():
        if found.pop(name, False):
            found.setdefault(option_name, value)
    return found
