"""JSON of types that nobody has asked for before, read in several threads at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import PATIENCE_S

THREADS = """
import random, sys, threading, time, types
import msgspec
from engine.runtime.formats import parsed_json

FIELDS = "".join(f"    field_{n}: dict[str, int | None] = {{}}\\n" for n in range(30))
INNER = f"class Inner(msgspec.Struct):\\n{FIELDS}"
OUTER = f"class Outer(msgspec.Struct):\\n    inner: Inner | None = None\\n{FIELDS}"
CODE = compile("from __future__ import annotations\\n" + INNER + OUTER, "classes", "exec")
fields = {f"field_{n}": {"a": n} for n in range(30)}
content = msgspec.json.encode({"inner": fields, **fields})
sys.setswitchinterval(1e-5)
chance = random.Random(0)
for number in range(40):
    module = sys.modules[f"classes_{number}"] = types.ModuleType(f"classes_{number}")
    module.msgspec = msgspec
    exec(CODE, vars(module))

    def read(after_s):
        until = time.perf_counter() + after_s
        while time.perf_counter() < until:
            pass
        assert parsed_json(content, module.Outer).inner.field_7 == {"a": 7}

    threads = [threading.Thread(target=read, args=(chance.random() * 0.004,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.process
def test_several_threads_may_be_the_first_to_read_a_type() -> None:
    """msgspec crashes the process then, about once in ten times; `mario-tui pause A B` did."""
    command = [sys.executable, "-P", "-c", THREADS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=Path(__file__).parents[3])
    assert (done.returncode, done.stderr) == (0, "")
