"""The client side of a run: start its host, connect, send commands, read events. Imports without torch."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from engine.config.run_config import RunConfig
from engine.errors import ScarceError, UserError
from engine.protocol.commands import Command, Stop
from engine.protocol.framing import CutOffError, decode_event, decode_greeting_head, pack, read_message
from engine.protocol.messages import PROTOCOL, Event, Hello, Log
from engine.runs.marks import check_databases, check_own
from engine.runs.registry import discard_run
from engine.runs.run import ACTIVE, CONFIG_FILE, NOT_BEGUN, SILENCE_S, Run
from engine.runtime.files import identity_of, is_same, open_regular, write_atomically
from engine.runtime.text import printable

START_TIMEOUT_S = 30.0
_STARTING_S = 10.0
_ANSWER_S = 10.0
"""Seconds within which a host must answer a connection. A suspended host accepts connections but never answers."""
_HAND_OVER_S = 1.0
"""Seconds that a client which closes waits for its host to read the last commands."""
_EVENTS_BYTES = 2**16
_QUOTED_BYTES = 2**12
"""At the end of a log, in which the reason of a crash is looked for."""
_ENDED = (OSError, EOFError, CutOffError)
"""Raised while reading an event if the connection has ended. Bytes that are not an event raise `ValueError`."""


class UnreachableError(UserError):
    """The run's host is alive but can't be reached: it is starting, exiting, moving to another socket, or has too
    many clients."""


def _decode_greeting(message: bytes) -> Event | int:
    """The first message of a host; of one with another version of the protocol, only that."""
    try:
        protocol = decode_greeting_head(message).protocol
    except msgspec.ValidationError:  # no greeting, but the reason for a refusal
        protocol = PROTOCOL
    return decode_event(message) if protocol == PROTOCOL else protocol


class HostGone(Exception):
    """The connection has ended: the host closed it or crashed."""


class InvalidMessage(HostGone):  # as its base
    """The connection was closed because the host has sent what is not a message. Its text is for the user."""


class HostClient:
    """One connection to a run's host.

    `receive` blocks and must be called from one thread; `send` never blocks and may be called from any. Raises
    `UserError` if the run has no host, or the host does not answer within `within_s` or ten seconds, or speaks another
    protocol version.
    """

    def __init__(self, run: Run, within_s: float = math.inf) -> None:
        record = run.record()
        self._run, self._folder = run, run.status()
        self._closed = self._has_sent = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        answer_s = min(within_s, _ANSWER_S)
        self._socket.settimeout(answer_s)
        try:
            self._socket.connect(record.socket)
        except OSError as error:
            self._socket.close()
            if record.elsewhere:
                raise UserError(f"{run.name}: is running on {record.elsewhere}; attach to it there") from None
            if run.is_alive():
                why = error.strerror or error
                raise UnreachableError(f"{run.name}: its host does not answer at {record.socket} ({why})") from None
            raise UserError(f"{run.name}: is not running (state: {run.record().told_state})") from None
        self._stream = self._socket.makefile("rb")
        try:
            hello = read_message(self._stream, _decode_greeting)
        except TimeoutError:
            self.close()
            raise UserError(f"{run.name}: its host did not answer within {answer_s:.1f} s") from None
        except _ENDED:
            self.close()
            raise UnreachableError(f"{run.name}: its host has just exited") from None
        except ValueError as error:
            self.close()
            raise UserError(_not_a_message(run.name, error)) from None
        self._socket.settimeout(None)
        if isinstance(hello, Log):  # the reason for a refusal
            self.close()
            raise UnreachableError(f"{run.name}: {hello.text}")
        if not isinstance(hello, Hello):
            self.close()
            spoken = f"speaks protocol version {hello}, not {PROTOCOL}" if isinstance(hello, int) else "does not greet"
            raise UserError(f"{run.name}: its host {spoken}; use the mario-tui that started it")
        if hello.folder is not None and self._folder is not None and hello.folder != identity_of(self._folder):
            self.close()
            named = f"{hello.run} at {hello.path}"
            raise UserError(f"{run.name}: its record names the host of another run, {named}; was the folder copied?")
        self.hello, self._heard_at = hello, time.monotonic()

    def receive(self, until: float = math.inf) -> Event:
        """The next event. Raises `HostGone` once the connection has ended, `InvalidMessage` if it is no event, and
        `TimeoutError` at that time of `time.monotonic`: then nothing more can be received."""
        try:
            if until < math.inf:
                self._socket.settimeout(max(1e-3, until - time.monotonic()))
            event = self._read()
        except TimeoutError:
            raise
        except _ENDED as error:
            raise HostGone(str(error)) from None
        except ValueError as error:
            if self._closed:
                raise HostGone(str(error)) from None
            self.close()
            raise InvalidMessage(_not_a_message(self.hello.run, error)) from None
        if time.monotonic() > until:
            raise TimeoutError
        return event

    def _read(self) -> Event:
        event = read_message(self._stream, decode_event)
        self._heard_at = time.monotonic()
        if isinstance(event, Hello) and self._folder is not None and is_same(Path(event.path), self._folder):
            self._run.path = Path(event.path)  # it was renamed
        return event

    def events(self) -> Iterator[Event]:
        """The greeting and all events, until the connection has ended. Raises `InvalidMessage` as `receive` does."""
        yield self.hello
        try:
            while True:
                yield self.receive()
        except InvalidMessage:
            raise
        except HostGone:
            return

    @property
    def silent_s(self) -> int:
        """Seconds since the host was heard from; 0 if they are less than `SILENCE_S`, or if something waits to be read:
        then this process is slow."""
        silent_s = time.monotonic() - self._heard_at
        if silent_s >= SILENCE_S:
            with contextlib.suppress(OSError, ValueError):  # closed
                waiting = select.poll()
                waiting.register(self._socket, select.POLLIN)
                return 0 if waiting.poll(0) else int(silent_s)
        return 0

    def send(self, command: Command) -> None:
        """Send a command. Raises `HostGone` if the host is gone, or the socket is full because it does not read."""
        message = pack(command)
        try:
            sent = self._socket.send(message, socket.MSG_DONTWAIT)
        except OSError as error:
            raise HostGone(str(error)) from None
        self._has_sent = sent == len(message)
        if not self._has_sent:  # the host could not parse anything after half a message
            self.close()
            raise HostGone("the host does not read")

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Close the connection, once the host has read what was sent. A thread blocked in `receive` gets `HostGone`."""
        self._closed = True
        with contextlib.suppress(OSError):  # the host has closed it already
            if self._has_sent:
                self.hand_over(_HAND_OVER_S)
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def hand_over(self, timeout_s: float) -> bool:
        """Send no more, and wait until the host has read all commands: then it closes the connection, too. If its next
        event found the connection closed, asyncio would drop commands that it has not read yet.

        Returns whether it has read them within that time. Raises `OSError` if the connection has failed.
        """
        self._socket.shutdown(socket.SHUT_WR)
        until = time.monotonic() + timeout_s
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        while (left_s := until - time.monotonic()) > 0:
            with contextlib.suppress(BlockingIOError):  # a thread in `receive` was faster
                # Not longer at once: the number of milliseconds is bounded.
                ready = waiting.poll(1000 * min(left_s, 60.0))
                if ready and not self._socket.recv(_EVENTS_BYTES, socket.MSG_DONTWAIT):
                    return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _not_a_message(run: str, error: Exception) -> str:
    return f"{run}: its host sent what is no message of mario-tui ({error})"


