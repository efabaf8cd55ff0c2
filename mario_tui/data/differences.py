"""Tells runs apart: by the options in which their configurations differ, by a filter, and by their colours.

A filter is words and options, such as `snake #night n-step=3 --no-amp`; a run must match all. Colours are saved in
`$XDG_STATE_HOME/mario-tui/colours.json`, so that a run always looks the same.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from engine.config.fields import read_number
from engine.errors import UserError
from engine.runs.run import CONFIG_FILE, LOOP_FILE, Annotation, Run, RunRecord
from engine.runtime.files import program_folder, write_if_possible
from engine.runtime.formats import read_json

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


def words_of(text: str) -> list[str]:
    """The words of a filter, in lower case."""
    return text.lower().split()


def matches(words: Sequence[str], text: str, options: Callable[[], Options]) -> bool:
    """Return whether each word is an option with its value or part of the text. The options are asked for only if
    needed.

    An option is spelled as in flags or in files: `n-step=3`, `--n-step=3` or `n_step=3`, where numbers are compared as
    numbers and no value means any; `--amp` or `--no-amp`. A name that the run has no option of is looked for in the
    text.
    """
    text = text.lower()
    return all(_matches(word, text, options) for word in words)


def _matches(word: str, text: str, options: Callable[[], Options]) -> bool:
    flag, is_pair, wanted = word.partition("=")
    if is_pair or word.startswith("--"):
        name = flag.removeprefix("--").replace("-", "_")
        values = {option.replace("-", "_").lower(): value for option, value in options().items()}
        if name in values:
            return _is(values[name], wanted) if is_pair else values[name] is not False
        if not is_pair and values.get(name.removeprefix("no_")) is False:
            return True
    return word in text


def _is(value: object, wanted: str) -> bool:
    """Return whether an option's value is what a filter asks for."""
    if isinstance(value, bool):
        return wanted in ("", "on" if value else "off", str(value).lower())
    if isinstance(value, int | float) and isinstance(number := read_number(wanted), int | float):
        return math.isclose(value, number)
    return wanted in ("", str(value).lower())


def text_of(run: Run, record: RunRecord, annotation: Annotation) -> str:
    """Return what words are looked for in, besides the run's state."""
    tags = " ".join(f"#{tag}" for tag in annotation.tags) + " alert" * bool(record.alert)
    return f"{record.name} {record.game} {record.task} {record.runner} {run.path} {tags} {annotation.note}"


def options_of(run: Run) -> Options:
    """The run's options; empty if they can't be read. They are read again once they have changed."""
    written = 0
    for name in (LOOP_FILE, CONFIG_FILE):  # a run has one of them
        with contextlib.suppress(OSError):
            written = max(written, (run.path / name).stat().st_mtime_ns)
    return _read(run.path, written)


@lru_cache(maxsize=2**14)
def _read(path: Path, written: int) -> Options:
    try:
        return Run(path).description().options()
    except UserError:
        return {}


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
