"""Makes damaged versions of a file: of its bytes, of what they mean, and what is no file at all.

Everything is drawn from a seeded generator, so a version that makes a reader fail can be made again.
"""

from __future__ import annotations

import copy
import json
import math
import os
import re
import socket
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import tomli_w
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from mario_tui.extras.event_files.records import RECORD_BYTES, framed
from tests.support.event_files import record

Damage = Callable[[Path], object]
"""Puts a damaged version at a path, where nothing is yet."""
_NESTED, _DEPTH = "NESTED", 100_000
_LARGE = 2**36
NUMBERS = [
    0, -1, 1, 2, 255, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 10**400, 0.5, -0.0, 5e-324, 1e16, 1.7e308,
    -1.7e308, math.inf, -math.inf, math.nan,
]  # fmt: skip
TEXTS = [
    "", " ", "x" * 100_000, "\0", "\x1b]0;title\x07\x1b[2J", "line\nbreak", "../../../../etc/passwd", "/dev/zero",
    "1e999", "nan", "0x0", "99999x99999", "-3x-3", "1-1,1-2", "\u202e\u0301" * 50, "\U0010ffff", "NES\x1a", ",",
    "none", "auto",
]  # fmt: skip
_OTHERS: list[Any] = [None, True, False, [], {}, [[]] * 1000, {"": {}}, [1] * 10_000, ["x"], [0.5, None], _NESTED]


@dataclass(frozen=True)
class Form:
    """How the contents of a file are taken apart and put together again; what nobody can write is left out."""

    parse: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    heart: Callable[[Any], Any] = lambda document: document
    """The part of the contents that matters most; half of the changes are made there."""


def _framed_messages(content: bytes) -> list[Any]:
    messages, at = [], 0
    while at < len(content):
        end = at + 4 + int.from_bytes(content[at : at + 4], "big")
        messages.append(msgspec.msgpack.decode(content[at + 4 : end]))
        at = end
    return messages


def _in_frames(messages: Any) -> bytes:
    bodies = [_nesting(msgspec.msgpack.encode(message), b"\xa6NESTED", b"\x91" * _DEPTH) for message in messages]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def _tensors(content: bytes) -> Any:
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"]["policy"] = json.loads(header["__metadata__"]["policy"])
    return [header, content[8 + size :]]


def _of_tensors(document: Any) -> bytes:
    header, data = document
    if isinstance(said := header.get("__metadata__"), dict) and not isinstance(said.get("policy", ""), str):
        text = _json_text(said["policy"])
        header = {**header, "__metadata__": {**said, "policy": text.decode()}}
    head = _json_text(header)
    return len(head).to_bytes(8, "little") + head + bytes(data)


def _json_text(document: Any) -> bytes:
    return _nesting(json.dumps(document).encode(), b'"NESTED"', b"[" * _DEPTH)


def _nesting(content: bytes, mark: bytes, nest: bytes) -> bytes:
    return content.replace(mark, nest)


def _records(content: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(content):
        end = at + RECORD_BYTES + int.from_bytes(content[at : at + 8], "little")
        found.append(content[at + 12 : end - 4])
        at = end
    return found


JSON = Form(json.loads, _json_text)
TOML = Form(
    lambda content: tomllib.loads(content.decode()),
    lambda document: _nesting(tomli_w.dumps(document).encode(), b'"NESTED"', b"[" * _DEPTH),
)
MESSAGES = Form(_framed_messages, _in_frames)
TENSORS = Form(_tensors, _of_tensors, lambda document: document[0]["__metadata__"])


def versions(content: bytes, form: Form | str | None, count: int, seed: int) -> Iterator[tuple[str, Damage]]:
    """`count` damaged versions, each with a few words about the damage: a twentieth of them are no files, and the bytes
    of half of the others are damaged, the meaning of the other half.

    form: how the content is parsed; "events" and "cartridge" have damages of their own; None: bytes alone.
    """
    random = Random(seed)
    for number in range(count):
        if number % 20 == 7:
            name = list(NO_FILES)[number // 20 % len(NO_FILES)]
            yield name, partial(NO_FILES[name], content)
            continue
        spoil = _by_form(form) if form is not None and number % 2 else damaged_bytes
        what, spoilt = spoil(content, random)
        yield what, partial(_written, spoilt)


def _written(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def _by_form(form: Form | str) -> Callable[[bytes, Random], tuple[str, bytes]]:
    if form == "events":
        return damaged_events
    if form == "cartridge":
        return damaged_cartridge
    assert isinstance(form, Form)
    return lambda content, random: damaged_document(content, form, random)


# ------------------------------------------------------------------------------------------ bytes


def damaged_bytes(content: bytes, random: Random) -> tuple[str, bytes]:
    """Flipped bits, cuts, insertions and the like."""
    what = random.choice(list(_BYTES))
    return what, _BYTES[what](content, random)


def _flipped(content: bytes, random: Random) -> bytes:
    found = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8, 64])):
        found[random.randrange(len(found))] ^= 1 << random.randrange(8)
    return bytes(found)


