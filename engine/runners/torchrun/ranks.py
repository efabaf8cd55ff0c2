"""The ranks other than 0, as rank 0 sees them, when torchrun has started them on any number of machines.

Rank 0 runs under a host, as every runner does. The others (`engine.commands.rank`) get their job from it through
torchrun's store, and are told by it when to stop. torchrun replaces lost ranks: it ends all and starts them again, and
rank 0 then resumes from the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import time

import msgspec
from torch.distributed import PrefixStore, Store

from engine.config.torchrun import TorchrunRank
from engine.protocol.machine import Machine, decode_machine
from engine.runners.member_pool import LEAVE_S
from engine.runners.parent_link import ParentLink
from engine.runners.rank import RankJob
from engine.runners.shared_state import SharedState
from engine.runners.torchrun.start import LOAD_EVERY_S, TorchrunStart, job_key, key_of
from engine.runners.watchdog import START_LIMIT_S

_NAP_S = 0.05
_EXPLAIN_S = 2.0
"""Seconds that a rank which fails has to tell rank 0 why."""


class TorchrunRanks(TorchrunStart):
    """The ranks other than 0; see `engine.runners.ddp.Ranks`, and `Cluster` in `coordination.stats.processes`."""

    wire_bytes = 0

    def __init__(self, rank: TorchrunRank, link: ParentLink) -> None:
        if rank.local_ranks < rank.ranks and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
            link.log(
                "torchrun: a machine that joins later will end the job; "
                "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun on every machine",
                "warning",
            )
        super().__init__(rank)
        self.shared_state = SharedState(rank.ranks)
        self._job = b""
        self._answered: set[bytes] = set()
        self._names: list[str] = []
        self._loads: dict[int, Machine] = {}
        self._looked_at = float("-inf")

    @property
    def cluster(self) -> TorchrunRanks:
        return self

    def start(self, job: RankJob) -> None:
        self._begin(job.start)
        self._job = msgspec.json.encode(job)

    def join(self) -> Store:
        self._ready()
        deadline = time.monotonic() + START_LIMIT_S
        while not self._store.check(self._machine_keys):
            self._answer()
            if reason := self._failure():
                raise RuntimeError(reason)
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all ranks were ready within {START_LIMIT_S:g} s")
            time.sleep(_NAP_S)
        self._names = [self._store.get(key).decode() for key in self._machine_keys]
        return PrefixStore("group", self._store)

    def why_lost(self) -> str:
        deadline = time.monotonic() + _EXPLAIN_S
        while time.monotonic() < deadline:
            if reason := self._failure():
                return reason
            time.sleep(_NAP_S)
        return ""

    def restarts(self, index: int) -> int:
        return self._rank.restarts

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Nothing to do: torchrun waits for them."""

    def machine(self, index: int) -> str:
        return self._names[index]

    def waits_for_core(self, index: int) -> bool:
        return False

    def machines(self) -> list[Machine]:
        """The newest load of each other machine."""
        if time.monotonic() - self._looked_at >= LOAD_EVERY_S:
            self._looked_at = time.monotonic()
            for index, name in enumerate(self._names):
                key = key_of("load", index)
                if name != self._names[0] and self._store.check([key]):
                    with contextlib.suppress(ValueError):
                        self._loads[index] = decode_machine(self._store.get(key))
        return list(self._loads.values())

    def _failure(self) -> str:
        """Why a rank has ended, if one has told it."""
        for index in range(1, self._rank.ranks):
            if self._store.check([key_of("failed", index)]):
                return f"rank {index}: {self._store.get(key_of('failed', index)).decode(errors='replace')}"
        return ""

    def _answer(self) -> None:
        """Give the job to the ranks that have asked for it."""
        everything = self._all_starts
        for index in range(1, self._rank.ranks):
            if everything.check([key_of("hello", index)]):
                token = everything.get(key_of("hello", index))
                if token not in self._answered:
                    self._answered.add(token)
                    everything.set(job_key(token.decode()), self._job.decode())
