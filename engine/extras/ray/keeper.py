"""Ends what is left of a local Ray cluster when the process that has started it ends, however that happened.

Ray's processes end with that process, except for two agents: they first try to report the end to the head of the
cluster, which has ended as well, for up to a minute. A killed process can't end others or delete files, so a small one
of its own waits for its end: the keeper. It recognises the cluster's processes by their session, which Ray's agents and
workers never leave. The keeper belongs to that session, so the kernel gives its number to no other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

from engine.runtime.processes import ENDING, KEEPER, disregard, end_all, held

_held: list[object] = []
"""What stays open until this process ends."""


def keep_cluster(folder: Path, lock: BinaryIO) -> None:
    """Make this process the first of a new session. When it ends, the keeper kills all others of that session, deletes
    `folder` and releases `lock`."""
    with contextlib.suppress(PermissionError):  # it is already
        os.setsid()
    with held():
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(folder)],
            stdin=subprocess.PIPE,  # the keeper reads; it ends with this process
            stdout=subprocess.DEVNULL,
            cwd=folder.anchor,
            pass_fds=[lock.fileno()],
            env={**os.environ, **KEEPER},
            process_group=0,  # on macOS, Ray kills the group of the process that has started it
        )
    _held.extend((keeper, lock))


def main() -> None:
    disregard(*ENDING)  # a shutdown sends them to everybody at once
    while os.read(sys.stdin.fileno(), 4096):
        pass
    end_all(None, os.getsid(0))
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
