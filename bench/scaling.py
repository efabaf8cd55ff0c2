"""Environment steps per second of training on 1, 2, 4 ... cores: `single`, and `parallel` with a worker per core.

    python -m bench.scaling [--seconds S] [--rounds R] [--games NAME ...] [--json FILE]

The runs have their game's defaults, but a short burn-in and no evaluations; `parallel` splits the lanes among its
workers. All take turns on the same machine; start-up and filling the replay are not counted. Linux only, because runs
are bound to cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.training import product_turn
from engine.config.game import games
from engine.config.reading import make_config
from engine.runtime.threads import processor_name


def main() -> None:
    parser = argparse.ArgumentParser(description="Training speed on 1, 2, 4 ... cores.")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a turn, without start-up")
    parser.add_argument("--rounds", type=int, default=3, help="turns per run")
    parser.add_argument("--games", nargs="+", choices=games(), default=list(games()), help="default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    if not hasattr(os, "sched_getaffinity"):
        print("bench.scaling needs Linux")
        return
    cores = sorted(os.sched_getaffinity(0))
    numbers = [1 << power for power in range(len(cores).bit_length())]
    runs = [(game, runner, number) for game in arguments.games for runner, number in runs_on(numbers)]
    rates: dict[tuple[str, str, int], list[float]] = {run: [] for run in runs}
    for _ in range(arguments.rounds):
        for game, runner, number in runs:
            os.sched_setaffinity(0, cores[:number])  # the run inherits it
            rates[game, runner, number].append(product_turn(arguments.seconds, *options_of(game, runner, number)))
    os.sched_setaffinity(0, cores)
    medians = {run: statistics.median(found) for run, found in rates.items()}
    table = Table("game", "runner", "cores", "env steps/s, median", "times single on one core", "all rounds",
                  title=f"training on {processor_name()}")  # fmt: skip
    for (game, runner, number), found in rates.items():
        median = medians[game, runner, number]
        ratio = f"{median / medians[game, 'single', 1]:.2f}x"
        table.add_row(game, runner, str(number), f"{median:,.0f}", ratio, " ".join(f"{rate:,.0f}" for rate in found))
    console = Console(width=120, highlight=False)
    console.print(table)
    console.print(f"load average of the last 5 minutes: {os.getloadavg()[1]:.1f}")
    if arguments.json:
        results = [
            {"game": game, "runner": runner, "cores": number, "env_steps_per_s": found}
            for (game, runner, number), found in rates.items()
        ]
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def runs_on(numbers: list[int]) -> list[tuple[str, int]]:
    """Runners and numbers of cores; `parallel` on one core would be `single`."""
    return [("single", number) for number in numbers] + [("parallel", number) for number in numbers if number > 1]


def options_of(game: str, runner: str, cores: int) -> tuple[str, ...]:
    options = ("--game", game)
    if runner == "single":
        return options
    lanes = make_config({"game": game}).parallel_envs // cores
    return (*options, "--runner", runner, "--num-processes", str(cores), "--parallel-envs", str(max(1, lanes)))


if __name__ == "__main__":
    main()
