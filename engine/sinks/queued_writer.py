"""Writes in a thread: neither a disk that does not answer nor a process that does not read makes the host wait."""

from __future__ import annotations

import errno
import threading
from collections import deque
from typing import Protocol

from engine.sinks.sink import Sink

MOST = 2**14
"""Chunks that may wait. Those beyond are dropped and counted."""


class Stream(Protocol):
    """What is written to; only the thread touches it."""

    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> object: ...
    def close(self) -> object: ...


class QueuedWriter:
    """Writes chunks of bytes to a stream, which it closes at the end. Whoever reads the stream sees them at once.

    What the stream raises ends the writing; `put` and `close` raise it from then on.
    """

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream = stream
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._error: Exception | None = None
        self.dropped = 0
        """Chunks that found no room."""
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)
        self._thread.start()

    def put(self, chunk: bytes, *, droppable: bool = True) -> None:
        with self._changed:
            if self._error is not None:
                raise self._error
            if droppable and len(self._waiting) >= MOST:
                self.dropped += 1
            else:
                self._waiting.append(chunk)
                self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Write what is left. Raises `TimeoutError` if that takes longer than `timeout_s` seconds; it goes on then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(errno.ETIMEDOUT, f"not written within {timeout_s:.0f} s")
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            try:
                while chunks := self._take():
                    for chunk in chunks:
                        self._stream.write(chunk)
                    self._stream.flush()
            finally:
                self._stream.close()
        except Exception as error:  # told by the next `put`
            self._error = error

    def _take(self) -> list[bytes]:
        """The chunks that wait, as soon as there are any; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            chunks = list(self._waiting)
            self._waiting.clear()
            return chunks


class QueuedSink(Sink):
    """A sink in the host's process."""

    _writer: QueuedWriter | None = None
    """Since `begin`."""

    @property
    def dropped(self) -> int:
        """Messages that were dropped, because the sink is too slow."""
        return 0 if self._writer is None else self._writer.dropped
