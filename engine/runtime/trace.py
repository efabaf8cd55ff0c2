"""Recorded sections in Chrome's trace event format, for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

Every process of a run writes its own part into its working directory, which is the run's folder; `merge` combines them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.runtime.files import write_atomically
from engine.runtime.stopwatch import Stopwatch

PARTS = "trace-*.part.json"


def record_until(watch: Stopwatch, until: float, process: str) -> None:
    """Record until CLOCK_MONOTONIC reaches `until` (seconds), then write this process's part. Call it once per
    iteration."""
    if time.monotonic() < until:
        watch.recording = True
    elif watch.recording:
        watch.recording = False
        write_part(watch, Path(PARTS.replace("*", str(os.getpid()))), process)


def write_part(watch: Stopwatch, path: Path, process: str) -> None:
    """Write the sections that a stopwatch has recorded; atomic, so `path` is complete or absent."""
    pid, events = os.getpid(), list[dict[str, Any]]()
    threads: dict[int, str] = {}
    for each in watch.recorded():
        threads[each.thread] = each.name
        events.append({
            "name": each.section, "cat": "section", "ph": "X", "pid": pid, "tid": each.thread % 2**31,
            "ts": each.begin_ns / 1000, "dur": (each.end_ns - each.begin_ns) / 1000,
        })  # fmt: skip
    named = [{"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": process}}]
    for thread, name in threads.items():
        named.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": thread % 2**31, "args": {"name": name}})
    write_atomically(path, json.dumps([*named, *events]).encode())


def merge(parts: Iterable[Path]) -> dict[str, Any]:
    """Combine parts into one trace, in the object form of the format."""
    events = [event for part in parts for event in json.loads(part.read_text("utf-8"))]
    return {"traceEvents": sorted(events, key=lambda event: event.get("ts", 0.0)), "displayTimeUnit": "ms"}
