"""The base class of every message between the processes of a run, its clients and the engine's commands."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base class of all messages: immutable, tagged with the class name."""
