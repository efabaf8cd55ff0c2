"""What a run learns of a Gymnasium environment: complete runs, one seed after the other.

    python -m bench.environments ENV [--reach RETURN] [--seeds S ...] [--csv FILE] [--run-dir DIR] [OPTION ...]

A run ends at its `--steps`, or when an evaluation reaches RETURN. The table has for each seed when that was, the mean
return of the last 100 episodes of training, as papers count it, and that of the last greedy evaluation. Minutes count
from the start of the program, including all evaluations. Unknown options are passed to the run, such as `--preset
minatar-paper`. The CSV has all evaluations of all seeds, and is written anew after each.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import signal
import statistics
import subprocess
import tempfile
import time
from collections import deque
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.training import PROGRAM

_EPISODES = 100
"""Training episodes whose returns are averaged (Young and Tian 2019)."""


@dataclass(frozen=True)
class Point:
    """An evaluation during training."""

    env: str
    seed: int
    minutes: float
    env_steps: int
    training_return: float
    evaluation_return: float


def train(env: str, seed: int, reach: float, run_dir: str, options: list[str]) -> list[Point]:
    """Train until the run is done or an evaluation reaches a return; returns its evaluations."""
    command = [PROGRAM, "--no-ui", "--log-format", "json", "--game", f"gym:{env}", "--seed", str(seed)]
    points, returns, begun = list[Point](), deque[float](maxlen=_EPISODES), time.monotonic()
    with subprocess.Popen([*command, "--run-dir", run_dir, *options], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for event in map(json.loads, run.stdout):
            if event["event"] == "episode":
                returns.append(event["episode_return"])
            elif event["event"] == "evaluation":
                minutes, trained = (time.monotonic() - begun) / 60, statistics.mean(returns) if returns else math.nan
                points.append(Point(env, seed, minutes, event["env_steps"], trained, event["mean_return"]))
                if event["mean_return"] >= reach:
                    run.send_signal(signal.SIGINT)
    if run.returncode != 0 or not points:
        raise SystemExit(f"mario-tui ended with status {run.returncode}, after {len(points)} evaluations")
    return points


def write_csv(points: list[Point], path: Path) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([field.name for field in fields(Point)])
        rows.writerows([round(value, 2) if isinstance(value, float) else value for value in astuple(p)] for p in points)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a run learns of a Gymnasium environment.")
    parser.add_argument("env", metavar="ENV")
    parser.add_argument("--reach", type=float, default=math.inf, metavar="RETURN")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--run-dir")
    arguments, options = parser.parse_known_args()
    table = Table("seed", "minutes", "environment steps", "training return", "evaluation", title=arguments.env)
    points, ends = list[Point](), list[Point]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            points += train(arguments.env, seed, arguments.reach, arguments.run_dir or folder, options)
            ends.append(points[-1])
            if arguments.csv:
                write_csv(points, arguments.csv)
    names = ("minutes", "env_steps", "training_return", "evaluation_return")
    rows = [(str(end.seed), [getattr(end, name) for name in names]) for end in ends]
    rows.append(("median", [statistics.median(column) for column in zip(*(row for _, row in rows), strict=True)]))
    for row, (minutes, steps, trained, evaluated) in rows:
        table.add_row(row, f"{minutes:.1f}", f"{steps:,.0f}", f"{trained:.1f}", f"{evaluated:.1f}")
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    main()