def attach(run: Run, within_s: float = math.inf) -> HostClient | None:
    """Connect to a run's host; None if it has none. Waits for a host that is starting or replacing a lost socket.

    Raises `UserError` as `HostClient` does.
    """
    deadline = time.monotonic() + min(within_s, _STARTING_S)  # independent of changes of the system clock
    while True:
        try:
            if run.is_alive():
                return HostClient(run, within_s)
            if not _is_starting(run) or time.monotonic() > deadline:
                return None
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def ask_to_stop(run: Run, reason: str) -> None:
    """Let a run write its last checkpoint and end, if its host can be reached."""
    with contextlib.suppress(UserError, HostGone):
        client = attach(run)
        if client is not None:
            with client:
                client.send(Stop(reason=reason))


def _is_starting(run: Run) -> bool:
    """Return whether its host was just started and has no lock or no socket yet."""
    record = run.record()
    fresh = record.state == "starting" or (record.state == "lost" and not run.history_path.exists())
    return fresh and abs(time.time() - record.updated_at) < _STARTING_S


def _take_over(run: Run) -> None:
    """Mark a run as starting if its last host was killed while it was active, so that nobody reads `paused` before the
    new host's first record. The run must be locked."""
    record = run.record()
    if record.state in ACTIVE and record.state != "starting":
        record.state, record.reason = "starting", ""
        run.write_record(record)


