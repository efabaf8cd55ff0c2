"""The queues on which a run's processes send each other messages: one per process and direction, never two writers.

A `multiprocessing.SimpleQueue` guards its pipe with two named semaphores. A killed writer would keep them locked, and a
killed run would leave them in /dev/shm. One writer and one reader need neither, so no lock is shared here.
"""

from __future__ import annotations

import multiprocessing
import threading
from multiprocessing.connection import Connection
from typing import Any, Generic, Self, TypeVar

from engine.protocol.commands import Command
from engine.protocol.framing import decode_command, decode_report, encode
from engine.protocol.message import Message
from engine.protocol.messages import Report

M = TypeVar("M", bound=Message)


class MessageQueue(Generic[M]):
    """A queue from one process to another. Pass it to the new process as an argument of its start (spawn context).

    Messages travel as MessagePack: reading one never executes anything. After the start, each process closes the end
    that it does not use, with `only_read` or `only_write`. Then the other process's death ends `get` with `EOFError`
    (`OSError` in the middle of a message) and `put` with `OSError`.
    """

    def __init__(self) -> None:
        self._reader: Connection
        self._writer: Connection
        self._reader, self._writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._putting = threading.Lock()

    def __getstate__(self) -> Any:
        return self._reader, self._writer

    def __setstate__(self, state: Any) -> None:
        self._reader, self._writer = state
        self._putting = threading.Lock()

    @classmethod
    def inherited(cls, descriptor: int, *, reads: bool) -> Self:
        """The reading or the writing end of a queue that the parent process has made, from its file descriptor."""
        queue = cls.__new__(cls)
        end = Connection(descriptor, readable=reads, writable=not reads)
        queue.__setstate__((end, end))
        return queue

    @property
    def descriptors(self) -> tuple[int, int]:
        """Of the reading and the writing end."""
        return self._reader.fileno(), self._writer.fileno()

    def only_read(self) -> None:
        """This process is the reader."""
        self._writer.close()

    def only_write(self) -> None:
        """This process is the writer."""
        self._reader.close()

    def put(self, message: M) -> None:
        """Send a message, from any thread. Blocks while the pipe is full. Raises `OSError` if the reader is gone."""
        encoded = encode(message)
        with self._putting:
            self._writer.send_bytes(encoded)

    def get_encoded(self) -> bytes:
        """The next message as MessagePack; blocks until it has come. Raises `EOFError` or `OSError` if the writer is
        gone."""
        return self._reader.recv_bytes()

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Whether a message, or the end of the writer, has come within `timeout_s` seconds."""
        return self._reader.poll(timeout_s)

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`, together with the sentinels of processes."""
        return self._reader.fileno()

    @property
    def closed(self) -> bool:
        """Whether this process has stopped reading."""
        return self._reader.closed

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class CommandQueue(MessageQueue[Command]):
    """From the host to the coordinator of a run."""

    def get(self) -> Command:
        """As `get_encoded`. Raises `ValueError` for what is not a command."""
        return decode_command(self.get_encoded())


class ReportQueue(MessageQueue[Report]):
    """From the coordinator to the host, or from a member to its coordinator."""

    def get(self) -> Report:
        """As `get_encoded`. Raises `ValueError` for what is not a report."""
        return decode_report(self.get_encoded())
