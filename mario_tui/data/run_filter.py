"""The filter of lists of runs: words and options, such as `snake #night n-step=3 --no-amp`; a run must match all."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from engine.config.fields import read_number
from engine.errors import UserError
from engine.runs.annotation import Annotation
from engine.runs.run import CONFIG_FILE, LOOP_FILE, Run, RunRecord
from mario_tui.data.differences import Options


def words_of(text: str) -> list[str]:
    """The words of a filter, in lower case."""
    return text.lower().split()


def matches(words: Sequence[str], text: str, options: Callable[[], Options]) -> bool:
    """Whether each word is an option with its value or part of the text. The options are asked for only if needed.

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
    """Whether an option's value is what a filter asks for."""
    if isinstance(value, bool):
        return wanted in ("", "on" if value else "off", str(value).lower())
    if isinstance(value, int | float) and isinstance(number := read_number(wanted), int | float):
        return math.isclose(value, number)
    return wanted in ("", str(value).lower())


def text_of(run: Run, record: RunRecord, annotation: Annotation) -> str:
    """What words are looked for in, besides the run's state."""
    tags = " ".join(f"#{tag}" for tag in annotation.tags)
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
