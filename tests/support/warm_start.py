"""Starts processes of this program from one that has imported PyTorch, which else takes each of them 1.5 s of a core.

A process that starts others has a stem: a child that has imported the packages, has one thread, and waits. To start a
process, the stem forks twice and its child ends, so that the new process is a child of the one that asked (a
`subreaper` for that moment). It gets the arguments, files, folder, environment, session and signals that it would have
got, makes a stem of its own, and then runs what Python would run: the same modules, imported anew, in a real process.

Imported packages are hidden until something imports them, so whether a process imports PyTorch is visible as usual.
Whatever begins in another way (other programs, other options of Python, other limits) is executed, and so is everything
where this system can't do that, and in tests with the fixture `executed`.
"""

from __future__ import annotations

import _posixsubprocess
import atexit
import builtins
import contextlib
import ctypes
import dataclasses
import fcntl
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PYTHON = sys.executable
PROGRAM = str(Path(PYTHON).with_name("mario-tui"))
IMPORTED = ("engine.runners.single", "engine.host.supervisor", "mario_tui.commands.train", "mario_tui.app")
"""Modules that come with all that most processes need."""
_IMPORTED_ANEW = "code_cache"
"""A module of this name sets a variable of the environment when it is imported."""
_OURS = ("engine", "mario_tui")
_READ_AT_START = (
    "PYTHON", "LANG", "LC_", "LD_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "TORCH_", "CUDA_", "MALLOC_",
    "MARIO_TUI_CHECKED", "TEXTUAL",
)  # fmt: skip
"""Beginnings of variables that Python and libraries read when they are loaded."""
_READ_LATER = ("PYTHON_COLORS", "PYTHONUNBUFFERED", "PYTHONPATH")  # the latter two here
_SIZE = 2**20
_LONGEST_COMMAND, _LARGEST_ENVIRONMENT = 2**14, 2**16
_ROOM = "ROOM_OF_A_STEM"
"""A variable that makes room for the environment of another process."""
_PR_SET_MM, _PR_SET_MM_ARG_END, _PR_SET_MM_ENV_END, _PR_SET_CHILD_SUBREAPER = 35, 9, 11, 36  # of Linux's prctl.h
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
_LIMITS = (
    resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC,
    resource.RLIMIT_CORE, resource.RLIMIT_STACK,
)  # fmt: skip
_fork_exec = _posixsubprocess.fork_exec
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class _Job:
    """A process to be started; its files come with it."""

    command: list[str]
    runs: Sequence[str]
    """What Python runs, "module", "code" or "script", and its name or text."""
    arguments: list[str]
    is_safe: bool
    """Whether Python's option -P was given."""
    folder: str
    environment: dict[str, str]
    files: list[int]
    """Numbers that its files have in the new process."""
    new_session: bool
    group: int
    mask: list[int]
    ignored: list[int]
    in_terminal: bool = False
    """Whether standard input becomes the terminal of its session."""


@dataclass(frozen=True)
class _Surroundings:
    """What a process inherits from its parent's present state, and a stem has as it was."""

    limits: tuple[tuple[int, int], ...]
    priority: int
    cores: set[int]
    session: int

    @classmethod
    def now(cls) -> _Surroundings:
        limits = tuple(map(resource.getrlimit, _LIMITS))
        return cls(limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.getsid(0))


class _Stem:
    """The stem of this process, as it sees it; `channel` is None until it is started."""

    def __init__(self, channel: socket.socket | None) -> None:
        self.channel, self.surroundings, self.lock = channel, _Surroundings.now(), threading.Lock()
        self.environment = dict(os.environ)

    def begin(self) -> None:
        self.channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [PYTHON, "-P", __file__, str(its.fileno()), "." * _LONGEST_COMMAND]
            subprocess.Popen(
                command,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                cwd="/",
                env={**self.environment, _ROOM: "." * _LARGEST_ENVIRONMENT},
            )

    def check(self, job: _Job) -> None:
        """Raise `_NotOurs` if the process would differ from one that is executed now."""
        folders, known = (
            set(each.get("PYTHONPATH", "").split(os.pathsep)) for each in (job.environment, self.environment)
        )
        if (
            _Surroundings.now() != self.surroundings
            or _read_at_start(job.environment) != _read_at_start(self.environment)
            or any(map(_changes_imports, folders - known))
        ):
            raise _NotOurs

    def start(self, job: _Job, files: Sequence[int]) -> int:
        """Start a process, a child of this one. Returns its ID."""
        with self.lock:
            if self.channel is None:
                self.begin()
            assert self.channel is not None
            known = _children()
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self.channel, [json.dumps(vars(job)).encode()], files)
                pid = int(self.channel.recv(64))
                self.channel.recv(64)  # it is our child now
            finally:
                _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)
            for other in _children() - known - {pid}:  # somebody's parent has ended just now
                threading.Thread(target=_reap, args=(other,), daemon=True).start()
        return pid


