"""The helpers of the tests: processes from a stem are like executed ones, and a wait in vain ends at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import program, warm_start
from tests.support.program import PATIENCE_S, PROGRAM, Terminal, children_of, wait_until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="of Linux")]
TELL = """from multiprocessing.spawn import spawn_main
import json, os, signal, sys
files = {number: os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
         if os.path.exists(f"/proc/self/fd/{number}")}
print(json.dumps({
    "module": __name__, "argv": sys.argv, "path": sys.path, "folder": os.getcwd(), "environment": dict(os.environ),
    "modules": sorted({"torch", "numpy", "engine", "mario_tui"} & {*sys.modules}), "parent": os.getppid(),
    "leads session": os.getsid(0) == os.getpid(), "leads group": os.getpgrp() == os.getpid(),
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "priority": os.nice(0), "in": sys.stdin.read(),
    "signals": {int(each): str(signal.getsignal(each)) for each in signal.valid_signals()},
    "streams": [[each.encoding, each.errors, each.line_buffering, each.write_through]
                for each in (sys.stdin, sys.stdout, sys.stderr)],
    "files": {number: kind for number, kind in files.items() if not kind.startswith(("socket:", "pipe:", "/proc/"))},
    "told": open("/proc/self/environ").read().rstrip("\\0").split("\\0"),
    "command": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
}, default=str))
"""


def told(folder: Path, *arguments: str, **options: Any) -> dict[str, Any]:
    command = [sys.executable, "-P", "-c", TELL, *arguments]
    done = subprocess.run(command, cwd=folder, input="typed", capture_output=True, text=True, check=True, **options)
    found = json.loads(done.stdout)
    for name in ("COLUMNS", "LINES"):  # `import readline` sets them here, unseen by os.environ
        found["environment"].pop(name, None)
    found["told"] = sorted(each for each in found["told"] if not each.startswith(("COLUMNS=", "LINES=")))
    return dict(found)


@pytest.mark.parametrize("options", [
    {}, {"start_new_session": True}, {"process_group": 0}, {"env": {**os.environ, "ONE": "ü", "PYTHONUNBUFFERED": "1"}},
], ids=["usual", "session", "group", "environment"])  # fmt: skip
def test_a_process_from_a_stem_is_like_one_that_is_executed(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "passed").open("w") as passed:
        options = {**options, "pass_fds": [passed.fileno()]}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        try:
            warm = told(tmp_path, "an argument", **options)
            monkeypatch.setattr(warm_start, "is_executed", True)
            executed = told(tmp_path, "an argument", **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert warm == executed
    assert (warm["parent"], warm["in"], warm["blocked"]) == (os.getpid(), "typed", [signal.SIGHUP])


@pytest.mark.parametrize(("code", "status", "said"), [
    ("raise SystemExit(7)", 7, ""),
    ("raise SystemExit('a reason')", 1, "a reason\n"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ("import atexit; atexit.register(print, 'the end', file=__import__('sys').stderr)", 0, "the end\n"),
])  # fmt: skip
def test_it_ends_like_one(code: str, status: int, said: str) -> None:
    command = [sys.executable, "-c", f"from multiprocessing.spawn import spawn_main\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, said)


def test_nothing_is_left_of_a_stem_whose_process_is_killed(tmp_path: Path) -> None:
    code = "from multiprocessing.spawn import spawn_main; import time; print(flush=True); time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        ours = psutil.Process(process.pid)
        (stem,) = ours.children()
        assert children_of(ours) == []
        process.kill()
    wait_until(lambda: not stem.is_running(), "the end of the stem")


def test_a_wait_for_a_process_ends_with_it() -> None:
    begun = time.monotonic()
    process = subprocess.Popen(["true"])
    with pytest.raises(AssertionError, match="has ended without: a wonder"):
        wait_until(lambda: False, "a wonder", by=process)
    assert time.monotonic() - begun < PATIENCE_S / 2


def test_a_wait_ends_once_no_process_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LOOK_S", 0.0)
    subprocess.Popen(["true"]).wait()
    resource_tracker.ensure_running()
    with pytest.raises(AssertionError, match="nothing is left that could bring about: a wonder"):
        wait_until(lambda: False, "a wonder")


def test_a_wait_for_a_terminal_ends_with_its_program(tmp_path: Path) -> None:
    begun = time.monotonic()
    terminal = Terminal("--version", cwd=tmp_path)
    with pytest.raises(AssertionError, match=r"has ended without \('No runs yet',\) on the screen"):
        terminal.wait_for("No runs yet")
    assert terminal.wait() == 0 and "mario-tui" in terminal.text()
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert PROGRAM == [warm_start.PROGRAM]
