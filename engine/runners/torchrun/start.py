"""One start of all ranks that torchrun has started, as each of them sees it in torchrun's store.

The store may still hold what an earlier start has left. So each start has a name of its own, which a rank learns by
asking rank 0 with a token that nobody else knows.
"""

from __future__ import annotations

import socket
from datetime import timedelta

from torch.distributed import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from engine.config.torchrun import TorchrunRank
from engine.runners.torchrun.interface import use_interface
from engine.runners.watchdog import START_LIMIT_S

LOAD_EVERY_S = 3.0
"""Seconds after which a machine lets rank 0 know its load."""


class TorchrunStart:
    """One start of all ranks, as one of them sees it; see `engine.runners.rank.Rendezvous`."""

    shares_state = False

    def __init__(self, rank: TorchrunRank) -> None:
        """Connect to the store. Waits for rank 0, which may serve it."""
        self._rank = rank
        timeout = timedelta(seconds=START_LIMIT_S)
        store, _, _ = next(rendezvous("env://", rank.index, rank.ranks, timeout=timeout))
        self._all_starts: Store = PrefixStore("mario_tui", store)
        self._named: Store | None = None

    def _begin(self, name: str) -> None:
        """Learn the name of this start."""
        self._named = PrefixStore(name, self._all_starts)

    @property
    def _store(self) -> Store:
        """What belongs to this start. Its name must be known."""
        assert self._named is not None
        return self._named

    def _ready(self) -> None:
        """Tell the others that this rank is ready."""
        use_interface(self._rank)
        self._store.set(key_of("machine", self._rank.index), socket.gethostname())

    @property
    def _machine_keys(self) -> list[str]:
        """Keys with the name of each rank's machine, which are there when it is ready."""
        return [key_of("machine", index) for index in range(self._rank.ranks)]


def key_of(what: str, index: int) -> str:
    return f"{what}/{index}"


def job_key(token: str) -> str:
    return f"job/{token}"
