"""Environment steps per second of Super Mario Bros 1-1 with our and other packages.

    python -m bench.emulation [--seconds S] [--rounds R] [--json FILE]

All contestants play random right-only actions, four frames per step, and return stacks of four grayscale 84x84 frames,
reward, end, info, with automatic resets. Rates are in wall time. The contestants take turns, so that slow phases of the
machine affect all of them; the table shows medians over the rounds. Peers that are not installed get a row that says
so, and so does env-supermariobrosnes-turbo-emu without its cartridge, which you must own and import (`smb-turbo import
FILE.nes`): it rejects the one that comes with gym-super-mario-bros. To install all of them:

    pip install gymnasium opencv-python-headless stable-retro==1.0.0 'cynes==0.1.*' env-supermariobrosnes-turbo-emu
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.contestants import NES_PY, OURS, PACKAGE, RETRO, TURBO, WHOLE_SCREEN, MarioContestant, line_up
from bench.turns import machine, machine_line, take_turns
from engine.games.mario.lanes import make_emulator

WIDTH = 132
PEERS = {"package": PACKAGE, "retro": RETRO, "turbo": TURBO}
FIRST_CALL = """
import time; start = time.perf_counter()
import numpy as np
from engine.console.view import VIEWS
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
imported = time.perf_counter()
def begin(lanes):
    env = MarioLanes(MarioTask(view=VIEWS["84x84"]), lanes)
    env.reset(); env.step(np.zeros(lanes, np.int64))
