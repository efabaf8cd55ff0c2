"""The colour of each run in comparisons, saved in `$XDG_STATE_HOME/mario-tui/colours.json`, so that a run always looks
the same."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.runtime.files import write_if_possible
from engine.runtime.home import program_folder
from engine.runtime.json_text import read_json

_MOST = 1000
"""Maximum number of runs that are remembered; the oldest are forgotten."""
_MAX_BYTES = 2**20


def colours_of(runs: Sequence[str], *, save: bool = True) -> list[int]:
    """The number of each run's colour, by the runs' paths.

    A run keeps its number as long as it is remembered. A new one gets the smallest that no remembered run has.
    """
    known = _load()
    taken, found = set(known.values()), dict[str, int]()
    for run in runs:
        found[run] = known[run] if run in known else next(n for n in itertools.count() if n not in taken)
        taken.add(found[run])
    if save and not known.keys() >= found.keys():
        _save({**{run: number for run, number in known.items() if run not in found}, **found})
    return [found[run] for run in runs]


def _file() -> Path:
    return program_folder("STATE") / "colours.json"


def _load() -> dict[str, int]:
    try:
        return read_json(_file(), dict[str, int], _MAX_BYTES)
    except (OSError, ValueError):
        return {}


def _save(numbers: dict[str, int]) -> None:
    newest = dict(itertools.islice(numbers.items(), max(0, len(numbers) - _MOST), None))
    write_if_possible(_file(), msgspec.json.encode(newest))
