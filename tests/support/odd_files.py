"""What may be in the place of a file: who reads it neither waits nor reads without bound."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 6 * 2**30)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):  # an address is short
        server.bind(path.name)


ODD_FILES: Mapping[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path),
    "folder": Path.mkdir,
    "socket": _socket,
    "sparse": _sparse,
}
"""By kind: makes such a file."""