def _replaced(content: bytes, random: Random, by: Callable[[bytes], bytes], most: int = 64) -> bytes:
    begin = random.randrange(len(content))
    end = begin + random.randrange(1, most)
    return content[:begin] + by(content[begin:end]) + content[end:]


def _number_replaced(content: bytes, random: Random) -> bytes:
    places = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?", content)) or list(re.finditer(b"$", content))
    place = random.choice(places)
    new = random.choice([str(number) for number in NUMBERS] + ["1" * 5000, "1e999", '"text"', "[]", "NaN", "-", "0x1f"])
    return content[: place.start()] + new.encode() + content[place.end() :]


_BYTES: dict[str, Callable[[bytes, Random], bytes]] = {
    "flipped bits": _flipped,
    "flipped bits near the beginning": lambda c, r: _flipped(c[:64], r) + c[64:],
    "cut": lambda c, r: c[: r.randrange(len(c))],
    "cut near the beginning": lambda c, r: c[: r.randrange(min(64, len(c)))],
    "without its beginning": lambda c, r: c[r.randrange(1, len(c)) :],
    "a part removed": lambda c, r: _replaced(c, r, lambda old: b""),
    "a part twice": lambda c, r: _replaced(c, r, lambda old: 2 * old, 4096),
    "noise inserted": lambda c, r: _replaced(c, r, lambda old: r.randbytes(len(old)) + old),
    "noise": lambda c, r: r.randbytes(len(c)),
    "zeros": lambda c, r: _replaced(c, r, lambda old: bytes(len(old)), 4096),
    "ones": lambda c, r: _replaced(c, r, lambda old: b"\xff" * len(old)),
    "another number": _number_replaced,
    "another letter": lambda c, r: _replaced(c, r, lambda old: r.choice([b"\x80", b"\xc3(", b"\0", b"\n"]), 2),
    "endless nesting": lambda c, r: _replaced(c, r, lambda old: r.choice([b"[", b"{", b'{"a":', b"\x91"]) * _DEPTH),
    "twice": lambda c, r: 2 * c,
    "UTF-16": lambda c, r: c.decode("latin-1").encode("utf-16"),
    "a byte order mark": lambda c, r: b"\xef\xbb\xbf" + c,
    "Latin-1 letters": lambda c, r: _replaced(c, r, lambda old: old + "äöü".encode("latin-1")),
    "Windows' ends of lines": lambda c, r: c.replace(b"\n", b"\r\n"),
    "something else": lambda c, r: r.choice([b"", b" ", b"\0" * 100, b"null", b"[]", b"{}", b"0", b"PK\x03\x04"]),
}  # fmt: skip


# ------------------------------------------------------------------------------------------ meaning


def damaged_document(content: bytes, form: Form, random: Random) -> tuple[str, bytes]:
    """Values of wrong types and sizes, missing and unknown keys."""
    while True:
        document = copy.deepcopy(form.parse(content))
        part = random.choice([document, form.heart(document)])
        changes = [_spoil(part, random) for _ in range(random.choice([1, 1, 1, 2, 5]))]
        try:
            return "; ".join(changes), form.write(document)
        except (TypeError, ValueError, OverflowError, AttributeError, RecursionError):
            continue  # this form has no such values


def _spoil(document: Any, random: Random) -> str:
    """Change one value anywhere in a document."""
    places = _places(document)
    if not places:
        return "nothing left"
    parent, keys = random.choice(places)
    key = random.choice(keys)
    match random.randrange(8):
        case 0:
            del parent[key]
            return f"without {key!r}"
        case 1 if isinstance(parent, dict):
            parent[random.choice(["unknown", "", "__class__", "x" * 1000])] = parent[key]
            return f"{key!r} under another name too"
        case 1:
            parent.extend([copy.deepcopy(parent[key])] * random.choice([1, 3000]))
            return f"more of {key!r}"
        case _:
            parent[key] = _other(parent[key], random)
            return f"{key!r}: {str(parent[key])[:30]!r}"


def _places(document: Any) -> list[tuple[Any, list[Any]]]:
    """All tables and lists in a document that contain anything, with their keys or places."""
    keys = (
        list(document)
        if isinstance(document, dict)
        else list(range(len(document)))
        if isinstance(document, list)
        else []
    )
    inside = [place for key in keys for place in _places(document[key])]
    return [(document, keys)] * bool(keys) + inside


def _other(value: Any, random: Random) -> Any:
    """A value instead of another: mostly one of the same type that nobody would choose."""
    of_type: dict[type, list[Any]] = {bool: [True, False], int: NUMBERS, float: NUMBERS, str: TEXTS}
    same = of_type.get(type(value), _OTHERS)
    if isinstance(value, bytes):
        same = [damaged_bytes(value, random)[1] if value else b"x"]
    return copy.deepcopy(random.choice(same if random.random() < 0.6 else [*NUMBERS, *TEXTS, *_OTHERS]))


# ------------------------------------------------------------------------------------------ event files


