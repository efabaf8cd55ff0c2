"""Processes: their signals, how they end, what ends with them, and the order in which they see shared memory.

**Keeper.** A killed process can't end what a user's code has started in it, such as a simulator, so another one waits
for its end: the keeper. It is a shell that reads a pipe; only when that closes, it becomes this module's process. It
belongs to no parent, so that code which waits for its children, or kills them, never meets it. Two things tell what
this process, or a descendant, has started:

- its session, if this process is the first of one. The keeper belongs to it, so the kernel gives its number to no other
- an environment variable, which programs inherit that begin a session of their own or become daemons
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

Handler = Callable[[int, FrameType | None], object] | int | None
"""A function, `signal.SIG_IGN`, `signal.SIG_DFL`, or what `signal.getsignal` returns."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a process to end."""
_own: dict[signal.Signals, Handler] = {}


@contextlib.contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Set these handlers in the block, and restore those from before after it. Only the main thread can."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def exits_on_signals() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP raise `SystemExit`, so that cleanup runs as after Ctrl-C."""
    with handling({signal.SIGTERM: _exit, signal.SIGHUP: _exit}):
        yield


def handle_here(handlers: Mapping[signal.Signals, Handler]) -> None:
    """Set and unblock these handlers, which are functions, for this process alone. What it starts or forks, such as the
    children of a user's environment, reacts to the signals as usual. Only the main thread can."""
    if not _own:
        os.register_at_fork(after_in_child=_as_usual)
    for number, handler in handlers.items():
        _own[number] = handler
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)


def disregard(*numbers: signal.Signals) -> None:
    """Do nothing about these signals, because another process decides what follows from them. Unlike with
    `signal.SIG_IGN`, which outlives `exec`, that is so in this process alone; see `handle_here`."""
    handle_here(dict.fromkeys(numbers, _nothing))
    for number in numbers:
        signal.siginterrupt(number, False)  # system calls of a user's code don't notice


@contextlib.contextmanager
def held() -> Iterator[None]:
    """In the block, hold back the signals `ENDING` in this thread. A process that is started in it begins so: nothing
    ends it before it has called `handle_here`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_held(process: SpawnProcess) -> None:
    """Start a process of multiprocessing so that it begins with the signals `held` back. Raises what `start` does."""
    resource_tracker.ensure_running()  # it would be started with the first process, and this unblocks signals
    with held():
        process.start()


def _as_usual() -> None:
    """In a forked child."""
    for number, handler in _own.items():
        if signal.getsignal(number) is handler:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _nothing(signum: int, frame: FrameType | None) -> None: ...


def _exit(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


_PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


def end_with_parent() -> None:
    """Exit as soon as the parent process ends; does nothing in a process that multiprocessing did not start.

    A thread waits for the parent's end. On Linux the kernel kills the process as well, even if it is stopped (SIGSTOP).
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    killed_with_parent()

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def killed_with_parent() -> None:
    """On Linux, have the kernel kill this process when its parent ends, even if it is stopped; elsewhere do nothing."""
    _signal_at_parents_end(signal.SIGKILL)


def continued_with_parent() -> None:
    """On Linux, have the kernel continue this process, if it is stopped, when its parent ends: `end_with_stdin` can
    then clean up. Elsewhere do nothing."""
    _signal_at_parents_end(signal.SIGCONT)


def _until_closed() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass


