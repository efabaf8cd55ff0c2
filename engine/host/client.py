"""The client side of a run: start its host, connect, send commands, read events. Imports without torch."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.protocol.framing import HEADER_BYTES, body_length, decode_event, pack
from engine.protocol.messages import PROTOCOL, Command, Event, Hello, Log
from engine.runs.ownership import check_own
from engine.runs.run import CONFIG_FILE, Run
from engine.runtime.files import open_regular, write_atomically

START_TIMEOUT_S = 30.0
_STARTING_S = 10.0
_ANSWER_S = 10.0
"""Seconds in which a host has to greet who connects: one that was suspended accepts connections and says nothing."""


_NO_EVENT = (OSError, ValueError, msgspec.DecodeError)
"""What reading an event may raise: the connection ended, or what came is no event."""


class UnreachableError(UserError):
    """A run that is alive can't be connected to: its host starts, ends, or moves to another socket just now."""


class HostGone(Exception):
    """The connection ended: the host closed it, or died."""


class HostClient:
    """One connection to a run's host. `receive` blocks; one thread reads, any may send, which never blocks.

    Raises `UserError` if the run has no host to connect to, or it does not answer or speaks another protocol.
    """

    def __init__(self, run: Run) -> None:
        record = run.record()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_S)
        try:
            self._socket.connect(record.socket)
        except OSError as error:
            self._socket.close()
            if run.is_alive():
                why = error.strerror or error
                raise UnreachableError(f"{run.name}: its host does not answer at {record.socket} ({why})") from None
            raise UserError(f"{run.name}: is not running (state: {record.state})") from None
        self._stream = self._socket.makefile("rb")
        try:
            hello = self._read()
        except TimeoutError:
            self.close()
            raise UserError(f"{run.name}: its host did not answer within {_ANSWER_S:.0f} s") from None
        except _NO_EVENT:
            self.close()
            raise UnreachableError(f"{run.name}: its host ended just now") from None
        self._socket.settimeout(None)
        if isinstance(hello, Log):  # why it refuses
            self.close()
            raise UserError(f"{run.name}: {hello.text}")
        if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
            self.close()
            raise UserError(f"{run.name}: its host speaks another protocol; use the mario-tui that started it")
        self.hello = hello

    def receive(self) -> Event:
        """The next event. Raises `HostGone` when there will be none."""
        try:
            return self._read()
        except _NO_EVENT as error:
            raise HostGone(str(error)) from None

    def _read(self) -> Event:
        header = self._stream.read(HEADER_BYTES)
        body = self._stream.read(body_length(header)) if len(header) == HEADER_BYTES else b""
        return decode_event(body)

    def send(self, command: Command) -> None:
        """Send a command. Raises `HostGone` if the host is gone, or has not read for so long that there is no room."""
        message = pack(command)
        try:
            sent = self._socket.send(message, socket.MSG_DONTWAIT)
        except OSError as error:
            raise HostGone(str(error)) from None
        if sent < len(message):  # what follows half a message would not be understood
            self.close()
            raise HostGone("the host does not read")

    def close(self) -> None:
        """End the connection; a thread blocked in `receive` gets `HostGone`."""
        with contextlib.suppress(OSError):  # the host was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def attach(run: Run) -> HostClient | None:
    """A client of a run that has a host, else None. A host that is just starting, or whose socket went and will be
    another in a moment, is waited for.

    Raises `UserError` as `HostClient` does.
    """
    deadline = time.monotonic() + _STARTING_S  # however the clock of the record is set meanwhile
    while True:
        try:
            if run.is_alive():
                return HostClient(run)
            if not _is_starting(run) or time.monotonic() > deadline:
                return None
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _is_starting(run: Run) -> bool:
    """Whether its host was started a moment ago and has no lock or no socket yet."""
    record = run.record()
    fresh = record.state == "starting" or (record.state == "lost" and not run.history_path.exists())
    return fresh and abs(time.time() - record.updated_at) < _STARTING_S


class HostProcess:
    """A host started by this process, in its own session: it outlives the terminal.

    With `foreground=True` the host watches a pipe from this process and stops the run in order when it dies.
    """

    def __init__(
        self, run: Run, checkpoint: Path | None = None, *, config: RunConfig | None = None, foreground: bool = False
    ) -> None:
        """`config`: options that the run goes on with. Raises `UserError` if the run has a host, or its folder holds
        what is not this user's; `OSError` if it can't be written."""
        command = [sys.executable, "-P", "-m", "engine.host", str(run.path)]
        if checkpoint is not None:
            command += ["--resume", str(checkpoint)]
        if foreground:
            command += ["--foreground"]
        self.run = run
        check_own(run.path)
        # The host inherits the lock: of several that resume at once, one writes its options and starts.
        with run.lock() as lock, open_regular(run.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
            if config is not None:
                write_atomically(run.path / CONFIG_FILE, config.to_toml().encode())
            command += ["--lock", str(lock.fileno())]
            # The run folder as working directory: a folder named `engine` where the user stands can't shadow ours.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if foreground else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=run.path,
                pass_fds=[lock.fileno()],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def connect(self, timeout_s: float = START_TIMEOUT_S) -> HostClient:
        """A client as soon as the host serves. Raises `UserError` naming the log if it never does."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.ended:
                raise UserError(f"{self.run.name}: its host ended at once; see {self.run.log_path}")
            record = self.run.record()
            if record.pid == self.process.pid and record.socket:
                return HostClient(self.run)
            time.sleep(0.02)
        raise UserError(f"{self.run.name}: its host did not answer in {timeout_s:.0f} s; see {self.run.log_path}")
