"""Links between a run's processes: queues, one per process and direction, the newest frame of the game, and when a
silent process counts as hung; and the main functions of these processes, which import the runner, and torch with it.

A `multiprocessing.SimpleQueue` guards its pipe with two named semaphores. A killed writer would keep them locked, and a
killed run would leave them in /dev/shm. One writer and one reader need neither, so no lock is shared here.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import logging
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Generic, NoReturn, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.protocol.commands import Command, Message, Pause, Resume, Set, Stop, bounded
from engine.protocol.framing import decode_command, decode_report, encode, failure_of
from engine.protocol.messages import SCREEN_SHAPE, Beat, Failed, Log, Report, Thought
from engine.runtime.files import HeldFolder
from engine.runtime.processes import ENDING, disregard, end_with_parent, fence, take_children
from engine.runtime.text import printable_stream, set_off
from engine.runtime.threads import use_at_most, user_calls

SILENCE_LIMIT_S = 20.0
"""Seconds of silence after which a coordinator counts as hung, unless it announced a longer silence."""
START_LIMIT_S = 600.0
"""Seconds of silence after which a starting process counts as hung. It may compile, and on nes-py each lane replays the
inputs of its start."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Silence:
    """How long a process of this machine has been silent. When it has been so for half of `limit_s` seconds, it is
    spared the time that its threads wait for a free core: beside other programs, a run of low priority hardly gets one.
    """

    def __init__(self, pid: int, limit_s: float) -> None:
        self._pid, self._limit_s = pid, limit_s
        self._due, self._spared_s = math.inf, 0.0
        self._looked_at, self._used_s = 0.0, dict[str, float]()

    def is_too_long(self, due: float, now: float) -> bool:
        """Return whether the process is overdue at `now`; it was to give a sign of life by `due` (both
        CLOCK_MONOTONIC)."""
        if due != self._due:
            self._due, self._spared_s, self._used_s = due, 0.0, {}
        if now < due - self._limit_s / 2:
            return False
        before, self._used_s = self._used_s, _used_s(self._pid)
        least = min((used - before[thread] for thread, used in self._used_s.items() if thread in before), default=None)
        if least is not None:
            self._spared_s += max(0.0, now - self._looked_at - least)
        self._looked_at = now
        return now > due + self._spared_s


