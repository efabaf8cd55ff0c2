"""What the processor has done."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine.runtime.threads import machine_cpu_seconds

pytestmark = pytest.mark.process

BURN_A_SECOND = "import time\nwhile time.process_time() < 1: pass"
CLOCK_TICKS_S = 0.1
"""The kernel counts in ticks of 10 ms, for each core and kind of work."""


def test_programs_of_low_priority_count() -> None:
    before = machine_cpu_seconds()
    subprocess.run([sys.executable, "-c", BURN_A_SECOND], check=True, preexec_fn=lambda: os.nice(10))
    assert machine_cpu_seconds() - before > 1 - CLOCK_TICKS_S
