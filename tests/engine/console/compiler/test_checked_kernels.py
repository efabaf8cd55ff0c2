"""The mode in which kernels check their indices and divisors; all of ours run in it once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[4]
PLAYED = (
    "tests/engine/games/mario/test_lanes.py::test_compiled_and_reference_steppers_are_equal",
    "tests/engine/console/nes/test_ppu.py::test_random_register_accesses_equal_nes_py[1-horizontal]",
    "tests/engine/games/boards/test_kernels.py",
    "tests/engine/buffers/test_replay.py::test_priorities_cover_exactly_what_can_be_sampled",
)
DAMAGED = 10_000
SCRIPT = """
import sys
import numpy as np
from engine.console.compiler.kernels import kernel
@kernel("int64[2], int64, int64")
def quotient(table, index, divisor):
    part = table[1, index:]
    return (part[0] << index) // divisor
print(quotient(np.arange(6).reshape(2, 3), *map(int, sys.argv[1:])))
"""


def checked(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the checked mode."""
    environment = {**os.environ, "MARIO_TUI_CHECKED": "1", "MARIO_TUI_CODE": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("index", "divisor", "wrong"),
    [
        (3, 1, "8: wrong index: part[0]"),
        (4, 1, "7: wrong slice: table[1, index:]"),
        (-1, 1, "7: wrong slice: table[1, index:]"),
        (2, 0, "8: wrong divisor: (part[0] << index) // divisor"),
    ],
)
def test_what_is_wrong_ends_the_process_with_a_line_that_names_it(
    index: int, divisor: int, wrong: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert checked(tmp_path, str(script), "2", "4").stdout == "5\n"
    done = checked(tmp_path, str(script), str(index), str(divisor))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGABRT, "", f"{script}:{wrong}\n")


@pytest.mark.long
def test_the_kernels_stay_within_their_arrays(tmp_path: Path) -> None:
    done = checked(tmp_path, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *PLAYED)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.long
def test_no_stored_state_leads_a_kernel_beyond_its_arrays(tmp_path: Path) -> None:
    done = checked(tmp_path, "-m", "tests.support.damaged_states", str(DAMAGED))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(each["refused"] + each["played"] for each in outcomes) >= DAMAGED
    assert all(each["refused"] > 100 and each["played"] > 100 for each in outcomes)
