"""Text for people: escaping, sizes and guesses, and what errors say of the user's code and of missing packages.

Names, settings, log lines, reasons and tags may contain control sequences that a terminal would execute.
"""

from __future__ import annotations

import codecs
import difflib
import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO, cast

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line and paragraph separators, characters that change the writing direction
(Unicode TR9), and surrogates, which no encoding accepts."""
_LAYOUT = "\n\t"
_LOOK_ALIKES = {"–": "-", "→": "->", "…": "...", "·": "-", "°": " degrees"}
LOOK_ALIKE = "look-alike"
"""The way of a text stream to handle characters that its encoding has not; see `open`."""


def printable(text: str, *, lines: bool = False) -> str:
    """The text with unsafe characters escaped: `\\x1b`, `\\x9b`, `\\n`, `\\u202e`. Everything else stays as it is,
    including backslashes. With `lines`, line breaks and tabs stay as well."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(
        lambda found: found[0] if lines and found[0] in _LAYOUT else found[0].encode("unicode_escape").decode(), text
    )


def in_words(value: Any) -> str:
    """A value of a policy's metadata, for people."""
    return ",".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)


def shortened(text: str, most: int = 2000) -> str:
    """The text, without a part in its middle if it has more than `most` characters: a value in it may be of any
    length, and what is accepted stands before or after it."""
    if len(text) <= most:
        return text
    left_out = len(text) - most
    return f"{text[: most // 2]} ({left_out:,} characters left out) {text[len(text) - most // 2 :]}"


def drawable(text: str) -> str:
    """The text without unsafe characters, in the same number of terminal cells: for text that is already laid out."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda found: "\ufffd" if "\ud800" <= found[0] <= "\udfff" else "", text)


def set_off(text: str) -> str:
    """Prefix each line with a bar, so that no line can be mistaken for a separate log line."""
    return "\n".join(f"  | {printable(line)}" for line in text.rstrip("\n").split("\n"))


def size_text(count: float, *, binary: bool = False) -> str:
    """A number of bytes in the unit that suits it, such as 24.1 MB or, in `binary` units, 23.0 MiB."""
    base, last = (1024, "iB") if binary else (1000, "B")
    if abs(count) < base:
        return f"{count:.0f} bytes"
    prefixes = "KMG" if binary else "kMG"
    power = next((power for power in (1, 2) if abs(count) < 0.99995 * base ** (power + 1)), 3)
    return f"{count / base**power:,.1f} {prefixes[power - 1]}{last}"


def _look_alike(error: UnicodeError) -> tuple[str | bytes, int]:
    """For encodings without our few signs: the nearest ASCII. Anything else is escaped."""
    if isinstance(error, UnicodeEncodeError) and error.object[error.start] in _LOOK_ALIKES:
        return _LOOK_ALIKES[error.object[error.start]], error.start + 1
    return codecs.backslashreplace_errors(error)


codecs.register_error(LOOK_ALIKE, _look_alike)


def printable_stream(stream: TextIO) -> TextIO:
    """Wrap a stream so that text written to it goes through `printable`; line breaks and tabs stay.

    Rich, which writes control sequences of its own, finds the wrapped stream (`rich_proxied_file`).
    """
    return cast(TextIO, _PrintableStream(stream))


class _PrintableStream:
    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text, lines=True))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """`; did you mean X?` with the word that is most like it; empty if none is."""
    like = difflib.get_close_matches(typed, known, n=1, cutoff=0.8)
    return f"; did you mean {like[0]}?" if like else ""


_INSTALLED = ("site-packages", "dist-packages")


@functools.cache
def _not_of_user() -> tuple[str, ...]:
    """Return what the paths of Python's and the engine's own code begin with."""
    import sysconfig

    return "<", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).parents[1]}/"


def place_of(error: BaseException) -> str:
    """` (FILE:LINE)`, or nothing if none of the user's own code is in the traceback."""
    import traceback

    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if not str(path).startswith(_not_of_user()) and not set(_INSTALLED) & set(path.parts):
            place = f" ({printable(path.name)}:{line})"
    return place


def parsing_module(error: BaseException) -> str:
    """The module that has `argparse` read the command line, which raised the error; empty if none has."""
    import traceback

    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return printable(names[names.index("argparse") - 1]) if "argparse" in names[1:] else ""


def install_command(extra: str) -> str:
    """The command that installs an extra: into the clone that this program runs from, else from the index."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    try:
        origin = distribution("mario-tui").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # it has been deleted
        folder = None
    return _command(extra, origin, Path(sys.prefix) / "bin/pip", folder)


def _command(extra: str, origin: str | None, pip: Path, folder: Path | None) -> str:
    """`origin`: where the package was installed from, as the Python Packaging User Guide specifies `direct_url.json`.
    Paths in `folder` are relative."""
    import json
    import shlex
    from urllib.parse import unquote, urlsplit

    said = json.loads(origin or "{}")
    if not said.get("dir_info", {}).get("editable"):
        return f"pip install 'mario-tui[{extra}]'"
    clone, program = Path(unquote(urlsplit(said["url"]).path)), str(pip) if pip.is_file() else "pip"
    if clone == folder:
        return f"{shlex.quote(program.removeprefix(f'{folder}/'))} install -e '.[{extra}]'"
    return f"{shlex.quote(program)} install -e {shlex.quote(f'{clone}[{extra}]')}"
