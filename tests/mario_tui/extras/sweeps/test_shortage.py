"""What the runs of a sweep need of the machine."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mario_tui.extras.sweeps.queue import shortage
from tests.support.program import private_disk


@pytest.mark.process
def test_what_a_run_needs_of_the_disk_is_tried_out(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    ask = (
        "from mario_tui.extras.sweeps import queue; print(queue.shortage(queue.Path.cwd(), int(queue.sys.argv[1]), 1))"
    )
    said = [
        subprocess.run(
            [*private_disk(disk, "1m"), sys.executable, "-c", ask, f"{size}"], capture_output=True, text=True
        )
        for size in (2**19, 2**21)
    ]
    assert [each.stdout for each in said] == ["\n", f"disk space: {disk} has room for less than 2.0 MiB\n"]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, limit[1]))  # as a quota, it is not in what the disk has free
    try:
        assert shortage(tmp_path, 2**20, 1).startswith("disk space: ") and not shortage(tmp_path, 2**19, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not [path for path in tmp_path.iterdir() if path != disk]
