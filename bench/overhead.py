"""The cost of watching: training speed of a run with no client attached, with the dashboard, and with the game shown.

The three states of one run take turns, so that slow phases of the machine affect all of them. Each is compared with the
unattached state of the same round; results are medians over the rounds. Before that, the time from the command to the
first painted screen is measured.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.watched import Watched, training
from engine.host.client import HostClient
from engine.protocol.messages import Progress
from tests.support.program import Terminal, next_event, wait_until

ROUNDS, WINDOW_S, SETTLE_S, PAINTS = 20, 4.0, 1.5, 7


def env_steps_per_s(client: HostClient) -> float:
    """Environment steps per second over the next seconds, between the first and the last report in them."""
    started = time.monotonic()
    first = next_event(client, Progress, lambda _: time.monotonic() - started > SETTLE_S)
    last = next_event(client, Progress, lambda p: p.wall_s - first.wall_s >= WINDOW_S)
    return float((last.env_steps - first.env_steps) / (last.wall_s - first.wall_s))


def training_speed(folder: Path) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {"nobody attached": [], "dashboard 120x40": [], "dashboard with the game": []}
    with training(folder) as run, HostClient(run) as client:
        for _ in range(ROUNDS):
            rates["nobody attached"].append(env_steps_per_s(client))
            terminal = Watched(folder, 120, 40)
            rates["dashboard 120x40"].append(env_steps_per_s(client))
            terminal.send("g")
            rates["dashboard with the game"].append(env_steps_per_s(client))
            terminal.leave()
    return rates


def first_paint_s(folder: Path) -> float:
    """Seconds from the command to the home screen in the terminal."""
    started = time.perf_counter()
    terminal = Terminal(cwd=folder)
    wait_until(lambda: "Runs" in terminal.text(), "home")
    painted = time.perf_counter() - started
    terminal.send("q")
    terminal.wait()
    return painted


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paints = [first_paint_s(folder) for _ in range(PAINTS)]
        rates = training_speed(folder)
    table = Table("environment steps/s of one run", "median", "of nobody attached", "half of the rounds", "rounds")
    for label, values in rates.items():
        shares = [value / base for value, base in zip(values, rates["nobody attached"], strict=True)]
        low, median, high = statistics.quantiles(shares)
        table.add_row(
            label, f"{statistics.median(values):.0f}", f"{median:.1%}", f"{low:.1%} to {high:.1%}", f"{len(values)}"
        )
    console = Console()
    console.print(table)
    console.print(
        f"first paint of the TUI: median {statistics.median(paints):.2f} s of {PAINTS}, best {min(paints):.2f} s"
    )


if __name__ == "__main__":
    main()
