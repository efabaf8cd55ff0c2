"""Drives the real program: as a headless process, in a pseudo-terminal, and through its socket."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import multiprocessing
import os
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psutil
import pyte
import pytest

from engine.host.client import HostClient, HostGone
from engine.protocol.messages import Event
from engine.runs.run import Run
from mario_tui import cli
from tests.support import warm_start
from tests.support.warm_start import start_in_terminal

PROGRAM = [str(Path(sys.executable).with_name("mario-tui"))]
_ATTRIBUTES = re.compile(rb"\x1b\[>?c")
"""The question for the terminal's attributes; tmux asks with a `>`."""
_CONTROL_STRING = re.compile(rb"\x1b[P_](?:[^\x1b]|\x1b[^\\])*\x1b\\")
_CUT_STRING = re.compile(rb"\x1b[P_](?:[^\x1b]|\x1b[^\\])*\x1b?$")
PATIENCE_S = 240.0
"""Time after which something must have hung, even on the slowest machine."""


LOOK_S = 20.0
"""Time between two looks at whether a wait can still succeed."""


class Hope:
    """Ends a wait once two looks, one after the other, find that nothing is left that could bring about `what`."""

    def __init__(self, what: str) -> None:
        self._what, self._next, self._before = what, time.monotonic() + LOOK_S, False

    def check(self, can_come: Callable[[], bool]) -> None:
        if time.monotonic() < self._next:
            return
        is_vain = not can_come()
        assert not (self._before and is_vain), f"nothing is left that could bring about: {self._what}"
        self._next, self._before = time.monotonic() + LOOK_S, is_vain


def somebody_works() -> bool:
    """Whether a process is left that a test of this session has started, or no test has started any."""
    if not warm_start.has_started:
        return True
    begun = psutil.Process().children() + processes_of(Path(os.environ["XDG_STATE_HOME"]).parents[1])
    for process in begun:
        with contextlib.suppress(psutil.Error):  # it has ended
            command = process.cmdline()
            waits = warm_start.__file__ in command or "resource_tracker" in " ".join(command)  # as long as this process
            if process.status() != psutil.STATUS_ZOMBIE and not waits:
                return True
    return False


def wait_until(
    condition: Callable[[], Any],
    what: str,
    patience_s: float = PATIENCE_S,
    by: subprocess.Popen[Any] | threading.Thread | None = None,
) -> Any:
    """Wait for a condition and return its first true value. Fails with `what` if there is none in time, soon after all
    processes of the test have ended without it, or as soon as the process or thread `by`, which is to bring it about,
    has."""
    deadline, hope = time.monotonic() + patience_s, Hope(what)
    while True:
        is_over = not by.is_alive() if isinstance(by, threading.Thread) else by is not None and by.poll() is not None
        if value := condition():
            return value
        assert not is_over, f"{by} has ended without: {what}"
        assert time.monotonic() < deadline, f"waited {patience_s:.0f} s for: {what}"
        hope.check(somebody_works)
        select.select([], [], [], 0.02)


