"""Sinks for experiment trackers. Each runs in a process of its own, like those of other packages, because a tracker may
be slow, fail or wait for its server. None uses the network unless the user's environment tells its tracker to.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import UserError
from engine.protocol.messages import Failed, Finished
from engine.protocol.sinks import BEST_POLICY_FILE, Begin
from engine.runs.marks import check_own
from engine.runs.sweep import Sweep
from engine.runtime.files import HeldFolder, is_own, open_lock
from engine.sinks.sink import ScalarSink

PROJECT = "mario-tui"
"""What trackers file runs under, unless the user's environment names another project."""


def identity(run: Begin) -> str:
    """Tells the run from all others, and is the same after a resume, also from a copy of its folder on another machine:
    12 hexadecimal digits."""
    return hashlib.sha256(f"{run.run}:{run.created_at}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Store:
    """The file or folder in which a tracker keeps what it is told."""

    path: Path
    is_shared: bool
    """By the runs of a sweep, which may train at the same time."""

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Nothing of another run is written meanwhile. SQLite would give up after a time, and has no order."""
        if not self.is_shared:
            yield
            return
        with open_lock(self.path.with_suffix(".lock")) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def store_of(run: Begin, name: str, *opened: str) -> Store:
    """Where a tracker keeps what it is told, unless the user's environment names another place: in the folder of the
    sweep, if the run lies in one that this user has made here, else in the run's.

    A run goes on where it has begun. Those of a sweep on a cluster never share: SQLite's locks are of one machine.

    Args:
        name: of the file or folder.
        opened: patterns of what is opened there, which must be this user's, without links.

    Raises `UserError` if something else has its place.
    """
    own = Path(run.path, name)
    if os.path.lexists(own) or not _shares(sweep := Sweep(own.parent.parent)):
        return Store(own, is_shared=False)
    shared = sweep.path / name
    if os.path.lexists(shared) and not is_own(shared):
        raise UserError(f"{shared}: must be a file or folder of your own, and no link")
    for path in (found for pattern in opened for found in sweep.path.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):  # SQLite's journals come and go
            check_own(path)
    return Store(shared, is_shared=True)


def _shares(sweep: Sweep) -> bool:
    """Return whether the runs of a sweep, if it is one, write to one store."""
    with contextlib.suppress(UserError):
        return sweep.own_plan().ray == "none"
    return False


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
