"""The load of another machine of a run, sampled by a process there. Neither Ray nor PyTorch is imported here."""

from __future__ import annotations

import socket

import msgspec

from engine.monitoring.machine import SystemSampler
from engine.protocol.machine import Machine
from engine.runtime.parent import killed_with_parent


class NodeSampler:
    """Samples the machine that it is created on."""

    def __init__(self) -> None:
        killed_with_parent()
        self._sampler = SystemSampler()

    def sample(self) -> bytes:
        """A `Machine` as MessagePack. Usage is averaged over the time since the last call."""
        system = self._sampler.sample()
        return msgspec.msgpack.encode(
            Machine(
                name=socket.gethostname(),
                cores=len(system.cpu_percent),
                cpu_percent=sum(system.cpu_percent) / len(system.cpu_percent),
                memory_used_bytes=system.memory_used_bytes,
                memory_total_bytes=system.memory_total_bytes,
                gpus=system.gpus,
            )
        )
