"""Which code that options name may be imported: what the user typed now, and what a run names that this user's program
has created or resumed here.

A copied or unpacked run belongs to the user too, so the mark of an own run lies outside its folder, in the user's state
folder: what code the run names, by the folder's path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.config.fields import ConfigError
from engine.config.run_config import RunConfig
from engine.config.user_code import named_code
from engine.runs.run import Run, path_digest, run_folder, utf8_path
from engine.runtime.files import write_if_possible
from engine.runtime.home import program_folder
from engine.runtime.json_text import read_json

_MAX_BYTES = 2**16


def mark_own(run: Run, config: RunConfig) -> None:
    """Note that the user has started the run, and so has chosen the code that its options name."""
    code = named_code(config.values())
    if code:
        # In a read-only home the user has to type it again.
        write_if_possible(_marks() / path_digest(run.path), msgspec.json.encode(code))


def check_code(values: Mapping[str, Any], typed: Mapping[str, Any], source: Path | None, who: str) -> None:
    """Raise `ConfigError` for the first option that names code which nobody of this user has chosen.

    Args:
        values: options of a run, or a policy's metadata.
        typed: what the user has typed now, which replaces `values`.
        source: file or folder that `values` are from; None if from the user alone.
        who: what holds them, for people: `the policy`.
    """
    own = _own_code(source)
    for name, value in named_code(values).items():
        if typed.get(name) is None and own.get(name) != value:
            raise ConfigError(name, f"must be given, because {who} names code that would run; if you trust it: {value}")


def _own_code(source: Path | None) -> dict[str, str]:
    """The code that the run in whose folder the source lies names, if it is marked."""
    folder = None if source is None else run_folder(source)
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            return read_json(_marks() / path_digest(utf8_path(folder)), dict[str, str], _MAX_BYTES)
    return {}


def _marks() -> Path:
    return program_folder("STATE") / "code"
