"""A command of the engine in a process of its own, such as the one behind `eval`: it is started, read and ended."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from engine.errors import UserError
from engine.protocol.framing import decode_answer, read_message
from engine.protocol.messages import Failed
from engine.protocol.results import Answer
from engine.runtime.processes import fresh_mark, how_it_ended
from engine.runtime.text import printable

R = TypeVar("R")
_MAX_QUOTED = 64 * 1024
"""Bytes of standard error that are looked at for the reason of a crash."""


class EngineCommand:
    """`python -m MODULE ARGUMENT ...`, which writes messages to its standard output.

    It exits when its standard input closes, so it never outlives this process. Its standard error is kept for the
    reason of a crash.

    Args:
        name: of a module in `engine.commands`, or a dotted name.
        leave_s: seconds that it has to exit at `close`; then it is killed.
        partial: a file that it leaves if it is killed or the disk is full; `close` removes it.
    """

    def __init__(self, name: str, *arguments: str, leave_s: float = 0.0, partial: Path | None = None) -> None:
        module = name if "." in name else f"engine.commands.{name}"
        self._name, self._leave_s, self._partial = module.rpartition(".")[2], leave_s, partial
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with this object
        # Ctrl-C is for this process. The other one inherits the mask, so that it does not die of it while it starts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, **fresh_mark()},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def messages(self) -> Iterator[Answer]:
        """Its messages, until it exits; one that it was killed in the middle of is left out."""
        assert self._process.stdout is not None
        with contextlib.suppress(EOFError, ValueError):
            while True:
                yield read_message(self._process.stdout, decode_answer)

    def result(self, kind: type[R], on_other: Callable[[Any], object] = lambda message: None) -> R | Failed:
        """Its result, a message of this kind, or why there is none. `on_other` is called with the messages before."""
        for message in self.messages():
            if isinstance(message, kind | Failed):
                return message
            on_other(message)
        return Failed(reason=self.crash_reason())

    def send(self, data: bytes) -> None:
        """Write to its standard input at once. Raises `OSError` if it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def crash_reason(self) -> str:
        """Why it exited without a result, in one line: how, and the last line of its standard error."""
        how = how_it_ended(self._process.wait())
        self._errors.seek(0, 2)
        self._errors.seek(max(0, self._errors.tell() - _MAX_QUOTED))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        reason = f": {printable(lines[-1])}" if lines else ""
        return f"the process of {self._name} crashed ({how}){reason}"

    def end(self) -> None:
        """Close its standard input, so that it ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """Close its standard input, wait for its exit for `leave_s` seconds, then kill it."""
        self.end()
        try:
            self._process.wait(self._leave_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._partial is not None:
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def failure_text(failure: Failed) -> str:
    """The reason, and the traceback unless the failure is `final`, whose reason is written for people."""
    return failure.reason if failure.final else f"{failure.reason}\n{failure.traceback}".rstrip()


def failed(what: str, failure: Failed) -> int:
    """Print that `what` failed, and why. Returns the exit status. Raises `UserError` for what the user asked for."""
    if failure.usage:
        raise UserError(failure.reason)
    print(f"mario-tui: {what} failed: {failure_text(failure)}", file=sys.stderr)
    return 1


NAME = "mario-tui"


def program() -> str:
    """Return what a shell calls this program: `mario-tui`, or its path if that name stands for nothing or for another
    one, as after `make train`."""
    started = Path(sys.argv[0])
    if started.name != NAME or not started.is_file():  # `python -m mario_tui`
        return NAME if shutil.which(NAME) else f"{shlex.quote(sys.executable)} -m mario_tui"
    found = shutil.which(NAME)
    if found is not None and Path(found).samefile(started):
        return NAME
    inside = started.absolute().is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(started) if inside else str(started.absolute()))
