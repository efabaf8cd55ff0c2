"""A start of all ranks, as a rank other than 0 sees it: it asks rank 0 for its job, and tells it how it is doing."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from datetime import timedelta

import msgspec
from torch.distributed import PrefixStore, Store

from engine import __version__
from engine.config.torchrun import TorchrunRank
from engine.errors import UserError
from engine.runners.device import resolve_device
from engine.runners.node_load import NodeSampler
from engine.runners.rank import RankJob
from engine.runners.start import Start
from engine.runners.torchrun.start import LOAD_EVERY_S, TorchrunStart, job_key, key_of
from engine.runners.watchdog import START_LIMIT_S
from engine.runs.ownership import check_own
from engine.runs.run import Run

_APPEAR_S = 10.0
"""Seconds that a file of rank 0 may take to appear on other machines."""


class TorchrunFollower(TorchrunStart):
    """The start, as a rank other than 0 sees it."""

    def __init__(self, rank: TorchrunRank) -> None:
        super().__init__(rank)
        self._closed = threading.Event()
        self._reporting: threading.Thread | None = None

    def job(self) -> RankJob:
        """Ask rank 0 for the job. Raises `ValueError` if the answer is none."""
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


def check_machine(job: RankJob, start: Start) -> None:
    """Raise `UserError` unless this machine has what rank 0's has: the version, the kind of device, and the folder of
    the run."""
    run, device = start.run, resolve_device(start.config.device).type
    if job.version != __version__:
        raise UserError(f"rank 0 has mario-tui {job.version}, and this machine {__version__}")
    if device != job.device:
        raise UserError(f"--device: rank 0 learns on {job.device}, this machine would on {device}; name one of them")
    deadline = time.monotonic() + _APPEAR_S
    while time.monotonic() < deadline:
        with contextlib.suppress(UserError):
            if Run(run).record().created_at == job.created_at:
                check_own(run)
                return
        time.sleep(0.1)
    raise UserError(f"--run-dir: {run} is not rank 0's folder; it must be on a disk that all machines see")
