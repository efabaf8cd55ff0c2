"""What a keeper ends and deletes after the process that it belongs to, with plain processes instead of Ray's."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.program import children_of, wait_until

pytestmark = pytest.mark.process

LEADER = """
import fcntl, os, signal, subprocess, sys
from pathlib import Path
from engine.extras.ray.keeper import keep_cluster
from engine.runtime.processes import ENDING, disregard
disregard(*ENDING)  # as a run's coordinator does
folder = Path(sys.argv[1])
lock = open(folder.with_suffix(".lock"), "wb")
fcntl.flock(lock, fcntl.LOCK_EX)
keep_cluster(folder, lock)
sleep = ["sleep", "10000"]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, process_group=0), subprocess.Popen(sleep)]
os.kill(children[2].pid, signal.SIGSTOP)
orphan = subprocess.run(["sh", "-c", "sleep 10000 >/dev/null & echo $!"], stdout=subprocess.PIPE).stdout
print(*[child.pid for child in children], int(orphan), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def outsider() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "10000"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", ["killed", "at its end"])
def test_all_processes_of_a_cluster_end_with_the_one_that_started_it(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "0"
    (folder / "session" / "sockets").mkdir(parents=True)
    with (
        outsider() as other_session,
        subprocess.Popen([sys.executable, "-c", LEADER, folder], stdin=-1, stdout=-1, text=True) as leader,
    ):
        assert leader.stdout is not None
        pids = [int(pid) for pid in leader.stdout.readline().split()]
        others = [psutil.Process(pid) for pid in pids]
        (keeper,) = (each for each in children_of(psutil.Process(leader.pid)) if each.pid not in pids)
        assert len(others) == 4 and folder.exists()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # a shutdown sends it to everybody at once
            keeper.send_signal(number)
        with folder.with_suffix(".lock").open("ab") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if how == "killed":
            leader.kill()
        else:
            leader.communicate()
        wait_until(lambda: not any(map(psutil.Process.is_running, [*others, keeper])), "everybody's end", 60)
        assert not folder.exists()
        with folder.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert other_session.poll() is None