begin(1); first = time.perf_counter()
begin(256); print(imported - start, first - imported, time.perf_counter() - first)
"""


def first_call(cache: str) -> dict[str, float]:
    """Seconds for imports, the first step of one lane, and then of 256 lanes, in a new process with this cache
    folder."""
    environment = os.environ | {"MARIO_TUI_CODE": cache}
    words = subprocess.check_output([sys.executable, "-c", FIRST_CALL], env=environment, text=True).split()
    return dict(zip(("import_s", "first_step_s", "start_256_lanes_s"), map(float, words), strict=True))


def bytes_per_lane() -> float:
    console: Any = make_emulator("native", 256, 1)
    arrays = (console.state, console.memory, console.last_state, console.last_memory)
    return sum(array.nbytes for array in arrays) / console.lanes


def best(rows: list[MarioContestant], kind: str, cores: int) -> float:
    """The fastest 84x84 median of a kind on `cores` cores; 0 if there is none."""
    return max((r.median for r in rows if (r.name, r.cores, r.view) == (kind, cores, WHOLE_SCREEN)), default=0.0)


def cpu_best(rows: list[MarioContestant], kind: str) -> float:
    """The same on one core in CPU time, which other programs affect less."""
    return max((r.cpu_median for r in rows if (r.name, r.cores, r.view) == (kind, 1, WHOLE_SCREEN)), default=0.0)


def ratio(rate: float, base: float) -> float | None:
    return rate / base if rate and base else None


def scaling(rows: list[MarioContestant]) -> dict[str, float | None]:
    """Speed-up of two cores over one with the same view; for ours and nes-py with the same number of lanes."""
    found: dict[str, float | None] = {}
    for row in rows:
        if row.name in (OURS, NES_PY) and row.cores == 2:
            same = (row.name, row.count, row.view, 1)
            (one,) = [r.median for r in rows if (r.name, r.count, r.view, r.cores) == same]
            found[f"{row.name}, {row.count} lanes, {row.view}"] = ratio(row.median, one)
    for kind in PEERS.values():
        found[f"{kind}, best"] = ratio(best(rows, kind, 2), best(rows, kind, 1))
    return found


def report(rows: list[MarioContestant]) -> dict[str, Any]:
    """All results, for the JSON file."""
    bases = {"package": best(rows, PACKAGE, 1), "retro": best(rows, RETRO, 1)}
    return {
        "rows": [
            {
                "what": row.name,
                "how": row.how,
                "view": row.view,
                "lanes": row.count,
                "cores": row.cores,
                "missing": row.missing or None,
                "env_steps_per_s": row.rates,
                "env_steps_per_cpu_s": row.cpu_rates,
                "others_share": row.others,
                "median": row.median or None,
                "median_per_cpu_s": row.cpu_median or None,
                # rows with different views can't be compared
                "to_package_one_core": ratio(row.median, bases["package"]) if row.view == WHOLE_SCREEN else None,
                "to_retro_one_core": ratio(row.median, bases["retro"]) if row.view == WHOLE_SCREEN else None,
            }
            for row in rows
        ],
        "best": {
            f"on {cores} core{'s' * (cores > 1)}": {
                f"to_{name}": ratio(best(rows, OURS, cores), best(rows, kind, cores)) for name, kind in PEERS.items()
            }
            for cores in (1, 2)
        }
        | {
            "per CPU second on 1 core": {
                f"to_{name}": ratio(cpu_best(rows, OURS), cpu_best(rows, kind)) for name, kind in PEERS.items()
            }
        },
        "scaling_two_cores_to_one": scaling(rows),
    }


def table(numbers: dict[str, Any]) -> Table:
    found = Table(
        title="Super Mario Bros 1-1: environment steps per second, medians",
        caption=f"ratios: to the best of {PACKAGE} and to {RETRO}, each on one core; 50x60-red is another picture",
    )
    found.add_column("84x84 gray, skip 4, stack 4", no_wrap=True)
    for heading in ("lanes", "cores", "env\nsteps/s", "min..max", "per\nCPU s", "x gym-\nsmb", "x stable-\nretro"):
        found.add_column(heading, justify="right", no_wrap=True)
    for row in numbers["rows"]:
        what = f"{row['what']}, {row['how']}" + (f", {row['view']}" if row["view"] != WHOLE_SCREEN else "")
        counts = (str(row["lanes"]), str(row["cores"]))
        if row["missing"]:
            found.add_row(what, *counts, "–", "missing")
            continue
        rates = row["env_steps_per_s"]
        ratios = (times(row["to_package_one_core"]), times(row["to_retro_one_core"]))
        speeds = (f"{row['median']:,.0f}", f"{min(rates):,.0f}..{max(rates):,.0f}", f"{row['median_per_cpu_s']:,.0f}")
        found.add_row(what, *counts, *speeds, *ratios)
    return found


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}x" if value < 10 else f"{value:.1f}x"


def print_rest(console: Console, numbers: dict[str, Any]) -> None:
    for line in dict.fromkeys(f"{row['what']}: {row['missing']}" for row in numbers["rows"] if row["missing"]):
        console.print(line)
    for where, found in numbers["best"].items():
        ratios = ", ".join(f"{times(found[f'to_{name}'])} {kind}" for name, kind in PEERS.items())
        console.print(f"our best {where} to theirs there: {ratios}")
    for name, found in numbers["first_call"].items():
        console.print(
            f"fresh process, {name} cache: first step after {found['first_step_s']:.2f} s "
            f"(imports {found['import_s']:.2f} s); then 256 lanes start in {found['start_256_lanes_s']:.2f} s"
        )
    console.print(f"bytes per lane: {numbers['bytes_per_lane']:,.0f}")
    for name, value in numbers["scaling_two_cores_to_one"].items():
        console.print(f"2 cores to 1, {name}: {times(value)}")
    console.print(machine_line(numbers["machine"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Environment steps per second of ours and of other packages.")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contestant")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        calls = {name: first_call(cache) for name in ("empty", "warm")}
    with contextlib.ExitStack() as cleanup:
        rows = line_up(cleanup)
        take_turns(rows, arguments.rounds, arguments.seconds)
        numbers = report(rows)
    numbers |= {
        "first_call": calls,
        "bytes_per_lane": bytes_per_lane(),
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
        "machine": machine(rows),
    }
    console = Console(width=WIDTH, highlight=False)
    console.print(table(numbers))
    print_rest(console, numbers)
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
