"""Text from elsewhere, made safe to show: names, settings, log lines, reasons and tags may hold control sequences that
a terminal would obey."""

from __future__ import annotations

import re
from typing import Any, TextIO, cast

import msgspec

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line and paragraph separators, what changes the direction of writing (Unicode TR9),
and surrogates, which no encoding takes."""
_LAYOUT = "\n\t"


def printable(text: str, *, lines: bool = False) -> str:
    """The text with what a terminal would obey written out: `\\x1b`, `\\x9b`, `\\n`, `\\u202e`. Everything else stays,
    backslashes, too. With `lines`, line breaks and tabs stay."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda found: found[0] if lines and found[0] in _LAYOUT else _written_out(found[0]), text)


def drawable(text: str) -> str:
    """The text in as many cells of a terminal, without what it would obey: for text whose place is settled."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda found: "\ufffd" if "\ud800" <= found[0] <= "\udfff" else "", text)


def set_off(text: str) -> str:
    """Several lines, each behind a bar: none of them passes for a line of its own in a log."""
    return "\n".join(f"  | {printable(line)}" for line in text.rstrip("\n").split("\n"))


def json_line(value: Any) -> str:
    """JSON in one line that a terminal shows as it is."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.encode(value).decode())


def printable_stream(stream: TextIO) -> TextIO:
    """A stream whose text goes through `printable`; line breaks and tabs stay. Rich, which writes sequences of its own,
    finds the stream behind it."""
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


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()