def run_program(
    *arguments: str, cwd: Path, check: int | None = 0, timeout_s: float = 400
) -> subprocess.CompletedProcess[str]:
    """Run `mario-tui` to its end and check its exit status."""
    done = subprocess.run([*PROGRAM, *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    if check is not None:
        assert done.returncode == check, done.stdout[-2000:] + done.stderr[-2000:]
    return done


def refusal(*arguments: str, cwd: Path) -> str:
    """The line with which `mario-tui` refuses these arguments, with status 2, before it starts anything: so it runs in
    this process."""
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mario-tui", *arguments])
        patch.setenv("PYTHON_COLORS", "0")  # the program sets it; here that ends with this block
        patch.chdir(cwd)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), pytest.raises(SystemExit) as end:
            cli.main()
    assert (end.value.code, output.getvalue()) == (2, ""), errors.getvalue()
    (line,) = errors.getvalue().splitlines()
    return line


def private_disk(folder: Path, size: str) -> list[str]:
    """The beginning of a command that then works with a disk of that size (such as 1m) mounted at a folder, and in it.
    Skips the test where nobody may mount one."""
    if sys.platform != "linux" or not shutil.which("unshare"):
        pytest.skip("needs Linux's unshare")
    mount = f'mount -t tmpfs -o size={size} none "$0" && cd "$0" && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(folder)]
    if subprocess.run([*command, "true"]).returncode:
        pytest.skip("this system lets nobody mount a disk")
    return command


@contextlib.contextmanager
def no_more_processes(pid: int) -> Iterator[None]:
    """In the block, a process can start no process and no thread. Skips the test where that can't be done."""
    if os.getuid():
        process, unlimited = psutil.Process(pid), resource.getrlimit(resource.RLIMIT_NPROC)
        process.rlimit(psutil.RLIMIT_NPROC, (1, unlimited[1]))
        yield
        process.rlimit(psutil.RLIMIT_NPROC, unlimited)
        return
    group = Path(f"/sys/fs/cgroup/pids/mario-tui-{pid}")  # the limit above does not bind root
    try:
        group.mkdir()
    except OSError:
        pytest.skip("root can't limit processes here")
    try:
        (group / "pids.max").write_text("1")
        (group / "cgroup.procs").write_text(f"{pid}")
        yield
    finally:
        for each in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(each)
        group.rmdir()


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def headless(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A headless run that prints JSON lines, with two lanes for a fast start; killed if it outlives the block."""
    command = [*PROGRAM, "--no-ui", "--log-format", "json", "--parallel-envs", "2", *arguments]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        kill_hosts(cwd)


def read_event(process: subprocess.Popen[str], kind: str, **wanted: Any) -> dict[str, Any]:
    """The next JSON line of a kind with the wanted values."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == kind and all(event[key] == value for key, value in wanted.items()):
            return dict(event)
    raise AssertionError(f"the program ended before: {kind} {wanted}")


def the_run(folder: Path) -> Run:
    """The only run under a working directory."""
    (path,) = (folder / "checkpoints").glob("*/run.json")
    return Run(path.parent)


def next_event(client: HostClient, kind: type[Event] | Any, where: Callable[[Any], bool] = lambda event: True) -> Any:
    """Receive the next event of a kind that fulfils a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            event = client.receive()
        except HostGone:
            break
        if isinstance(event, kind) and where(event):
            return event
    raise AssertionError(f"no such event came: {kind}")


@contextlib.contextmanager
def child(work: Callable[..., None], *arguments: Any) -> Iterator[SpawnProcess]:
    """A process that does `work`; killed if it outlives the block."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def children_of(process: psutil.Process, recursive: bool = False) -> list[psutil.Process]:
    """The processes that a process has started, without stems (`warm_start`)."""
    found = []
    for child in process.children(recursive=recursive):
        with contextlib.suppress(psutil.Error):  # it has ended
            if warm_start.__file__ not in child.cmdline():
                found.append(child)
    return found


def spawned_by(process: psutil.Process) -> list[psutil.Process]:
    """The children that multiprocessing has started, without its helpers."""
    return [child for child in children_of(process) if "spawn_main" in " ".join(child.cmdline())]


def runner_of(run: Run) -> psutil.Process:
    """The process that a run's host has started: it learns, or coordinates those that do."""
    (runner,) = spawned_by(psutil.Process(run.record().pid))
    return runner


def members_of(run: Run) -> list[psutil.Process]:
    """The processes that the runner has started: actors, workers or ranks."""
    return spawned_by(runner_of(run))


def processes_of(folder: Path) -> list[psutil.Process]:
    """All our processes that work in a folder: hosts, runners, evaluations."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # older psutil lets the latter through
            if process.pid != os.getpid() and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
    return found


def nobody_is_left(folder: Path) -> None:
    """Wait until no process is left in a folder; helpers of multiprocessing end a moment after their parents."""
    wait_until(lambda: not processes_of(folder), f"everybody's end in {folder}")


def rest_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The JSON lines that a program has yet to print, up to its end."""
    assert process.stdout is not None
    events = json_lines(process.stdout.read())  # communicate() would skip what `read_event` has buffered
    process.wait(PATIENCE_S)
    return events


def kill_hosts(folder: Path) -> None:
    """Kill all hosts in a folder, so that a failed test leaves nothing running."""
    for _ in range(2):  # the queue of a sweep may have started one while the others were killed
        for process in processes_of(folder):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)


class Terminal:
    """The program in a pseudo-terminal, and its screen."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        columns: int = 80,
        rows: int = 24,
        term: str = "xterm-256color",
        under: tuple[str, ...] = (),
        program: Sequence[str] = PROGRAM,
        replies: bytes = b"",
        cell: tuple[int, int] = (0, 0),
    ) -> None:
        """`under`: a command that starts the program, prefixed to its command line. `replies`: what the terminal sends
        when it is asked for its attributes. `cell`: width and height of a cell in pixels, if the terminal tells it."""
        self._replies = replies
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self._held = b""
        self._answered = 0  # questions in `raw` up to here
        self._is_left = False  # by all that could change the screen
        self._cell = cell
        self._master, slave = os.openpty()
        self.resize(columns, rows)
        command = [*under, *program, *arguments]
        environment = {**os.environ, "TERM": term}
        for name in ("COLUMNS", "LINES"):  # `import readline` sets them to 80x24, unseen by os.environ
            environment.pop(name, None)
        self.pid = start_in_terminal(command, cwd, environment, slave) or os.fork()
        if self.pid == 0:
            os.login_tty(slave)
            os.chdir(cwd)
            os.execvpe(command[0], command, environment)
        os.close(slave)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, as a person who drags the window does."""
        pixels = columns * self._cell[0], rows * self._cell[1]
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, *pixels))
        self.screen.resize(rows, columns)

    def text(self) -> str:
        """The screen as it is now."""
        while select.select([self._master], [], [], 0)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                data = b""
            if not data:
                self._is_left = True
                break
            self.take(data)
        return "\n".join(self.screen.display)

    def keep(self, data: bytes) -> None:
        """Keep what the program wrote, and reply if it asked."""
        self.raw += data
        new = max(self._answered, len(self.raw) - len(data) - 3)
        if self._replies and (question := _ATTRIBUTES.search(self.raw, new)):
            self._answered = question.end()
            os.write(self._master, self._replies)

    def take(self, data: bytes) -> None:
        """Show what the program wrote."""
        self.keep(data)
        # pyte shows the control strings of images, which it doesn't know; one may be cut anywhere.
        shown = _CONTROL_STRING.sub(b"", self._held + data)
        self._held = cut[0] if (cut := _CUT_STRING.search(shown)) else b""
        self._stream.feed(shown[: len(shown) - len(self._held)])

    def wait_for(self, *wanted: str) -> str:
        """Wait until the screen shows all `wanted` texts, and return it."""
        what = f"{wanted} on the screen"

        def shown() -> bool:
            is_shown = all(part in self.text() for part in wanted)
            assert is_shown or not self._is_left, f"the program has ended without {what}"
            return is_shown

        self._wait_until(shown, what)
        return self.text()

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """Close the terminal, as a dropped connection does."""
        os.close(self._master)

    def wait(self) -> int:
        """The exit status of the program; a signal counts as negative."""
        ended: list[int] = []

        def reap() -> bool:
            with contextlib.suppress(OSError, ValueError):
                self.text()  # a program that can't write can't end
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                with contextlib.suppress(OSError, ValueError):
                    self.text()  # what it wrote last
                ended.append(os.waitstatus_to_exitcode(status))
            return bool(ended)

        self._wait_until(reap, "the program's end")
        return ended[0]

    def _wait_until(self, condition: Callable[[], Any], what: str) -> None:
        """As `wait_until`; a failure shows the screen as it was seen last, also of a terminal that hung up."""
        try:
            wait_until(condition, what)
        except AssertionError as error:
            screen = "\n".join(self.screen.display)
            raise AssertionError(f"{error}\n{screen}") from None


@dataclass(frozen=True)
class FinishedRun:
    folder: Path  # working directory
    run: Run
    events: list[dict[str, Any]]  # its JSON lines
    checkpoint: Path
