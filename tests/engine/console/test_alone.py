"""The console is a library of its own: it plays where there are only NumPy, llvmlite and what it says it needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import engine
from engine.console.cartridge import installed_mario

pytestmark = pytest.mark.process

RUNTIME = ("__init__", "files", "text")
NEEDED = ("__init__.py", "console", "errors.py", *(f"runtime/{name}.py" for name in RUNTIME))
LIBRARIES = ("numpy", "numpy.libs", "llvmlite", "llvmlite.libs")
PLAY = """
import hashlib, sys
import numpy as np
from engine.console.cartridge import load_cartridge
from engine.console.nes import NesBatch
console, rng = NesBatch(4, load_cartridge(sys.argv[1]), threads=2), np.random.default_rng(7)
console.step(np.zeros(4, np.uint8), 40)
console.step(np.full(4, 0x08, np.uint8))
digest = hashlib.sha256()
for turn in range(250):
    console.step(rng.choice([0x00, 0x80, 0x81, 0x82, 0x83, 0x40], 4).astype(np.uint8), 4)
    digest.update(console.ram.tobytes())
    for lane in range(4):
        digest.update(console.screen(lane).tobytes())
print(digest.hexdigest(), *(256 * int(page) + int(x) for page, x in console.ram[:, [0x6D, 0x86]]))
"""
PLAYED = "a58efc95194b1eacada2faaa65867431cb7a114a987bfc609ef4202f5e6c0d12"
"""Of 1,000 frames in four lanes, RAM and pictures, before the console was a library."""


@pytest.mark.long
def test_the_console_plays_alone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "fresh"], check=True)
    (packages,) = (tmp_path / "fresh").glob("lib/python*/site-packages")
    for name in LIBRARIES:
        spec = find_spec(name.removesuffix(".libs"))
        assert spec is not None and spec.origin is not None
        folder = Path(spec.origin).parents[1] / name
        if folder.exists():  # the libraries beside a package are not in every build of it
            (packages / name).symlink_to(folder)
    (packages / "engine" / "runtime").mkdir(parents=True)
    for name in NEEDED:
        source, target = Path(engine.__file__).parent / name, packages / "engine" / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    played = subprocess.run(
        [tmp_path / "fresh" / "bin" / "python", "-I", "-c", PLAY, installed_mario()],
        env={"XDG_CACHE_HOME": str(tmp_path / "cache")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert played.stdout.split()[:1] == [PLAYED], played.stderr