def _used_s(pid: int) -> dict[str, float]:
    """Seconds of a core that each thread of a process has used which computes or waits for a core, and does not wait
    for anything else. Empty where there is no /proc."""
    used = dict[str, float]()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state, *numbers = thread.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):  # it has ended
            continue
        if state == "R":
            used[thread.parent.name] = sum(map(int, numbers[10:12])) / _TICKS_PER_S
    return used


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
        """Return whether a message, or the end of the writer, has come within `timeout_s` seconds."""
        return self._reader.poll(timeout_s)

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`, together with the sentinels of processes."""
        return self._reader.fileno()

    @property
    def closed(self) -> bool:
        """Return whether this process has stopped reading."""
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


class ParentGoneError(Exception):
    """The process at the other end is gone. A process of a run exits with the one that started it."""


class ParentLink:
    """Commands in, reports out, the latter from any thread.

    Without `commands` none ever come: a member reads its coordinator's orders in the shared state.
    """

    def __init__(self, reports: ReportQueue, commands: CommandQueue | None = None) -> None:
        self._reports, self._commands = reports, commands
        self._waiting = Outstanding()
        self._beaten_at = float("-inf")
        self.on_beat: Callable[[float], object] = lambda within_s: None
        """Called with every heartbeat, and the seconds until the next one."""

    def commands(self, wait_s: float = 0.0) -> list[Command]:
        """Commands that have come, or come within `wait_s` seconds, each asked for once."""
        self._receive(wait_s)
        return self._waiting.take()

    @property
    def stop_waits(self) -> bool:
        """Return whether the next `commands` has a stop: what takes long is better given up."""
        self._receive(0)
        return Stop in self._waiting

    def _receive(self, wait_s: float) -> None:
        if self._commands is None:
            return
        try:
            while self._commands.poll(0 if self._waiting else wait_s):
                self._waiting.put(self._commands.get())
        except (EOFError, OSError):
            raise ParentGoneError from None

    def send(self, report: Report) -> None:
        try:
            self._reports.put(report)
        except OSError:
            raise ParentGoneError from None

    def beat(self, within_s: float | None = None) -> None:
        """Send a heartbeat, at most once a second.

        With `within_s`, at once: the next sign of life may take that many seconds, and a call of a user's code besides.
        """
        now, silence_s = time.monotonic(), SILENCE_LIMIT_S if within_s is None else within_s
        if within_s is not None or now - self._beaten_at >= 1:
            self._beaten_at = now
            self.send(Beat(within_s=silence_s + user_calls.limit_s))
        self.on_beat(silence_s)

    def log(self, text: str, level: Any = "info") -> None:
        self.send(Log(at=time.time(), level=level, text=text))

    def fail(self, error: BaseException) -> NoReturn:
        """From any thread: report why this process can't go on, and end it. Silently if the other end is gone."""
        if not isinstance(error, ParentGoneError):
            failed = failure_of(error)
            with contextlib.suppress(ParentGoneError):
                self.send(failed)
            with contextlib.suppress(OSError):  # the disk of run.log may be full
                print(set_off(failed.traceback or failed.reason), file=sys.stderr, flush=True)
        os._exit(1)  # an orderly exit waits for children, which may be waiting for this process

    def hangs(self, text: str) -> NoReturn:
        """From any thread: report that a user's code hangs, and where, and end this process."""
        with contextlib.suppress(ParentGoneError):
            self.send(Failed(reason=text))
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)


class Outstanding:
    """Commands waiting to be taken.

    A new one replaces an older one of its kind, so holding a key down queues at most one command.
    """

    def __init__(self) -> None:
        self._commands: dict[object, Command] = {}

    def put(self, command: Command) -> None:
        match command:
            case Pause() | Resume():
                kind: object = Pause
            case Set():
                kind = command.name
            case _:
                kind = type(command)
        self._commands.pop(kind, None)  # the order is that of the newest
        self._commands[kind] = command

    def take(self) -> list[Command]:
        taken, self._commands = list(self._commands.values()), {}
        return taken

    def __contains__(self, kind: type[Command]) -> bool:
        return kind in self._commands

    def __len__(self) -> int:
        return len(self._commands)


_THOUGHT_BYTES = 2**16
"""Capacity for an encoded thought: twice four 84x84 frames and a few hundred Q-values."""
_encode_thought = msgspec.msgpack.Encoder().encode
_decode_thought = bounded(msgspec.msgpack.Decoder(Thought).decode)


class FrameMailbox:
    """One frame, uint8 [240, 256, 3], the agent's decision in it, and a counter, in shared memory.

    The memory is multiprocessing's own arena: a file in /dev/shm (or the temporary folder, if that is too small) which
    is unlinked at once, so a killed run leaves nothing behind.
    """

    def __init__(self, context: BaseContext) -> None:
        self._memory: Any = context.RawArray(ctypes.c_uint8, 16 + int(np.prod(SCREEN_SHAPE)) + _THOUGHT_BYTES)

    def _views(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]:
        """Counter, length of the thought in bytes, frame, thought."""
        raw = np.frombuffer(self._memory, np.uint8)
        head, pixels, thought = np.split(raw, [16, raw.size - _THOUGHT_BYTES])
        counter, length = head.view(np.int64)[:, None]
        return counter, length, pixels.reshape(SCREEN_SHAPE), thought

    def write(self, picture: NDArray[np.uint8], thought: Thought | None = None) -> None:
        counter, length, pixels, room = self._views()
        encoded = b"" if thought is None else _encode_thought(thought)
        if len(encoded) > _THOUGHT_BYTES and thought is not None:  # a huge board: leave out what the agent saw
            encoded = _encode_thought(msgspec.structs.replace(thought, shape=(0, 0, 0, 0), seen=b""))
        counter += 1 + counter % 2  # odd, even if a previous writer was killed in the middle
        fence()
        pixels[:] = picture
        room[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        length[:] = len(encoded)
        fence()
        counter += 1

    def read(self, seen: int) -> tuple[int, bytes, Thought | None] | None:
        """Counter, frame and thought; None if the counter is still `seen` or a write is in progress."""
        counter, length, pixels, room = self._views()
        before = int(counter[0])
        if before == seen or before % 2:
            return None
        fence()
        data, encoded = pixels.tobytes(), room[: int(length[0])].tobytes()
        fence()
        if int(counter[0]) != before:
            return None
        return before, data, _thought(encoded)


def _thought(encoded: bytes) -> Thought | None:
    """The thought; None if there is none, or if it was torn because a member and its replacement wrote at once."""
    try:
        return _decode_thought(encoded) if encoded else None
    except ValueError:
        return None


def main(
    run: Path,
    config: RunConfig,
    commands: CommandQueue,
    reports: ReportQueue,
    mailbox: FrameMailbox,
    resume_from: Path | None,
) -> None:
    """Train; report a failure with its traceback. Exits silently if the host is gone."""

    def train(link: ParentLink) -> None:
        module = importlib.import_module(f"engine.runners.{config.runner}")
        folder = HeldFolder(run)
        runner = module.Runner(folder.way_in, config, link, mailbox, resume_from)
        try:
            runner.train()
        finally:
            runner.close()

    use_at_most(config.threads)  # members inherit it
    commands.only_read()
    _work(train, reports, commands)


def member_main(work: Callable[..., None], reports: ReportQueue, *arguments: Any) -> None:
    """Run a member: `work(link, *arguments)`."""
    _work(lambda link: work(link, *arguments), reports)


class _Forwarding(logging.Handler):
    """Sends what this process's modules log, such as the failure of an environment, to the run's log."""

    def __init__(self, link: ParentLink) -> None:
        super().__init__(logging.INFO)
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        self._link.log(record.getMessage(), "warning" if record.levelno >= logging.WARNING else "info")


def _work(work: Callable[[ParentLink], None], reports: ReportQueue, commands: CommandQueue | None = None) -> None:
    disregard(*ENDING)  # the host decides when to stop, and sends a command
    end_with_parent()
    os.setsid()  # what a user's code starts is in it, and a signal to all of its group does not reach the host
    take_children()
    faulthandler.enable(all_threads=False)  # run.log tells the line of Python if native code crashes
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)  # both go to run.log
    reports.only_write()
    link = ParentLink(reports, commands)
    user_calls.beat, user_calls.fail = link.beat, link.hangs
    logging.getLogger("engine").addHandler(_Forwarding(link))
    logging.getLogger("engine").setLevel(logging.INFO)
    try:
        work(link)
    except BaseException as error:
        link.fail(error)