class HostProcess:
    """A host started by this process, in its own session, so that it outlives the terminal.

    With `foreground=True` the host stops the run in order once this process exits.
    """

    def __init__(
        self,
        run: Run,
        checkpoint: Path | None = None,
        *,
        config: RunConfig | None = None,
        foreground: bool = False,
        keep_refused: bool = False,
        notes: Iterable[tuple[str, str]] = (),
        loop: Sequence[int] = (),
    ) -> None:
        """`config`: new options for a resumed run. `keep_refused`: keep the folder of a new run whose options turn out
        not to work, because nobody waits to hear why. `notes`: lines (level, text) for the run's log. `loop`: this
        process trains; file descriptors from which the host reads its reports, and to which it writes its commands.

        Raises `UserError` if the run has a host already, its folder holds foreign files, or no process can be started;
        `OSError` if the folder can't be written.
        """
        command = [sys.executable, "-P", "-m", "engine.host", str(run.path)]
        if checkpoint is not None:
            command += ["--resume", str(checkpoint)]
        if foreground:
            command += ["--foreground"]
        if keep_refused:
            command += ["--keep-refused"]
        for level, text in notes:
            command += ["--note", level, text]
        if loop:
            command += ["--loop", *map(str, loop)]
        self.run = run
        self._is_new = checkpoint is None and config is None and not run.history_path.exists()
        check_own(run.path)
        if not self._is_new:
            check_databases(run.path, (config or run.description()).sinks)
        # The host inherits the lock, so if several processes resume at once, only one writes its options and starts.
        with run.lock() as lock, open_regular(run.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
            if config is not None:
                write_atomically(run.path / CONFIG_FILE, config.to_toml().encode())
            _take_over(run)
            command += ["--lock", str(lock.fileno())]
            # Working directory: the run's folder, so that a folder named `engine` in the user's can't shadow ours.
            try:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if foreground else subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=run.path,
                    pass_fds=[lock.fileno(), *loop],
                    # On Apple's GPUs, PyTorch then computes what it lacks there on the CPU, and warns once.
                    env={"PYTORCH_ENABLE_MPS_FALLBACK": "1", **os.environ, "PYTHONUNBUFFERED": "1"},
                )
            except OSError as error:
                kind = ScarceError if error.errno in (errno.EAGAIN, errno.ENOMEM) else UserError
                raise kind(f"{run.name}: no process can be started ({error.strerror or error})") from None

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def connect(self, timeout_s: float = START_TIMEOUT_S) -> HostClient:
        """A client, as soon as the host accepts connections. Raises `UserError` if it never does, with the reason or
        the log; nothing is left of a new run whose host has exited before it listened."""
        deadline = time.monotonic() + timeout_s
        problem = f"{self.run.name}: its host did not answer in {timeout_s:.0f} s; see {self.run.log_path}"
        while time.monotonic() < deadline:
            if self.ended:
                raise UserError(self._exited_at_once())
            record = self.run.record()
            if record.pid == self.process.pid and record.socket:
                try:
                    return HostClient(self.run)
                except UserError as error:  # it may be exiting, which takes long on a busy machine
                    problem = str(error)
            time.sleep(0.02)
        raise UserError(problem)

    def _exited_at_once(self) -> str:
        """Why, if that is known. A new run that has never had a socket has never begun, and is removed."""
        said, never_began = "", False
        with contextlib.suppress(UserError):
            record = self.run.record()
            if record.pid == self.process.pid:
                if record.state == "failed":
                    return f"{self.run.name} failed: {record.reason}; log: {self.run.log_path}"
                if record.reason == NOT_BEGUN:
                    return f"{self.run.name}: {NOT_BEGUN}"
            never_began = self._is_new and record.state == "lost" and not record.socket
        with contextlib.suppress(OSError), open_regular(self.run.log_path, os.O_RDONLY) as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _QUOTED_BYTES))
            said = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        if never_began:
            with contextlib.suppress(UserError):
                discard_run(self.run)
        where = f"; see {self.run.log_path}" if self.run.log_path.exists() else ""
        return printable(f"{self.run.name}: its host exited at once{': ' * bool(said)}{said}{where}")
