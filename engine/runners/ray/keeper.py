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
import time
from pathlib import Path
from typing import BinaryIO

import psutil

_held: list[object] = []
"""What stays open until this process ends."""
_POLL_S = 0.1
_UNKILLABLE_S = 30.0
"""After that, a process that the kernel can't end yet is left to it."""


def keep_cluster(folder: Path, lock: BinaryIO) -> None:
    """Make this process the first of a new session. When it ends, the keeper kills all others of that session, deletes
    `folder` and releases `lock`. The keeper ignores the signals that this process ignores."""
    os.setsid()
    keeper = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(folder)],
        stdin=subprocess.PIPE,  # the keeper reads; it ends with this process
        stdout=subprocess.DEVNULL,
        cwd=folder.anchor,
        pass_fds=[lock.fileno()],
        process_group=0,  # on macOS, Ray kills the group of the process that has started it
    )
    _held.extend((keeper, lock))


def main() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    deadline = time.monotonic() + _UNKILLABLE_S
    while (others := _others_of_session()) and time.monotonic() < deadline:
        for process in others:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_S)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


def _others_of_session() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            in_session = os.getsid(process.pid) == os.getsid(0) and process.pid != os.getpid()
            if in_session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


if __name__ == "__main__":
    main()
