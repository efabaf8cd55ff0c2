"""Environment steps per second of training: each game with 1, 16, 64 and 256 environments, on every available device.

    python -m bench.speed [--seconds S] [--rounds R] [--lanes N ...]

All other options are the game's defaults. The runs take turns; start-up and filling the replay are not counted.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

import torch
from rich.console import Console
from rich.table import Table

from bench.training import product_turn
from engine.config.game import games


def main() -> None:
    parser = argparse.ArgumentParser(description="Training speed by game, device and number of environments.")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a turn, without start-up")
    parser.add_argument("--rounds", type=int, default=3, help="turns per run")
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 16, 64, 256])
    arguments = parser.parse_args()
    devices = ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    rates: dict[tuple[str, str, int], list[float]] = {}
    for _ in range(arguments.rounds):
        for run in itertools.product(games(), devices, arguments.lanes):
            game, device, lanes = run
            options = ("--game", game, "--device", device, "--parallel-envs", str(lanes))
            rates.setdefault(run, []).append(product_turn(arguments.seconds, *options))
    table = Table("game", "device", *(f"{lanes:,}" for lanes in arguments.lanes), title="environment steps/s by lanes")
    for game, device in itertools.product(games(), devices):
        medians = (statistics.median(rates[game, device, lanes]) for lanes in arguments.lanes)
        table.add_row(game, device, *(f"{rate:,.0f}" for rate in medians))
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    main()
