"""The cost of the dashboard: CPU time, memory, and bytes sent to the terminal, of the real program in a pty.

Each state is measured for some seconds with a real run that is training. Then a simulated run
(`tests/support/source.py`) sends 10,000 events per second over a real socket, more than a run on this machine does.

    python -m bench.dashboard [--seconds 20]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from bench.watched import Watched, training
from tests.support.source import serving

_SETTLE_S = 4.0


@dataclass
class Cost:
    state: str
    core_percent: float
    kib_per_s: float
    memory_mib: float
    growth_mib: float


def watch(terminal: Watched, state: str, seconds: float) -> Cost:
    """The cost of the program in a state, measured after it has settled."""
    time.sleep(_SETTLE_S)
    process = psutil.Process(terminal.pid)
    cpu, written, memory, began = process.cpu_times(), terminal.bytes, process.memory_info().rss, time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    used = after.user + after.system - cpu.user - cpu.system
    now = process.memory_info().rss
    return Cost(state, 100 * used / took, (terminal.bytes - written) / took / 1024, now / 2**20, (now - memory) / 2**20)


def costs(folder: Path, seconds: float) -> list[Cost]:
    found = []
    with training(folder / "real"):
        for columns, rows in ((80, 24), (120, 40)):
            terminal = Watched(folder / "real", columns, rows)
            found.append(watch(terminal, f"{columns}x{rows}, a run of 32 lanes", seconds))
            terminal.send("g")
            found.append(watch(terminal, f"{columns}x{rows}, with the game", seconds))
            terminal.send("gp")
            found.append(watch(terminal, f"{columns}x{rows}, paused", seconds))
            terminal.send("p")
            terminal.leave()
        for protocol in ("kitty", "sixel", "iterm2"):
            terminal = Watched(folder / "real", 80, 24, protocol)
            terminal.send("g")
            found.append(watch(terminal, f"80x24, with the game in real pixels, {protocol}", seconds))
            terminal.send("g")
            terminal.leave()
    with serving(folder / "load"):
        terminal = Watched(folder / "load", 80, 24)
        found.append(watch(terminal, "80x24, 256 lanes, 10,000 events/s, past of 50,000,000 steps", seconds))
        found.append(watch(terminal, "the same, later", 2 * seconds))
        terminal.leave()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    table = Table("dashboard", "% of a core", "KiB/s to the terminal", "MiB", "MiB more at the end")
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = name
        for state in ("real", "load"):
            (Path(name) / state).mkdir()
        for cost in costs(Path(name), seconds):
            table.add_row(
                cost.state, f"{cost.core_percent:.1f}", f"{cost.kib_per_s:.1f}", f"{cost.memory_mib:.0f}",
                f"{cost.growth_mib:+.1f}",
            )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