def end_with_stdin(
    read: Callable[[], object] = _until_closed, on_close: Callable[[], object] = lambda: None, *, timeout_s: float = 0.0
) -> None:
    """Exit when standard input closes: it is a pipe from the process that asked for the work.

    A thread calls `read`, which returns at the end of standard input. Then it calls `on_close`, waits `timeout_s`
    seconds and ends the process with status 1.
    """

    def wait() -> None:
        read()
        on_close()
        time.sleep(timeout_s)
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def _signal_at_parents_end(number: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def how_it_ended(code: int | None) -> str:
    """In words, the exit code of `multiprocessing` or `subprocess`: negative ones are signals."""
    if code is None or code >= 0:
        return f"exit status {code}"
    named = {number.value: number.name for number in signal.Signals}  # real-time signals have no names
    return f"killed by {named.get(-code, f'signal {-code}')}"


_VARIABLE = "MARIO_TUI_STARTED_BY"
KEEPER = {_VARIABLE: "keeper"}
"""In the environment of a process that no keeper ends."""
_WAIT = 'exec 3<&0; (read -r line <&3; exec "$@") &'
_GRACE_S = 1.0
"""From SIGTERM to SIGKILL."""
_POLL_S = 0.1
_UNKILLABLE_S = 30.0
"""After that, a process that the kernel can't end yet is left to it."""
_NONE, _CLOSED = -1, -2
_pipe = _NONE
_starting = threading.Lock()
_takes = False


def fresh_mark() -> dict[str, str]:
    """For the environment of a process that will call `take_children(marked=True)`."""
    return {_VARIABLE: os.urandom(16).hex()}


def take_children(*, marked: bool = False) -> None:
    """Let children of users' code end with this process, which must be the program's own: in a user's, they are his.

    `marked`: it was started with a `fresh_mark`, which finds forked children, too, that begin a session.
    """
    global _takes
    _takes = True
    if not (marked and _VARIABLE in os.environ):
        os.environ.update(fresh_mark())


def start_keeper() -> None:
    """Called before a user's code runs. Does nothing in a process that has not taken its children, or has a keeper.

    Threads that come meanwhile wait: what they fork would hold the keeper's pipe, or the one on which `subprocess`
    waits for its start.
    """
    with _starting:
        if _takes and _pipe == _NONE:
            _start_keeper()


def _start_keeper() -> None:
    global _pipe
    reading, _pipe = os.pipe()
    session = os.getpid() if os.getsid(0) == os.getpid() else 0
    command = [sys.executable, "-P", "-m", __name__, os.environ[_VARIABLE], str(session)]
    try:
        with held():  # a shutdown sends signals to everybody at once
            subprocess.run(
                ["/bin/sh", "-c", _WAIT, "keeper", *command],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**os.environ, **KEEPER},
                process_group=0,
                check=True,
            )
    finally:
        os.close(reading)
    os.register_at_fork(after_in_child=_in_forked_child)
    Finalize(None, _end_children, exitpriority=0)


def _in_forked_child() -> None:
    """The keeper of its parent is its own, too, and must not wait for it."""
    global _pipe, _starting
    _starting = threading.Lock()  # another thread may have held it
    if _pipe != _CLOSED:
        os.close(_pipe)
        _pipe = _CLOSED


def _end_children() -> None:
    """End children of multiprocessing, for which this process would wait at its end."""
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _GRACE_S
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()


def end_all(mark: str | None, session: int, grace_s: float = 0.0) -> None:
    """End all processes with a mark or in a session, except keepers: by SIGTERM, and after `grace_s` by SIGKILL."""
    import psutil  # most processes never need it

    told, begun_at = set[psutil.Process](), time.monotonic()
    while (since := time.monotonic() - begun_at) < _UNKILLABLE_S and (processes := [*_found(mark, session)]):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                if since >= grace_s:
                    process.kill()
                elif process not in told:
                    told.add(process)
                    process.terminate()
        time.sleep(_POLL_S)


def _found(mark: str | None, session: int) -> Iterator[psutil.Process]:
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            try:
                found = process.environ().get(_VARIABLE)
            except psutil.AccessDenied:  # of another user, or it lets nobody look
                found = None
            is_inside = session and os.getsid(process.pid) == session
            is_started = is_inside or (mark is not None and found == mark)
            if is_started and found != KEEPER[_VARIABLE] and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def fence() -> None:
    """Order this thread's accesses to memory before it and after it, as all processes see them. Takes 0.2 us.

    For processes that share memory without locks. Whoever publishes writes the data, calls `fence`, and writes the
    number that announces it; whoever reads the number calls `fence` before it reads the data, and again before it looks
    whether the number has changed meanwhile. On x86 processors memory is ordered without it. Arm's may let others see
    two writes, or do two reads, in any order.
    """
    # Python has no fence, and a library that has one (libatomic) is not at hand in every process. But to release a lock
    # and then acquire one is a fence in both directions for all of a thread's earlier and later accesses: Arm orders
    # everything before a write with release semantics, that write before a later read with acquire semantics, and this
    # read before everything after it (Arm Architecture Reference Manual, DDI 0487, B2.3, "Barrier-ordered-before").
    # To acquire and release would not do: accesses may move into a critical section from both sides, and meet there.
    # CPython's locks release and acquire that way: on Linux they are semaphores (glibc's sem_post writes the value with
    # release semantics, sem_trywait reads it with acquire semantics), on macOS mutexes, from Python 3.14 on atomic
    # bytes.
    lock = threading.Lock()  # of this call, so that threads never wait for each other
    lock.acquire()
    lock.release()
    lock.acquire()


if __name__ == "__main__":
    end_all(sys.argv[1], int(sys.argv[2]), _GRACE_S)
