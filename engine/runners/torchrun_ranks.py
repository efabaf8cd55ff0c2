"""Ranks that torchrun has started, on any number of machines.

Rank 0 runs under a host, as every runner does. The others (`engine.commands.rank`) get their job from it through the
store whose address torchrun tells them, and are told from it when to stop. torchrun replaces lost ranks: it ends all
and starts them again, and rank 0 then resumes from the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from datetime import timedelta

import msgspec
import psutil
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from engine.config.torchrun import TorchrunRank
from engine.protocol.messages import Machine
from engine.runners.host_link import HostLink
from engine.runners.node_load import NodeSampler
from engine.runners.rank import RankJob
from engine.runners.shared_state import SharedState
from engine.runners.watchdog import START_LIMIT_S
from engine.runners.worker_pool import LEAVE_S

TIMEOUT_S = 18.0
"""Seconds after which a rank that does not answer is lost: its machine may be cut off. More than the first step or
update of a rank may take (`FIRST_S`), and less than the host of rank 0 waits for a sign of life (`SILENCE_LIMIT_S`)."""
_LOAD_EVERY_S = 3.0
_JOB = "mario_tui/job"


class TorchrunMeeting:
    """A rank's view of the store; see `engine.runners.rank.Meeting`. Waits for rank 0, which may serve the store."""

    apart = True
    timeout_s = TIMEOUT_S

    def __init__(self, rank: TorchrunRank) -> None:
        self.rank = rank
        timeout = timedelta(seconds=START_LIMIT_S)
        self.store, _, _ = next(rendezvous("env://", rank.index, rank.ranks, timeout=timeout))

    def job(self) -> RankJob:
        """Wait for rank 0's job. Raises `msgspec.DecodeError` if what comes is none."""
        self.store.wait([_JOB], timedelta(seconds=START_LIMIT_S))
        return msgspec.json.decode(self.store.get(_JOB), type=RankJob)

    def meet(self) -> Store:
        use_interface(self.rank)
        self.store.set(_key("machine", self.rank.index), socket.gethostname())
        all_ready = [_key("machine", index) for index in range(self.rank.ranks)]
        self.store.wait(all_ready, timedelta(seconds=START_LIMIT_S))  # something may be compiled first
        return PrefixStore("mario_tui/group", self.store)

    def report_load(self) -> None:
        """Let rank 0 know this machine's load every few seconds, in a thread."""
        sampler = NodeSampler()

        def report() -> None:
            with contextlib.suppress(RuntimeError):  # rank 0 is gone
                while True:
                    self.store.set(_key("load", self.rank.index), sampler.sample())
                    time.sleep(_LOAD_EVERY_S)

        threading.Thread(target=report, name="load", daemon=True).start()


class TorchrunRanks:
    """The ranks other than 0; see `engine.runners.ddp.Ranks` and `engine.runners.stats.processes.Cluster`."""

    wire_bytes = 0

    def __init__(self, rank: TorchrunRank, link: HostLink) -> None:
        if rank.local_ranks < rank.ranks and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
            link.log(
                "torchrun: a machine that joins later will end the job; "
                "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun on every machine",
                "warning",
            )
        self.shared_state = SharedState(rank.ranks)
        self.meeting = TorchrunMeeting(rank)
        self._names: list[str] = []
        self._loads: dict[str, Machine] = {}
        self._looked_at = float("-inf")

    @property
    def cluster(self) -> TorchrunRanks:
        return self

    def start(self, job: RankJob) -> None:
        self.meeting.store.set(_JOB, msgspec.json.encode(job).decode())

    def restarts(self, index: int) -> int:
        return self.meeting.rank.restarts

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Nothing to do: torchrun waits for them."""

    def machine(self, index: int) -> str:
        if not self._names:
            ranks = range(self.meeting.rank.ranks)
            self._names = [self.meeting.store.get(_key("machine", each)).decode() for each in ranks]
        return self._names[index]

    def waits_for_core(self, index: int) -> bool:
        return False

    def machines(self) -> list[Machine]:
        """The newest load of each other machine."""
        if time.monotonic() - self._looked_at >= _LOAD_EVERY_S:
            self._looked_at = time.monotonic()
            for index, name in enumerate(self._names):
                key = _key("load", index)
                if name != self._names[0] and self.meeting.store.check([key]):
                    self._loads[name] = msgspec.msgpack.decode(self.meeting.store.get(key), type=Machine)
        return list(self._loads.values())


def use_interface(rank: TorchrunRank) -> None:
    """Let gloo use the interface that leads to rank 0, unless the user has named one.

    Gloo itself takes that of the machine's name, which many systems resolve to loopback.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ or rank.local_ranks == rank.ranks:
        return
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        own = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            os.environ["GLOO_SOCKET_IFNAME"] = name


def _key(what: str, index: int) -> str:
    return f"mario_tui/{what}/{index}"
