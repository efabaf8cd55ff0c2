"""Checkpoints with one thing changed and the manifest made anew, so that checksums say nothing: each field of the
state, each file, and each kind of tensor, spoilt in every way that its type allows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.runs import checkpoints
from engine.runtime.formats import safetensors_header

Spoil = Callable[[Path], None]
"""Spoils a copy of a checkpoint."""
STATE = "state.json"
_MISSING = object()
_NESTED = "nested"
VALUES: dict[str, Any] = {
    "missing": _MISSING, "null": None, "text": "x", "-1": -1, "2^63": 2**63, "1e308": 1e308, "NaN": float("nan"),
    "inf": float("inf"), "empty list": [], "empty object": {}, "list": [0] * 100_000, "nested": _NESTED,
}  # fmt: skip
SAMPLED = ("online", "target", "policy", "optimizer")
"""Files of which only a few tensors are spoilt: all others are read by the same lines."""


def resealed(checkpoint: Path) -> None:
    """Make the manifest anew."""
    manifest = checkpoints.read_manifest(checkpoint)
    (checkpoint / checkpoints.MANIFEST).unlink()
    checkpoints.seal(checkpoint, manifest.env_steps, manifest.updates)


def spoilt(checkpoint: Path, values: dict[str, Any] = VALUES) -> Iterator[tuple[str, Spoil]]:
    """Every way to spoil a checkpoint, with its name."""
    for place in _places(json.loads((checkpoint / STATE).read_text())):
        for kind, value in values.items():
            yield f"{'.'.join(map(str, place))}: {kind}", _with_value(place, value)
    for path in sorted(checkpoint.glob("*.safetensors")):
        yield f"{path.name}: missing", _unlinked(path.name)
        yield f"{path.name}: empty", _with_content(path.name, b"")
        yield f"{path.name}: no tensors", _with_arrays(path.name, lambda arrays: arrays.clear())
        yield f"{path.name}: header of 2^62 bytes", _with_content(path.name, (2**62).to_bytes(8, "little"))
        yield f"{path.name}: nested header", _with_content(path.name, _header(b'{"a":' * 100_000))
        for what, entry in _ENTRIES.items():
            yield f"{path.name}: {what}", _with_content(path.name, _header(json.dumps({"a": entry}).encode()))
        arrays = load_file(path)
        sampled = path.stem in SAMPLED
        for name in sorted(arrays)[:: max(1, len(arrays) // 4) if sampled else 1]:
            for what, change in _changes(arrays[name]):
                yield f"{path.name} {name}: {what}", _with_arrays(path.name, _replaced(name, change))
    for name in (STATE, "config.toml"):
        yield f"{name}: missing", _unlinked(name)
        yield f"{name}: empty", _with_content(name, b"")
        yield f"{name}: binary", _with_content(name, b"\xff\x00")
        yield f"{name}: nested", _with_content(name, b"[" * 100_000)


_ENTRIES: dict[str, Any] = {
    "an entry that is none": 3,
    "an unknown dtype": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]},
    "80 GB": {"dtype": "F32", "shape": [20_000_000_000], "data_offsets": [0, 80_000_000_000]},
    "a negative shape": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
    "offsets of text": {"dtype": "F32", "shape": [1], "data_offsets": ["a", "b"]},
}


def _header(content: bytes) -> bytes:
    return len(content).to_bytes(8, "little") + content


def _places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all fields, of lists those of the first element."""
    if place:
        yield place
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _places(part, (*place, name))
    elif isinstance(value, list) and value:
        yield from _places(value[0], (*place, 0))


def _with_value(place: tuple[str | int, ...], value: Any) -> Spoil:
    def spoil(checkpoint: Path) -> None:
        path = checkpoint / STATE
        state = json.loads(path.read_text())
        inside = state
        for name in place[:-1]:
            inside = inside[name]
        if value is _MISSING:
            del inside[place[-1]]
        else:
            inside[place[-1]] = value
        text = json.dumps(state)
        path.write_text(text.replace(f'"{_NESTED}"', "[" * 100_000 + "]" * 100_000) if value is _NESTED else text)

    return spoil


def _unlinked(name: str) -> Spoil:
    return lambda checkpoint: (checkpoint / name).unlink()


def _with_content(name: str, content: bytes) -> Spoil:
    def spoil(checkpoint: Path) -> None:
        (checkpoint / name).write_bytes(content)

    return spoil


def _with_arrays(name: str, change: Callable[[dict[str, NDArray[Any]]], object]) -> Spoil:
    def spoil(checkpoint: Path) -> None:
        path = checkpoint / name
        arrays, metadata = load_file(path), safetensors_header(path)[0].get("__metadata__")
        change(arrays)
        save_file(arrays, path, metadata)

    return spoil


def _replaced(
    name: str, change: Callable[[NDArray[Any]], NDArray[Any] | None]
) -> Callable[[dict[str, NDArray[Any]]], object]:
    def replace(arrays: dict[str, NDArray[Any]]) -> None:
        new = change(arrays.pop(name))
        if new is not None:
            arrays[name] = np.ascontiguousarray(new)

    return replace


def _changes(array: NDArray[Any]) -> Iterator[tuple[str, Callable[[NDArray[Any]], NDArray[Any] | None]]]:
    other = np.dtype(np.float64 if array.dtype != np.float64 else np.float32)
    yield "missing", lambda array: None
    yield "another dtype", lambda array: array.astype(other)
    yield "one axis more", lambda array: array[None]
    yield "nothing in it", lambda array: np.empty((0, *array.shape[1:]), array.dtype)
    if array.ndim:
        yield "twice as long", lambda array: np.concatenate((array, array))
    if array.dtype.kind == "f":
        for number in ("nan", "inf", "-1e30"):
            yield number, partial(np.full_like, fill_value=float(number))
