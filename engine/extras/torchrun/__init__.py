"""Ranks of a DDP run that torchrun has started, on any number of machines.

Rank 0 runs under a host, as every runner does. The others (`engine.extras.torchrun.rank`) get their job from it through
torchrun's store, and are told by it when to stop. torchrun replaces lost ranks: it ends all and starts them again, and
rank 0 then resumes from the newest checkpoint. The store may still hold what an earlier start has left. So each start
has a name of its own, which a rank learns by asking rank 0 with a token that nobody else knows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from datetime import timedelta

import msgspec
import psutil
from torch.distributed import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from engine import __version__
from engine.config.runners import TorchrunRank
from engine.errors import UserError
from engine.monitoring.machine import NodeSampler
from engine.protocol.messages import Machine, decode_machine
from engine.runners.links import START_LIMIT_S, ParentLink
from engine.runners.processes import LEAVE_S
from engine.runners.rank import LOOPBACK, RankJob
from engine.runners.shared_state import SharedState
from engine.runners.start import Start, resolve_device
from engine.runs.marks import check_own
from engine.runs.run import Run
from engine.runtime.threads import user_calls

_SOMEWHERE = "192.0.2.1"
"""An address that is never in use (RFC 5737); the interface that would lead there is that of the default route."""


def use_interface(rank: TorchrunRank) -> None:
    """Unless the user has named an interface, let gloo use the one that leads to rank 0, or that of the default route.

    Gloo itself takes that of the machine's name, which many systems resolve to loopback. Raises `UserError` if there is
    none that reaches other machines.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    if rank.local_ranks == rank.ranks:
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
        return
    for host in (os.environ["MASTER_ADDR"], _SOMEWHERE):
        name = _interface_to(host)
        if name and name != LOOPBACK:
            os.environ["GLOO_SOCKET_IFNAME"] = name
            return
    raise UserError("no network interface leads to the other machines; name one: GLOO_SOCKET_IFNAME=eth0")


def _interface_to(host: str) -> str:
    """The interface whose address packets to a host would have; empty if there is none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return ""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            return name
    return ""


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
        """Return what belongs to this start. Its name must be known."""
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


_NAP_S = 0.05
_NEVER = timedelta(days=1)
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
        self._link = link
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
        limit_s = START_LIMIT_S + user_calls.step_s
        deadline = time.monotonic() + limit_s
        while not self._store.check(self._machine_keys):
            self._link.beat()
            self._answer()
            if reason := self._failure():
                raise RuntimeError(reason)
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all ranks were ready within {limit_s:g} s")
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
        everything.wait([job_key(token)], _NEVER)  # rank 0 makes its lanes first; torchrun tells of its end
        job = msgspec.json.decode(everything.get(job_key(token)), type=RankJob)
        self._begin(job.start)
        return job

    def join(self) -> Store:
        self._ready()
        store = self._store
        store.wait(self._machine_keys, timedelta(seconds=START_LIMIT_S + user_calls.step_s))  # lanes are made first
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
