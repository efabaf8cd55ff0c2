"""Frames per second of `NesBatch` and nes-py on one core, and compile time.

    python -m bench.bench_nes [--seconds S] [--rounds N]

The contestants play random buttons on 1-1 in alternating turns, so that slow phases of the machine affect all of them;
the table shows medians. One thread is measured in CPU time, which other load affects least; several threads in wall
time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median

import numpy as np

from engine.console.nes import NesBatch, load_cartridge
from engine.console.view import VIEWS
from tests.support.nes.play import HELD, ODDS, Pair
from tests.support.nes.reference import NesPy

LANES = 32
NES_PY = f"nes-py {version('nes-py')} (always draws), CPU"
COMPILE = """
import time; start = time.perf_counter()
import numpy as np
from engine.console.nes import NesBatch, load_cartridge
from engine.console.view import VIEWS
imported = time.perf_counter()
console = NesBatch(1, load_cartridge())
console.step(np.zeros(1, np.uint8)); console.picture(VIEWS["50x60"], np.zeros((1, 50, 60), np.uint8))
print(imported - start, time.perf_counter() - imported)
"""


def start_state() -> bytes:
    """A saved state at the first playable frame of 1-1."""
    pair = Pair()
    for _ in range(60):
        pair.step(0)
    pair.enter(1, 1)
    state = pair.ours.save(0)
    pair.close()
    return state


def batch(
    state: bytes, threads: int = 1, picture: bool = False, screen: bool = False, wall: bool = False
) -> Callable[[float], float]:
    """A contestant: a function that plays for some seconds in steps of four frames and returns frames per second."""
    console = NesBatch(LANES, load_cartridge(), threads)
    for lane in range(LANES):
        console.load(lane, state)
    rng = np.random.default_rng(0)
    out = np.zeros((LANES, 50, 60), np.uint8)

    clock = time.perf_counter if wall else time.process_time

    def run(seconds: float) -> float:
        frames = 0
        begin = clock()
        while (spent := clock() - begin) < seconds:
            buttons = rng.choice(HELD, LANES, p=ODDS)
            for _ in range(4):
                console.step(buttons, 4)
                if picture:
                    console.picture(VIEWS["50x60"], out)
                if screen:
                    console.screen(0)
            frames += 16 * LANES
        return frames / spent

    return run


def nes_py() -> Callable[[float], float]:
    """The contestant nes-py, which always draws."""
    pair = Pair()
    for _ in range(60):
        pair.step(0)
    pair.enter(1, 1)
    console: NesPy = pair.theirs
    rng = np.random.default_rng(0)

    def run(seconds: float) -> float:
        frames = 0
        begin = time.process_time()
        while (spent := time.process_time() - begin) < seconds:
            buttons = int(rng.choice(HELD, p=ODDS))
            for _ in range(16):
                console.step(buttons)
            frames += 16
        return frames / spent

    return run


def first_call(cache: str) -> tuple[float, float]:
    """Seconds for imports, and for creating a console and running its first frame, in a new process with this cache
    folder."""
    environment = os.environ | {"MARIO_TUI_CODE": cache}
    words = subprocess.check_output([sys.executable, "-c", COMPILE], env=environment, text=True).split()
    return float(words[0]), float(words[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Frames per second of NesBatch and nes-py.")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contestant")
    arguments = parser.parse_args()
    state = start_state()
    contestants = {
        NES_PY: nes_py(),
        "none drawn, CPU": batch(state),
        "every 4th run again for a 50x60 picture, CPU": batch(state, picture=True),
        "one screen every 4th, CPU": batch(state, screen=True),
        "none drawn, 1 thread, wall": batch(state, 1, wall=True),
        "none drawn, 2 threads, wall": batch(state, 2, wall=True),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run(0.2)
    for _ in range(arguments.rounds):
        for name, run in contestants.items():
            rates[name].append(run(arguments.seconds))
    base = median(rates[NES_PY])
    print(f"{'':48}{'frames/s':>10}{'ratio':>8}")
    for name, values in rates.items():
        print(f"{name:48}{median(values):10,.0f}{median(values) / base:8.1f}")
    with tempfile.TemporaryDirectory() as cache:
        imported, compiled = first_call(cache)
        print(f"first frame, empty cache: {compiled:.2f} s (imports {imported:.2f} s)")
        imported, loaded = first_call(cache)
        print(f"first frame, warm cache:  {loaded:.2f} s (imports {imported:.2f} s)")
    console = NesBatch(1, load_cartridge())
    rows = (console.state, console.memory, console.last_state, console.last_memory)
    lane_bytes = sum(row.nbytes for row in rows)
    print(f"bytes per lane: {lane_bytes:,} (and a canvas per thread); saved state: {len(state):,}")


if __name__ == "__main__":
    main()
