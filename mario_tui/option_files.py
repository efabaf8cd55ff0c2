"""Files of options that a user names (`--config`, `--plan`), which may be somebody else's.

Code that only such a file names is imported if the user trusts the folder that the file is in, as editors do it: they
ask once. Places elsewhere that it names are shown before something starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from engine.config.fields import flag
from engine.config.runners import torchrun_rank
from engine.config.sinks import JSON_LINES, TRACKERS, sink_names
from engine.config.user_code import located
from engine.errors import UserError
from engine.runs.lookup import HUB
from engine.runs.marks import is_trusted, trust, unknown_code, utf8_path
from engine.runtime.files import open_to_others
from engine.runtime.text import printable

_RAY_HERE = ("none", "local", "auto")
_MOST_SHOWN = 10


def check_file(file: Path, options: Iterable[Mapping[str, Any]], *, trusted: bool) -> str:
    """Check what options from a file would do, and ask the user about it.

    Args:
        file: where they are from.
        options: its options, with paths as the program uses them, without those that the user has typed.
        trusted: whether the user has said so.

    Returns a line that names places elsewhere, which standard error has as well; empty if there are none. Raises
    `UserError` if code that they name may not be imported, `OSError` if what they name can't be looked at.
    """
    # A sweep looks for modules that are not beside the file in the working folder.
    options, rank = [located(each, Path.cwd()) for each in options], torchrun_rank()
    places = dict.fromkeys(place for each in options for place in _elsewhere(file, each))
    line = f"{file} names places elsewhere: {', '.join(places)}" if places else ""
    if line and (rank is None or rank.index == 0):
        print(printable(f"note: {line}"), file=sys.stderr, flush=True)
    code = [*dict.fromkeys(named for each in options for named in sorted(unknown_code(file, each).items()))]
    if code:
        may_ask = rank is None and sys.stdin.isatty() and sys.stderr.isatty()
        _check_code(file, code, trusted=trusted, may_ask=may_ask)
    return line


def _elsewhere(file: Path, options: Mapping[str, Any]) -> list[str]:
    """Return what options from a file write to or connect to, as on the command line, other than what is usual."""
    texts = {name: value for name, value in options.items() if isinstance(value, str)}
    found = []
    if "run_dir" in texts:
        run_dir = Path(texts["run_dir"]).resolve()
        if not any(run_dir.is_relative_to(usual.resolve()) for usual in (Path(), file.parent)):
            found.append(f"{flag('run_dir')} {run_dir}")
    if texts.get("ray", "none") not in _RAY_HERE:
        found.append(f"{flag('ray')} {texts['ray']}")
    if texts.get("initial_policy", "").startswith(HUB):
        found.append(f"{flag('initial_policy')} {texts['initial_policy']}")
    sinks = set(sink_names(texts.get("sinks", "none")))
    kept_here = {JSON_LINES, *(name for name, tracker in TRACKERS.items() if tracker.database is not None)}
    found += [f"{flag('sinks')} {name}" for name in sorted(sinks - kept_here)]
    return found


def _imported(module: Path) -> Iterator[Path]:
    """Return what Python reads to import the file of a module, and where somebody could put that."""
    if module.is_absolute() and module.suffix == ".py":
        compiled = Path(cache_from_source(str(module)))
        yield from (module, module.parent, *(path for path in (compiled, compiled.parent) if os.path.lexists(path)))


def _check_code(file: Path, code: list[tuple[str, str]], *, trusted: bool, may_ask: bool) -> None:
    folder, (name, value) = utf8_path(file.parent), code[0]
    for path in (folder, file, *(path for _, named in code for path in _imported(Path(named.rpartition(":")[0])))):
        if flaw := open_to_others(path):
            reason = f"{name} names code that would run, and {flaw}"
            raise UserError(f"{file}: {reason}; if you trust it, give it on the command line: {flag(name)} {value}")
    if trusted or is_trusted(folder):
        return
    if not may_ask:
        reason = f"{name} names code that would run: {value}"
        raise UserError(f"{file}: {reason}; if you trust the files in {folder}, add --trust")
    print(printable(f"{file} names code that would run:"), file=sys.stderr)
    for name, value in code[:_MOST_SHOWN]:
        print(printable(f"  {flag(name)} {value}"), file=sys.stderr)
    if (left := len(code) - _MOST_SHOWN) > 0:
        print(f"  and {left} more", file=sys.stderr)
    question = f"Do you trust the files in {folder}, now and later? [y/N] "
    print(printable(question), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError(f"{file}: the files in {folder} are not trusted; nothing was started")
    try:
        trust(folder)
    except OSError as error:
        print(printable(f"note: this can't be remembered ({error.strerror or error})"), file=sys.stderr)
