"""The load of a machine: the one that the host of a run samples every second, and others that take part in the run."""

from __future__ import annotations

import msgspec

from engine.protocol.message import Message, bounded


class GPU(msgspec.Struct, frozen=True):
    """None for values that a GPU does not report, as MIG slices, virtual and integrated GPUs do."""

    name: str
    utilisation_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_c: float | None


class Machine(msgspec.Struct, frozen=True):
    """Load of another machine that takes part in the run."""

    name: str
    cores: int
    cpu_percent: float  # mean over its cores
    memory_used_bytes: int
    memory_total_bytes: int
    gpus: list[GPU]


decode_machine = bounded(msgspec.msgpack.Decoder(Machine).decode)


class System(Message, frozen=True):
    """Load of the machine. `gpu_note` says in one line why `gpus` is empty."""

    cpu_percent: list[float]  # per core
    memory_used_bytes: int
    memory_total_bytes: int
    run_cpu_percent: float  # 100 is one core
    run_memory_bytes: int
    processes: int
    gpus: list[GPU]
    gpu_note: str
