"""What a terminal sends by itself is told from keys, whatever it is and wherever the input is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual import events
from textual.constants import ESCAPE_DELAY
from textual.message import Message

from mario_tui.terminal.driver import KeyInput
from mario_tui.terminal.graphics import Replies, choose
from tests.support.images import REPLIES

UNASKED = {
    "OSC 10": b"\x1b]10;rgb:dcdc/dcdc/dcdc\x07",
    "OSC 11": b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\",
    "OSC 4": b"\x1b]4;1;rgb:cd/00/00\x1b\\",
    "OSC 52": b"\x1b]52;c;" + b"cXF4" * 5000 + b"\x07",
    "OSC 11 in 8 bits": b"\x9d11;rgb:1e1e/1e1e/1e1e\x9c",
    "DA1": b"\x1b[?62;4c",
    "DA1 in 8 bits": b"\x9b?62;4c",
    "DA2": b"\x1b[>41;390;0c",
    "DA3": b"\x1bP!|00000000\x1b\\",
    "DSR": b"\x1b[0n",
    "DECRPM": b"\x1b[?2027;2$y",
    "DECRPM of ANSI": b"\x1b[4;2$y",
    "cursor position": b"\x1b[24;80R",
    "extended cursor position": b"\x1b[?24;80;1R",
    "Kitty graphics": b"\x1b_Gi=31;OK\x1b\\",
    "Kitty flags": b"\x1b[?1u",
    "XTGETTCAP": b"\x1bP1+r544e=787465726d\x1b\\",
    "DECRQSS": b"\x1bP1$r0m\x1b\\",
    "XTVERSION": b"\x1bP>|XTerm(390)\x1b\\",
    "XTSMGRAPHICS": b"\x1b[?1;0;256S",
    "text area": b"\x1b[8;24;80t",
    "in-band size": b"\x1b[48;24;80;480;800t",
    "huge in-band size": b"\x1b[48;99999;99999;1;1t",
    "title": b"\x1b]lq quits\x1b\\",
    "colour scheme": b"\x1b[?997;1n",
    "Kitty release": b"\x1b[97;1:3u",
    "Kitty release of an arrow": b"\x1b[1;1:3B",
    "X10 mouse": b"\x1b[M" + bytes((67, 132, 44)),
    "X10 mouse on q": b"\x1b[M qq",
    "urxvt mouse": b"\x1b[32;100;10M",
    "cut OSC": b"\x1b]11;rgb:1e",
    "cut DCS": b"\x1bP1+r544e",
    "no character": b"\x1b[1;1;9999999999u",
}
"""Reports and replies that no program here has asked for."""
KEYS = {
    b"q": ["q"], b"\r": ["enter"], b"\x03": ["ctrl+c"], "\u00e9".encode(): ["\u00e9"],
    "\U0001f600".encode(): ["grinning_face"],
    b"\x1b[A": ["up"], b"\x1bOA": ["up"], b"\x1b[6~": ["pagedown"], b"\x1b[3$": ["shift+delete"], b"\x1b[[A": ["f1"],
    b"\x1b[1;5A": ["ctrl+up"], b"\x1b[Z": ["shift+tab"], b"\x1bx": ["alt+x"], b"\x9bB": ["down"],
    b"\x1b[27u": ["escape"],
    b"\x1b[97;1:1u": ["a"], b"\x1b[97:65;2;65u": ["A"], b"\x1b[1;1:2B": ["down"],
}  # fmt: skip


def keys_of(messages: Iterable[Message]) -> list[str]:
    return [message.key for message in messages if isinstance(message, events.Key)]


def sent(*parts: bytes, on_reply: Callable[[str], object] = lambda reply: None) -> list[str]:
    """The keys of what arrives in parts, of which the last is not followed by anything."""
    keys = KeyInput(on_reply)
    return keys_of([*(message for part in parts for message in keys.messages(part)), *keys.release()])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[low:high] for low, high in pairwise(edges)]


@pytest.mark.parametrize("data", UNASKED.values(), ids=UNASKED)
def test_what_nobody_typed_is_no_key(data: bytes) -> None:
    assert sent(data) == []
    assert sent(*(data[place : place + 1] for place in range(len(data)))) == []
    # The key that follows is one, whatever of a sequence was lost.
    assert sent(data, b"\x1b[A") == ["up"]


@pytest.mark.parametrize("data", KEYS)
def test_keys_are_keys(data: bytes) -> None:
    assert sent(data) == KEYS[data]
    assert sent(*(data[place : place + 1] for place in range(len(data)))) == KEYS[data]


@settings(max_examples=200)
@given(
    sequences=st.lists(st.sampled_from([*UNASKED.values(), *KEYS]), max_size=8),
    places=st.lists(st.integers(0, 1000), max_size=6),
)
def test_keys_among_reports_come_in_their_order(sequences: list[bytes], places: list[int]) -> None:
    # A character might belong to what is cut off.
    sequences = [each for each in sequences if each not in (UNASKED["cut OSC"], UNASKED["cut DCS"])]
    assert sent(*cut(b"".join(sequences), places)) == [key for each in sequences for key in KEYS.get(each, [])]


@settings(max_examples=500)
@given(data=st.one_of(st.binary(max_size=60), st.text("\x1b[]PO_M;:?0123456789<>$uRtcyAq~\x9b\x9d", max_size=60)))
def test_no_input_is_an_error(data: bytes | str) -> None:
    data = data.encode("latin-1") if isinstance(data, str) else data
    sent(*cut(data, [7, 20, 33]))


def test_a_key_after_a_reply_in_8_bits_is_a_key() -> None:
    assert sent(UNASKED["OSC 11 in 8 bits"] + b"q") == ["q"]
    assert sent("\x1b]l\u00dc\x1b\\q".encode()) == ["q"]  # the second byte of the character is 9C


def test_escape_is_a_key_as_soon_as_nothing_can_belong_to_it() -> None:
    keys = KeyInput(print)
    assert keys_of(keys.messages(b"\x1b")) == []
    assert keys.wait_s == ESCAPE_DELAY
    assert keys_of(keys.release()) == ["escape"]
    assert keys.wait_s is None
    assert sent(b"\x1b\x1b", b"\x1b[A") == ["escape", "escape", "up"]


def test_bytes_of_another_encoding_are_characters_that_nothing_is_bound_to() -> None:
    assert sent(b"\xe4\xf6", b"q") == ["replacement_character"] * 2 + ["q"]
    assert sent(b"\xe2\x82") == ["replacement_character"]


@pytest.mark.parametrize("places", [[], [3], [8, 9, 20], list(range(100))])
def test_pasted_text_is_text_whatever_it_holds(places: list[int]) -> None:
    text = "quit \x1b[A\x1b]11;? \u00e9 \x1b[200~ \r\n\x03 end"
    parts = cut(b"\x1b[200~" + text.encode() + b"\x1b[201~q", places)
    keys = KeyInput(print)
    pasted, typed = [message for part in parts for message in keys.messages(part)]
    assert isinstance(pasted, events.Paste) and pasted.text == text
    assert keys_of([typed]) == ["q"]


@pytest.mark.parametrize("protocol", ["kitty", "sixel", "iterm2", "text"])
def test_replies_about_images_are_read_wherever_they_are_cut(protocol: str) -> None:
    for place in range(1, len(REPLIES[protocol])):
        replies = Replies()
        assert sent(*cut(b"a" + REPLIES[protocol] + b"q", [place]), on_reply=replies.take) == ["a", "q"]
        assert replies.complete
        found = choose("auto", replies, {"TERM": "xterm-256color"})
        assert (found.protocol if found else "text") == protocol


def test_the_mouse_is_read_as_it_is_reported_now() -> None:
    keys = KeyInput(print)
    down, up = keys.messages(b"\x1b[<0;100;10M\x1b[<0;100;10m")
    assert isinstance(down, events.MouseDown) and isinstance(up, events.MouseUp)
    assert (down.x, down.y) == (99, 9)