_stem: _Stem | None = None
_strangers: set[int] = set()
is_executed = False
"""Whether everything is executed now."""


has_started = False
"""Whether this process has started others since somebody has set this."""


def install() -> None:
    """From now on, let this process start others from a stem, where the system can."""
    global _stem
    if sys.platform == "linux" and Path("/proc/self/stat").exists():
        _stem = _Stem(None)
    _posixsubprocess.fork_exec = subprocess._fork_exec = _start  # type: ignore[attr-defined]
    os.register_at_fork(after_in_parent=_note_start)


def _note_start() -> None:
    global has_started
    has_started = True


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    """The variables that would be read before our code runs."""
    return {
        key: value for key, value in environment.items() if key.startswith(_READ_AT_START) and key not in _READ_LATER
    }


def _start(*given: Any) -> int:
    """`_posixsubprocess.fork_exec`, from the stem if the process is one of ours."""
    _note_start()
    try:
        return _start_warm(*_job(*given))
    except _NotOurs:
        return int(_fork_exec(*given))


def start_in_terminal(command: Sequence[str], folder: Path, environment: dict[str, str], terminal: int) -> int | None:
    """Start the program in a session of its own, with this end of a terminal. Returns its process ID; None if it has to
    be executed."""
    ends = (terminal, -1, -1, terminal, -1, terminal)
    _note_start()
    variables = [os.fsencode(f"{key}={value}") for key, value in environment.items()]
    with contextlib.suppress(_NotOurs):
        job, files = _job(
            command, (), True, (), folder, variables, *ends, -1, -1, True, True, -1, *[None] * 3, -1, None
        )
        return _start_warm(dataclasses.replace(job, in_terminal=True), files)
    return None


def _start_warm(job: _Job, files: Sequence[int]) -> int:
    if _stem is None:
        raise _NotOurs
    _stem.check(job)
    return _stem.start(job, files)


class _NotOurs(Exception):
    """A process that is executed as usual."""


def _job(
    args: Sequence[Any], executables: Sequence[bytes], close_fds: bool, pass_fds: Sequence[int], cwd: Any,
    env: Sequence[bytes] | None, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int,
    errpipe_read: int, errpipe_write: int, restore_signals: bool, new_session: bool, group: int, *others: Any,
) -> tuple[_Job, list[int]]:  # fmt: skip
    """The process to be started, and its files here. Raises `_NotOurs` if it can't come from a stem."""
    gid, groups, uid, umask, preexec, *_ = others
    if is_executed or not close_fds or (gid, groups, uid, umask, preexec) != (None, None, None, -1, None):
        raise _NotOurs
    command = [os.fsdecode(each) for each in args]
    is_safe, runs, arguments = _what_runs(command)
    if group > 0 or len(_block(command)) > _LONGEST_COMMAND:
        raise _NotOurs
    folder = Path("/proc/self/cwd").readlink() / os.fsdecode(cwd or b"")
    if not os.access(folder, os.X_OK):  # or it is gone
        raise _NotOurs
    if env is None:
        environment = dict(os.environ)
    else:
        pairs = (os.fsdecode(each).partition("=") for each in env)
        environment = {key: value for key, _, value in pairs}
    if len(_block(_pairs(environment))) > _LARGEST_ENVIRONMENT:
        raise _NotOurs
    files = {number: own if own >= 0 else number for number, own in enumerate((p2cread, c2pwrite, errwrite))}
    files |= {number: number for number in pass_fds if number != errpipe_write}
    try:
        for own in files.values():
            os.fstat(own)
    except OSError:  # it is closed
        raise _NotOurs from None
    ignored = [each for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN]
    job = _Job(
        command, runs, arguments, is_safe, str(folder), environment, list(files), bool(new_session),
        0 if group == 0 else os.getpgrp(), list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        [each for each in ignored if each not in (signal.SIGPIPE, signal.SIGXFSZ)],
    )  # fmt: skip
    return job, list(files.values())


