"""A memory fence between processes that share memory without locks.

Whoever publishes writes the data, calls `fence`, and writes the number that announces it; whoever reads the number
calls `fence` before it reads the data, and again before it looks whether the number has changed meanwhile. On x86
processors memory is ordered without it. Arm's may let others see two writes, or do two reads, in any order.

Python has no fence, and a library that has one (libatomic) is not at hand in every process. But to release a lock and
then acquire one is a fence in both directions for all of a thread's earlier and later accesses:
Arm orders everything before a write with release semantics, that write before a later read with acquire semantics, and
this read before everything after it (Arm Architecture Reference Manual, DDI 0487, B2.3, "Barrier-ordered-before").
To acquire and release would not do: accesses may move into a critical section from both sides, and meet there.
CPython's locks release and acquire that way: on Linux they are semaphores (glibc's sem_post writes the value with
release semantics, sem_trywait reads it with acquire semantics), on macOS mutexes, from Python 3.14 on atomic bytes.
"""

from __future__ import annotations

from threading import Lock


def fence() -> None:
    """Order this thread's accesses to memory before it and after it, as all processes see them. Takes 0.2 us."""
    lock = Lock()  # of this call, so that threads never wait for each other
    lock.acquire()
    lock.release()
    lock.acquire()
