"""What a process on another machine first tells about itself: whether the same program is installed there."""

from __future__ import annotations

import functools
import socket
import sys
from pathlib import Path

import msgspec

import engine
from engine.protocol.message import bounded
from engine.runtime.digest import digest_of


class Greeting(msgspec.Struct, frozen=True):
    """A process of a cluster."""

    machine: str
    node: str  # of the cluster
    version: str  # of mario-tui
    python: str  # its version
    sources: str  # digest of the engine's Python files


decode_greeting = bounded(msgspec.msgpack.Decoder(Greeting).decode)


def difference(its: Greeting, ours: Greeting) -> str:
    """What keeps a machine from playing for this one, as a clause; empty if nothing does."""
    if its.version != ours.version:
        return f"{its.machine} has mario-tui {its.version}, and this machine {ours.version}"
    if its.python != ours.python:
        return f"{its.machine} has Python {its.python.split()[0]}, and this machine {ours.python.split()[0]}"
    if its.sources != ours.sources:
        return f"{its.machine} has other sources than this machine"
    return ""


def greeting(node: str = "") -> Greeting:
    """What this process is."""
    return Greeting(socket.gethostname(), node, engine.__version__, sys.version, _engine_digest())


@functools.cache
def _engine_digest() -> str:
    """16 hex digits that change with any Python file of the engine."""
    root = Path(engine.__file__).parent
    return digest_of(root.rglob("*.py"), root)
