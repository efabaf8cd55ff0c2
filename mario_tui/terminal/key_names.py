"""Names of keys, as Textual has them."""

from __future__ import annotations

from textual.keys import Keys

from mario_tui.terminal.internals import key_of

_OF_TEXTUAL = {str(key.value) for key in Keys}


def key_name(text: str) -> str | None:
    """Textual's name of a key, for a character or a name; None if the key does not exist."""
    if len(text) == 1:
        return key_of(text)
    bare = text
    for modifier in ("ctrl+", "alt+", "shift+"):
        bare = bare.removeprefix(modifier)
    known = text in _OF_TEXTUAL or bare in _OF_TEXTUAL or (len(bare) == 1 and bare != text)
    named = {key_of(chr(code)) for code in range(32, 127)}
    return text if known or text in named or bare in named else None