def _what_runs(command: list[str]) -> tuple[bool, tuple[str, str], list[str]]:
    """Whether a command has -P, what it runs, and the arguments of that. Raises `_NotOurs`."""
    if command[0] == PROGRAM:
        return False, ("script", PROGRAM), command[1:]
    options = [each for each in command[1:3] if each in ("-B", "-P")]
    is_safe = "-P" in options
    match command[1 + len(options) :]:
        case ["-m", name, *arguments] if command[0] == PYTHON and name.partition(".")[0] in _OURS:
            return is_safe, ("module", name), arguments
        case ["-c", text, *arguments] if command[0] == PYTHON and text.startswith("from multiprocessing."):
            return is_safe, ("code", text), arguments
    raise _NotOurs


def _changes_imports(folder: str) -> bool:
    """Whether modules of a folder take the place of some that a stem has imported."""
    names = {each.stem for each in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    return not names.isdisjoint({"sitecustomize", "usercustomize", *sys.stdlib_module_names, *sys.modules} - {"tests"})


def _children() -> set[int]:
    found = set[int]()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            found |= set(map(int, (thread / "children").read_text().split()))
    return found


def _reap(pid: int) -> None:
    """Nobody else waits for the end of a process whose parent has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


# ------------------------------------------------------------------------------------------ in a stem


def _wait(channel: socket.socket) -> _Job:
    """Start processes as long as the other end is there. Returns in each of these."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED_TO_END)  # a new process gets those that come before it is ready
    while True:
        message, files, *_ = socket.recv_fds(channel, _SIZE, 64)
        if not message:
            os._exit(0)
        between = os.fork()
        if not between:
            between = os.getpid()
            pid = os.fork()
            if pid:
                channel.send(b"%d" % pid)
                os._exit(0)
            channel.close()
            while os.getppid() == between:
                time.sleep(0.0005)
            return _become(_Job(**json.loads(message)), files)
        for each in files:
            os.close(each)
        os.waitpid(between, 0)
        channel.send(b"done")


def _become(job: _Job, files: list[int]) -> _Job:
    """Give this process, which has just been forked, what that of the job inherits, and make its stem. Returns the job
    to do: in a process that the stem has started, that one's."""
    global _stem
    free = max(*job.files, *files) + 1
    for place, own in enumerate(files):
        os.dup2(own, free + place)
        os.close(own)
    for place, number in enumerate(job.files):
        os.dup2(free + place, number)
        os.close(free + place)
    if job.new_session:
        os.setsid()
    elif job.group != os.getpgrp():
        os.setpgid(0, job.group)
    if job.in_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _search(os.environ.get("PYTHONPATH", ""), job.environment.get("PYTHONPATH", ""))
    os.environ.clear()
    os.environ.update(job.environment)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        for number in {nothing, *job.files} - {0, 1, 2}:
            os.close(number)
        os.chdir("/")
        return _wait(its)
    its.close()
    os.chdir(job.folder)
    _stem = _Stem(ours)
    _show(job.command, job.environment)
    time.tzset()
    for number in _ASKED_TO_END:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in job.ignored else usual)
    for number in job.ignored:
        signal.signal(number, signal.SIG_IGN)
    _standard_files()
    signal.pthread_sigmask(signal.SIG_SETMASK, job.mask)
    return job


def _search(before: str, now: str) -> None:
    """Look for modules in the folders of the variable PYTHONPATH."""
    earlier, later = (list(filter(None, value.split(os.pathsep))) for value in (before, now))
    sys.path[:] = [*later, *(each for each in sys.path if each not in earlier)]


def _pairs(environment: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in environment.items()]


def _block(texts: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(text) + b"\0" for text in texts)


def _show(command: list[str], environment: dict[str, str]) -> None:
    """Let the system tell this command and environment of this process, as it does of one that is executed. Without the
    right to set an end, zeros follow."""
    places = [*map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49])]
    for (begin, end), number, texts in zip(
        (places[:2], places[2:]), (_PR_SET_MM_ARG_END, _PR_SET_MM_ENV_END), (command, _pairs(environment)), strict=True
    ):
        block = _block(texts)
        ctypes.memmove(begin, block.ljust(end - begin, b"\0"), end - begin)
        _libc.prctl(_PR_SET_MM, number, ctypes.c_ulong(begin + len(block)), 0, 0)


