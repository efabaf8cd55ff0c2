"""What a process on another machine first tells about itself: whether the same program is installed there."""

from __future__ import annotations

import functools
import socket
import sys
from pathlib import Path

import msgspec

import engine
from engine.console.compiler.code_cache import digest_of
from engine.protocol.commands import bounded


class Greeting(msgspec.Struct, frozen=True):
    """A process of a cluster."""

    machine: str
    node: str  # of the cluster
    version: str  # of mario-tui
    python: str  # its version
    sources: str  # digests of the Python files of the engine, and of other packages


decode_greeting = bounded(msgspec.msgpack.Decoder(Greeting).decode)


def difference(its: Greeting, ours: Greeting) -> str:
    """Return what keeps a machine from playing for this one, as a clause; empty if nothing does."""
    if its.version != ours.version:
        return f"{its.machine} has mario-tui {its.version}, and this machine {ours.version}"
    if its.python != ours.python:
        return f"{its.machine} has Python {its.python.split()[0]}, and this machine {ours.python.split()[0]}"
    if its.sources != ours.sources:
        return f"{its.machine} has other sources than this machine"
    return ""


def greeting(node: str = "", *packages: Path) -> Greeting:
    """Return what this process is. `packages`: folders of those that it needs besides the engine."""
    sources = " ".join(map(_digest, (Path(engine.__file__).parent, *packages)))
    return Greeting(socket.gethostname(), node, engine.__version__, sys.version, sources)


@functools.cache
def _digest(package: Path) -> str:
    """16 hex digits that change with any Python file of a package."""
    return digest_of(package.rglob("*.py"), package)
