"""The precision that measured faster, in the user's cache: two runs with equal options on one machine then learn alike.

Two precisions that are about equally fast would otherwise be chosen by chance. A file
`$XDG_CACHE_HOME/mario-tui/precision/DIGEST.json` (or `~/.cache`) holds one decision and what it was made for; it may be
deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from engine.runtime.devices import Precision
from engine.runtime.files import write_if_possible
from engine.runtime.home import program_folder
from engine.runtime.json_text import read_json
from engine.runtime.processor import processor_name

_MAX_BYTES = 2**16


class _Held(msgspec.Struct):
    """What a file of the cache decides."""

    precision: Precision


def remembered(shapes: dict[str, Any], measure: Callable[[], Precision]) -> Precision:
    """The precision chosen earlier for this processor, version of PyTorch and `shapes` (JSON); `measure` if there is
    none. A cache that can't be read or written is no reason to fail."""
    made_for = {"measured": "processor time", "processor": processor_name(), "torch": torch.__version__, **shapes}
    digest = hashlib.sha256(json.dumps(made_for, sort_keys=True).encode()).hexdigest()[:16]
    file = program_folder("CACHE") / "precision" / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError):
        return read_json(file, _Held, _MAX_BYTES).precision
    precision = measure()
    write_if_possible(file, json.dumps({"precision": precision, **made_for}, indent=1).encode())
    return precision