def damaged_events(content: bytes, random: Random) -> tuple[str, bytes]:
    """Records with right checksums and wrong contents."""
    records = _records(content)
    what = random.choice(["payload", "field", "field", "field", "summary", "summary", "summary", "order", "length"])
    at = random.randrange(len(records))
    match what:
        case "payload":
            what, records[at] = damaged_bytes(records[at], random)
        case "order":
            random.shuffle(records)
            records += random.choices(records, k=random.choice([1, 100]))
        case "length":
            claim = random.choice([2**31 - 1, 2**31, 2**60, 2**64 - 1, 0, len(records[at]) - 1])
            parts = [*map(framed, records)]
            parts[at] = record(records[at], claim)
            return f"claims {claim} bytes", b"".join(parts)
        case _:
            event = Event.FromString(records[at])
            for _ in range(random.choice([1, 1, 20])):
                _spoil_event(event, what, random)
            records[at] = event.SerializeToString()
    return what, b"".join(map(framed, records))


def _spoil_event(event: Event, what: str, random: Random) -> None:
    whole = [number for number in NUMBERS if isinstance(number, int) and -(2**63) <= number < 2**63]
    text = random.choice(TEXTS)
    if what == "field":
        match random.randrange(6):
            case 0:
                event.step = random.choice(whole)
            case 1:
                event.wall_time = float(random.choice([n for n in NUMBERS if abs(n) < 1e308 or isinstance(n, float)]))
            case 2:
                event.file_version = text
            case 3:
                event.session_log.status = random.randrange(4)
            case 4:
                event.graph_def = random.randbytes(100)
            case _:
                event.log_message.message = text
        return
    value = Summary.Value(tag=text, simple_value=random.choice([0.0, 3e38, math.inf, math.nan, -1e-45]))
    match random.randrange(6):
        case 0:
            value.image.width, value.image.height = random.choice([-1, 0, 2**31 - 1]), random.choice([-5, 7])
            value.image.encoded_image_string = random.randbytes(20)
        case 1:
            sides = [TensorShapeProto.Dim(size=random.choice(whole)) for _ in range(random.choice([0, 1, 2, 1000]))]
            value.tensor.CopyFrom(
                TensorProto(
                    dtype=random.randrange(30), tensor_shape=TensorShapeProto(dim=sides), int_val=[2**31 - 1] * 3,
                    tensor_content=random.randbytes(random.choice([0, 1, 2, 4, 8, 100])), half_val=[-1],
                    string_val=[b"9999999", b"\xff", b"", text.encode()],
                )
            )  # fmt: skip
        case 2:
            plugin = random.choice(["hparams", "images", "text", "scalars", "pr_curves", "", text])
            data = SummaryMetadata.PluginData(plugin_name=plugin, content=random.randbytes(random.choice([0, 4, 40])))
            value.metadata.CopyFrom(SummaryMetadata(plugin_data=data))
        case 3:
            value.histo.max = math.nan
            value.histo.bucket.extend([math.inf] * 5)
        case 4:
            value.audio.sample_rate, value.audio.num_channels = math.nan, -1
        case _:
            pass
    event.summary.value.append(value)


# ------------------------------------------------------------------------------------------ cartridges


def damaged_cartridge(content: bytes, random: Random) -> tuple[str, bytes]:
    """A header that says something else, a program with other instructions, or vectors that lead elsewhere."""
    found = bytearray(content)
    what = random.choice(["header", "program", "program", "vectors", "tiles", "size"])
    match what:
        case "header":
            found[random.randrange(4, 16)] = random.choice([0, 1, 2, 3, 4, 8, 0x10, 0x80, 0xFF])
        case "program":
            for _ in range(random.choice([1, 4, 64, 2048])):
                found[random.randrange(16, 16 + 0x8000)] = random.randrange(256)
        case "vectors":
            at = 16 + random.choice([0x7FFA, 0x7FFC, 0x7FFE])
            found[at : at + 2] = random.choice([b"\0\0", b"\xff\xff", b"\x07\x20", b"\0\x60", random.randbytes(2)])
        case "tiles":
            found[16 + 0x8000 :] = random.randbytes(0x2000)
        case _:
            banks, tiles = random.choice([(1, 1), (2, 0), (4, 1), (255, 255)])
            found[4:6] = bytes((banks, tiles))
            found = found[: random.choice([16 + banks * 16384 + tiles * 8192, 17, len(found)])]
    return what, bytes(found)


# ------------------------------------------------------------------------------------------ no files


def _sparse(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    os.truncate(path, _LARGE)


def _socket(content: bytes, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's address is short
        server.bind(path.name)
        os.chdir(before)


NO_FILES: dict[str, Callable[[bytes, Path], object]] = {
    "a FIFO": lambda content, path: os.mkfifo(path),
    "a folder": lambda content, path: path.mkdir(),
    "a socket": _socket,
    "a link to a device": lambda content, path: path.symlink_to("/dev/zero"),
    "a link to nowhere": lambda content, path: path.symlink_to("nowhere"),
    "a link to itself": lambda content, path: path.symlink_to(path.name),
    "64 GiB of zeros": lambda content, path: _sparse(b"", path),
    "64 GiB, the file at their beginning": _sparse,
    "missing": lambda content, path: None,
    "empty": lambda content, path: path.touch(),
}