def _standard_files() -> None:
    """Open standard input, output and errors as Python does."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before, writes = getattr(sys, f"__{name}__"), number > 0
        raw = open(number, "wb" if writes else "rb", buffering=0 if writes and unbuffered else -1, closefd=False)  # noqa: SIM115
        file = io.TextIOWrapper(
            raw, before.encoding, before.errors, "\n", line_buffering=name == "stderr" or raw.isatty(),
            write_through=writes and unbuffered,
        )  # fmt: skip
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


class _Hidden(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that were imported here, but that no code of the process has imported yet. With one come those that it
    has imported, so that this process has the modules of one that was executed."""

    def __init__(self, names: Sequence[str]) -> None:
        """Import the modules of these names."""
        known, self._needs = set(sys.modules), dict[str, set[str]]()
        usual = builtins.__import__

        def noted(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            found = usual(name, globals, locals, fromlist, level)
            package = (globals or {}).get("__package__") or ""
            whole = importlib.util.resolve_name("." * level + name, package) if level else name
            needs = self._needs.setdefault((globals or {}).get("__name__", ""), set())
            needs.update([whole, *(f"{whole}.{part}" for part in fromlist or ())])
            return found

        builtins.__import__ = noted
        try:
            for name in names:
                importlib.import_module(name)
        finally:
            builtins.__import__ = usual
        self._modules = {name: sys.modules.pop(name) for name in set(sys.modules) - known}
        (self._anew,) = (name for name in self._modules if name.endswith(f".{_IMPORTED_ANEW}"))
        del self._modules[self._anew]

    def forget(self, name: str) -> None:
        """Let Python find a module by itself, to run it."""
        self._modules.pop(name, None)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        module = self._modules.get(name)
        if module is None:
            return None
        known = module.__spec__
        return importlib.machinery.ModuleSpec(
            name, self, origin=None if known is None else known.origin, is_package=hasattr(module, "__path__")
        )

    def exec_module(self, module: types.ModuleType) -> None:
        """Put the known modules in the place of the new one."""
        wanted, found = {module.__name__}, set[str]()
        while wanted:
            name = wanted.pop()
            found.add(name)
            if name not in self._modules:
                continue
            sys.modules[name] = self._modules.pop(name)
            package, *inner = name.split(".")
            wanted |= self._needs.get(name, set())
            wanted |= {".".join([package, *inner[:count]]) for count in range(len(inner))}
            if package not in _OURS:  # whose modules may be asked for by name
                wanted |= {each for each in self._modules if each.startswith(f"{package}.")}
        if self._anew in found:
            importlib.import_module(self._anew)


_hidden: _Hidden


def _stem_main() -> _Job:
    channel = socket.socket(fileno=int(sys.argv[1]))
    global _hidden
    _hidden = _Hidden(IMPORTED)
    sys.meta_path.insert(0, _hidden)
    _posixsubprocess.fork_exec = subprocess._fork_exec = _start  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    return _wait(channel)


def _run(job: _Job) -> None:
    """Run what Python would, as the module `__main__`."""
    kind, what = job.runs
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if not job.is_safe:
        sys.path.insert(0, str(Path(what).parent) if kind == "script" else str(Path.cwd()))
    sys.argv = [{"module": "-m", "code": "-c", "script": what}[kind], *job.arguments]
    sys.orig_argv = job.command
    if kind == "module":
        _hidden.forget(what)
        runpy._run_module_as_main(what)  # type: ignore[attr-defined]
        return
    if kind == "script":
        main.__dict__["__file__"] = what
    exec(compile(Path(what).read_text() if kind == "script" else what, what, "exec"), main.__dict__)


def _end(status: object) -> NoReturn:
    """Exit as Python does, but without taking apart the many modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    for file in (sys.stdout, sys.stderr):
        try:
            if file is not None and not file.closed:
                file.flush()
        except OSError:
            status = 120
    os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    sys.modules["warm_start"] = sys.modules["__main__"]  # which will be another one
    try:
        _run(_stem_main())
    except SystemExit as _exit:
        _end(_exit.code)
    _end(0)
