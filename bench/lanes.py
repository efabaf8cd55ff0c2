"""Environment steps per second of training by number of lanes, with and without overlapping acting and learning.

    python -m bench.lanes [--seconds S] [--rounds R] [--lanes N ...]

The defaults of `--parallel-envs` and `--async-envs` are based on it. The runs take turns; start-up is not counted.
"""

from __future__ import annotations

import argparse
import statistics

from rich.console import Console
from rich.table import Table

from bench.training import product_turn


def main() -> None:
    parser = argparse.ArgumentParser(description="Training speed by number of lanes.")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a turn, without start-up")
    parser.add_argument("--rounds", type=int, default=3, help="turns per run")
    parser.add_argument("--lanes", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    arguments = parser.parse_args()
    runs = {
        (lanes, overlap): ("--parallel-envs", str(lanes), overlap)
        for lanes in arguments.lanes
        for overlap in ("--async-envs", "--no-async-envs")
    }
    rates: dict[tuple[int, str], list[float]] = {run: [] for run in runs}
    for _ in range(arguments.rounds):
        for run, options in runs.items():
            rates[run].append(product_turn(arguments.seconds, *options))
    table = Table("lanes", "overlapped (--async-envs)", "one after the other", title="training, environment steps/s")
    for lanes in arguments.lanes:
        both = (statistics.median(rates[lanes, overlap]) for overlap in ("--async-envs", "--no-async-envs"))
        table.add_row(str(lanes), *(f"{rate:,.0f}" for rate in both))
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    main()
