"""Writes a run's metrics to a list of sinks. One that fails costs a line in the log, never the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from engine.config.sinks import JSON_LINES, sink_names
from engine.protocol.sinks import Begin, SinkEvent
from engine.sinks.files import JSONLines, TensorBoard
from engine.sinks.process import ForeignSink, SinkEnded
from engine.sinks.sink import QueuedSink

_RETRY_EVERY_S = 60.0


def sinks_of(value: str, folder: Path) -> dict[str, QueuedSink]:
    """TensorBoard and the sinks that the option `--sinks` names. `folder`: the run's."""
    others = {name: JSONLines(folder) if name == JSON_LINES else ForeignSink(name) for name in sink_names(value)}
    return {"TensorBoard": TensorBoard(folder), **others}


class Dispatcher:
    """Passes events on to sinks, by the names that the log gives them.

    One that fails with an `OSError` (the disk may be full) begins again later; what it misses meanwhile is lost. One
    that fails otherwise is given up.
    """

    def __init__(self, sinks: Mapping[str, QueuedSink], log: Callable[[Literal["info", "warning"], str], None]) -> None:
        self._sinks, self._log = dict(sinks), log
        self._begin: Begin | None = None
        self._retried_at: dict[str, float] = {}
        """Of the sinks that have failed, when they were tried last."""
        self._slow: set[str] = set()

    def begin(self, run: Begin) -> None:
        self._begin = run
        self.put(run)

    def put(self, event: SinkEvent) -> None:
        """Pass an event on to every sink that works."""
        for name, sink in list(self._sinks.items()):
            if name not in self._retried_at:
                try:
                    sink.take(event)
                except Exception as error:
                    self._failed(name, error)

    def look(self, *, retry: bool) -> None:
        """Called every second: tell which sinks are too slow, and with `retry` begin again with those that failed."""
        for name, sink in self._sinks.items():
            if sink.dropped and name not in self._slow:
                self._slow.add(name)
                self._log("warning", f"{name} is too slow: some metrics are not written for it")
        now = time.monotonic()
        for name, retried_at in list(self._retried_at.items()):
            if retry and self._begin is not None and now - retried_at >= _RETRY_EVERY_S:
                self._retried_at[name] = now
                try:
                    self._sinks[name].take(self._begin)
                except OSError:
                    continue
                del self._retried_at[name]
                self._log("info", f"metrics are written for {name} again")

    def close(self) -> None:
        """Close all sinks at the same time; each has a limit of its own."""
        with ThreadPoolExecutor(max_workers=len(self._sinks) or 1) as pool:
            closing = {name: pool.submit(sink.close) for name, sink in self._sinks.items()}
        for name, sink in list(self._sinks.items()):
            if sink.dropped:
                self._log("info", f"{name} was too slow: {sink.dropped:,} messages were not written for it")
            error = closing[name].exception()
            if isinstance(error, Exception) and name not in self._retried_at:
                self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        if isinstance(error, OSError):
            self._retried_at[name] = time.monotonic()
            reason = error.strerror or str(error)
        else:
            del self._sinks[name]
            reason = str(error) if isinstance(error, SinkEnded) else f"{type(error).__name__}: {error}"
        self._log("warning", f"no more metrics are written for {name}: {reason}")
