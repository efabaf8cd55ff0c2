"""Parsers of what strangers may have written: in several threads at once, and nested too deeply."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.runtime.formats import parsed_json, parsed_toml, safetensors_header
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


NESTED: dict[str, Callable[[Path], object]] = {
    "JSON": lambda path: parsed_json(b"[" * 200_000, list),
    "TOML": lambda path: parsed_toml("a = " + "[" * 100_000),
    "policy": safetensors_header,
}


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """The garbage collector runs all the time."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


class Garbage:
    """As long as it is wanted, each finaliser leaves the next object to the collector, and calls some functions."""

    wanted = True

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        if Garbage.wanted:
            Garbage()
            down(100)


def down(calls: int) -> None:
    if calls:
        down(calls - 1)


@pytest.mark.parametrize("kind", NESTED)
def test_no_finaliser_runs_where_the_stack_is_used_up(
    kind: str, tmp_path: Path, eager_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.safetensors"
    path.write_bytes((100_000).to_bytes(8, "little") + b"[" * 100_000)
    failed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    Garbage.wanted = True
    Garbage()
    try:
        with pytest.raises(ValueError):
            NESTED[kind](path)
    finally:
        Garbage.wanted = False
    assert not failed
