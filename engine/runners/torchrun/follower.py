"""A start of all ranks, as a rank other than 0 sees it: it asks rank 0 for its job, and tells it how it is doing."""

from __future__ import annotations

import contextlib
import secrets
import threading
from datetime import timedelta

import msgspec
from torch.distributed import PrefixStore, Store

from engine.config.torchrun import TorchrunRank
from engine.runners.node_load import NodeSampler
from engine.runners.rank import RankJob
from engine.runners.torchrun.start import LOAD_EVERY_S, TorchrunStart, job_key, key_of
from engine.runners.watchdog import START_LIMIT_S


class TorchrunFollower(TorchrunStart):
    """The start, as a rank other than 0 sees it."""

    def __init__(self, rank: TorchrunRank) -> None:
        super().__init__(rank)
        self._closed = threading.Event()
        self._reporting: threading.Thread | None = None

    def job(self) -> RankJob:
        """Ask rank 0 for the job. Raises `msgspec.DecodeError` if the answer is none."""
        token = secrets.token_hex(8)
        everything = self._all_starts
        everything.set(key_of("hello", self._rank.index), token)
        everything.wait([job_key(token)], timedelta(seconds=START_LIMIT_S))
        job = msgspec.json.decode(everything.get(job_key(token)), type=RankJob)
        self._begin(job.start)
        return job

    def join(self) -> Store:
        self._ready()
        store = self._store
        store.wait(self._machine_keys, timedelta(seconds=START_LIMIT_S))  # something may be compiled first
        return PrefixStore("group", store)

    def report_load(self) -> None:
        """Let rank 0 know this machine's load every few seconds, in a thread."""
        sampler, store, index = NodeSampler(), self._store, self._rank.index

        def report() -> None:
            with contextlib.suppress(RuntimeError):  # rank 0 is gone
                while not self._closed.wait(LOAD_EVERY_S):
                    store.set(key_of("load", index), sampler.sample())  # type: ignore[arg-type]  # bytes are fine

        self._reporting = threading.Thread(target=report, name="load", daemon=True)
        self._reporting.start()

    def fail(self, reason: str) -> None:
        """Tell rank 0 why this rank ends."""
        with contextlib.suppress(RuntimeError):  # rank 0 is gone
            self._store.set(key_of("failed", self._rank.index), reason)

    def close(self) -> None:
        self._closed.set()
        if self._reporting is not None:
            self._reporting.join()
