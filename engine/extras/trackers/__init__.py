"""Sinks for experiment trackers. Each runs in a process of its own, like those of other packages, because a tracker may
be slow, fail or wait for its server. None uses the network unless the user's environment tells its tracker to.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from pathlib import Path

from engine.protocol.messages import Failed, Finished
from engine.protocol.sinks import BEST_POLICY_FILE, Begin
from engine.runtime.files import HeldFolder
from engine.sinks.sink import ScalarSink

PROJECT = "mario-tui"
"""What trackers file runs under, unless the user's environment names another project."""


def identity(run: Begin) -> str:
    """Tells the run from all others, and is the same after a resume, also from a copy of its folder on another machine:
    12 hexadecimal digits."""
    return hashlib.sha256(f"{run.run}:{run.created_at}".encode()).hexdigest()[:12]


class PolicySink(ScalarSink):
    """A sink that can also keep the best-evaluated policy of the run, when that ends."""

    keeps_policy = False

    def begin(self, run: Begin) -> None:
        super().begin(run)
        self._folder = HeldFolder(Path(run.path))

    @abstractmethod
    def write_policy(self, path: Path) -> None:
        """Keep a copy of a file."""

    def end(self, end: Finished | Failed) -> None:
        path = self._folder.path / BEST_POLICY_FILE
        if self.keeps_policy and path.is_file() and not path.is_symlink():
            self.write_policy(path)
