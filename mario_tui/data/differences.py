"""What differs between the configurations of runs, and which runs differ in nothing but their seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Options = Mapping[str, Any]
"""Options of a run, by field name; empty if they can't be read."""
Configuration = tuple[tuple[str, str], ...]
"""Options as sorted pairs of name and exact text."""
_OF_A_RUN = ("seed", "run_dir")
"""Options in which runs of one configuration may differ."""


def differences(runs: Sequence[Options]) -> dict[str, list[str]]:
    """The options that differ between the runs, with each run's value; a dash if an option does not apply to a run.

    Runs whose options can't be read have dashes, too, but differ from none.
    """
    names = dict.fromkeys(name for options in runs for name in options if name != "run_dir")
    found = {name: _texts([options.get(name) for options in runs]) for name in names}
    read = [at for at, options in enumerate(runs) if options]
    return {name: values for name, values in found.items() if len({values[at] for at in read}) > 1}


def without_seed(options: Options) -> Options:
    """The options that runs of one configuration have in common."""
    return {name: value for name, value in options.items() if name not in _OF_A_RUN}


def same_but_seed(options: Options) -> Configuration:
    """Equal for runs that differ in nothing but their seed."""
    return tuple(sorted((name, _exact(value)) for name, value in without_seed(options).items()))


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that counts: run-9 comes before run-10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in parts]


def _texts(values: Sequence[object]) -> list[str]:
    """The texts of values; exact ones if different values would look the same."""
    short, exact = [_text(value) for value in values], [_exact(value) for value in values]
    return short if len(set(short)) == len(set(exact)) else exact


def _exact(value: object) -> str:
    return repr(value) if isinstance(value, float) else _text(value)


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
