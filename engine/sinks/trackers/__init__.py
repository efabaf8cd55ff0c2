"""Sinks for experiment trackers. Each runs in a process of its own, like those of other packages, because a tracker may
be slow, fail or wait for its server. None uses the network unless the user's environment tells its tracker to.
"""

from __future__ import annotations

import hashlib
import socket

from engine.protocol.sinks import Begin

PROJECT = "mario-tui"
"""What trackers file runs under, unless the user's environment names another project."""


def identity(run: Begin) -> str:
    """Tells the run from all others, and is the same after a resume: 12 hexadecimal digits."""
    return hashlib.sha256(f"{socket.gethostname()}:{run.path}:{run.created_at}".encode()).hexdigest()[:12]
