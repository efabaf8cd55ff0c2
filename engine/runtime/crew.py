"""Threads that do a piece of work together, again and again.

Handing work to a `ThreadPoolExecutor` takes tens of microseconds for each thread, one after the other; a step of many
lanes on many cores is done in a millisecond.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[int], object]


class Crew:
    """`others` threads beside the one that calls it. They end when it is no longer used."""

    def __init__(self, others: int, name: str) -> None:
        self._begin: list[SimpleQueue[Work | None]] = [SimpleQueue() for _ in range(others)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._working = 0  # threads that have not answered
        for number, begin in enumerate(self._begin, 1):
            threading.Thread(
                target=_serve, args=(number, begin, self._done), name=f"{name}_{number}", daemon=True
            ).start()
        weakref.finalize(self, _end, self._begin)

    def __call__(self, work: Work) -> None:
        """Call `work(0)` in this thread and `work(1)`, `work(2)`, ... in the others. Returns when all of them have
        returned, and raises what one of them raised."""
        errors = list[BaseException]()
        try:
            for begin in self._begin:
                self._working += 1
                begin.put(work)
            work(0)
        finally:  # Ctrl-C must not leave a thread behind that still works
            while self._working:
                error = self._done.get()
                self._working -= 1
                if error is not None:
                    errors.append(error)
        if errors:
            raise errors[0]


def _serve(number: int, begin: SimpleQueue[Work | None], done: SimpleQueue[BaseException | None]) -> None:
    while (work := begin.get()) is not None:
        try:
            work(number)
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)
        del work  # it must not keep alive what it belongs to


def _end(begin: list[SimpleQueue[Work | None]]) -> None:
    for queue in begin:
        queue.put(None)
