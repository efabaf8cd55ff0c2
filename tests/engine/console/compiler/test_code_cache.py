"""Kernels do without a cache: a disk that can't be written, or damaged files, cost time and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import engine

pytestmark = pytest.mark.process

_CALL_A_KERNEL = """
import resource, sys
if "full" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # every write fails, as on a full disk
import numpy as np
from engine.console.compiler import kernels
written, module = [], kernels.Module
kernels.Module = lambda: written.append(1) or module()
from engine.buffers.sum_tree import SumTree
tree = SumTree(4)
tree.set(np.arange(4), np.arange(4.0))
print(tree.total, len(written))
"""


def call_a_kernel(cache: Path, *options: str, variable: str = "MARIO_TUI_CODE") -> list[str]:
    """The sum that a kernel has computed in another process, and how many kernels had to be compiled for it."""
    environment = {name: value for name, value in os.environ.items() if name != "MARIO_TUI_CODE"}
    done = subprocess.run(
        [sys.executable, "-c", _CALL_A_KERNEL, *options], env={**environment, variable: str(cache)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_kernel_runs_where_the_disk_of_its_cache_is_full(tmp_path: Path) -> None:
    assert call_a_kernel(tmp_path, "full") == ["6.0", "1"]


def test_a_kernel_runs_without_a_cache_folder_and_leaves_nothing_beside_the_sources(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert call_a_kernel(tmp_path / "file" / "cache") == ["6.0", "1"]
    assert not list(Path(engine.__file__).parent.rglob("*.o"))


def test_a_kernel_runs_where_neither_the_users_folders_nor_temporary_ones_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert call_a_kernel(tmp_path / "file" / "cache", "full", variable="XDG_CACHE_HOME") == ["6.0", "1"]


def test_a_damaged_cache_is_compiled_anew_and_used_where_it_can_not_be_written(tmp_path: Path) -> None:
    assert call_a_kernel(tmp_path) == ["6.0", "1"]
    (file,) = tmp_path.rglob("*.o")
    file.write_bytes(b"")  # as after a loss of power
    assert call_a_kernel(tmp_path) == ["6.0", "1"]
    assert call_a_kernel(tmp_path) == ["6.0", "0"]
    assert call_a_kernel(tmp_path, "full") == ["6.0", "0"]
