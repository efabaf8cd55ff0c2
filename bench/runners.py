"""Environment steps and learned samples per second of every runner with its defaults for Mario, compared with `single`.

    python -m bench.runners [--seconds S] [--rounds R] [--cores N] [--runners NAME ...] [--json FILE]

The runners take turns on the same machine; start-up and filling the replay are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.training import learning_turn, steady_rate
from bench.turns import add_cores, times, use_cores
from engine.config.reading import make_config
from engine.config.runners import RUNNERS
from engine.runtime.threads import processor_name


def samples_of_update(runner: str) -> int:
    """Number of transitions that one update of the whole run learns from."""
    config = make_config({"runner": runner})
    return config.batch_size * (config.processes if runner == "ddp" else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Training speed of every runner.")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a turn, without start-up")
    parser.add_argument("--rounds", type=int, default=3, help="turns per runner")
    add_cores(parser)
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=list(RUNNERS), help="default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    cores = use_cores(arguments.cores)
    steps: dict[str, list[float]] = {runner: [] for runner in arguments.runners}
    samples: dict[str, list[float]] = {runner: [] for runner in arguments.runners}
    for _ in range(arguments.rounds):
        for runner in arguments.runners:
            reports = learning_turn(arguments.seconds, "--runner", runner)
            steps[runner].append(steady_rate(reports))
            samples[runner].append(steady_rate(reports, "updates") * samples_of_update(runner))
    table = Table("runner", "env steps/s", "samples/s", "steps, times single", "samples, times single", "all rounds",
                  title=f"training Mario; cores: {cores} ({processor_name()})")  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for runner in arguments.runners:
        found[runner] = {}
        for what, rates in (("env_steps_per_s", steps), ("samples_per_s", samples)):
            found[runner][what] = rates[runner]
            if "single" in rates:
                found[runner][f"{what}_ratio"] = statistics.median(rates[runner]) / statistics.median(rates["single"])
        table.add_row(
            runner,
            *(f"{statistics.median(rates[runner]):,.0f}" for rates in (steps, samples)),
            *(times(found[runner].get(f"{what}_ratio")) for what in ("env_steps_per_s", "samples_per_s")),
            " ".join(f"{rate:,.0f}" for rate in steps[runner]),
        )
    console = Console(width=120, highlight=False)
    console.print(table)
    console.print(f"load average of the last 5 minutes: {os.getloadavg()[1]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"runners": found, "cores": cores}, indent=2) + "\n")


if __name__ == "__main__":
    main()
