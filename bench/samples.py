"""Environment steps that a design choice saves: compares runs with two choices over several seeds.

    python -m bench.samples EXPERIMENT ... [--seeds S ...] [--cores N] [--steps N] [--into DIR]

Each run has its own core, so there are as many parallel runs as cores; steps are compared, not minutes. *Reached* is
the first greedy evaluation at or above the level: four fifths of the final score of the second choice (the median over
its seeds of the mean of the last four evaluations). A run that does not reach the level counts with all its steps.
Intervals: 95 %, Welch's over the seeds of both choices; of the saving, for the logarithm of the ratio of the means.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.training import PROGRAM
from engine.runtime.students_t import half_width_of_sum

LEVEL, LAST = 0.8, 4

Score = tuple[int, float]
"""Environment steps and the score of a greedy evaluation: clear rate for Mario, otherwise fruits or lines."""


@dataclass(frozen=True)
class Experiment:
    """Two choices with their options, and the options that both have in common."""

    steps: int
    options: tuple[str, ...]
    one: tuple[str, tuple[str, ...]]
    other: tuple[str, tuple[str, ...]]


EARLIER = (
    "--learning-rate-schedule", "constant", "--buffer-size", "400000",
    "--batch-size", "128", "--learning-rate", "5e-4", "--tau", "0.002", "--policy-tau", "0.0007",
    "--advantage-learning", "0",
)  # fmt: skip
"""The defaults of Mario when the results were stored."""
PRIORITIZED = ("prioritized", ()), ("uniform", ("--no-prioritized-replay",))
CURRICULUM = ("curriculum", ("--curriculum",)), ("none", ())
# Tetris before afterstates: the agent of the stored results
TETRIS = (
    "--game", "tetris", "--board", "7x14", "--no-afterstates", "--reward", "lines", "--max-pieces", "400",
    "--parallel-envs", "64",
    "--gamma", "0.97", "--n-step", "3", "--replay-ratio", "4", "--batch-size", "256", "--learning-rate", "5e-4",
    "--sync-every", "250", "--tau", "1", "--double-q", "--prioritized-replay", "--epsilon", "0.4",
    "--epsilon-steps", "100000", "--burnin", "5000", "--eval-every", "20000", "--eval-episodes", "100",
    "--learning-rate-schedule", "constant", "--buffer-size", "400000", "--policy-tau", "0",
)  # fmt: skip
EXPERIMENTS = {
    "prioritized-mario": Experiment(
        400_000, ("--game", "mario", "--eval-every", "25000", "--double-q", *EARLIER), *PRIORITIZED
    ),
    "prioritized-tetris": Experiment(300_000, TETRIS, *PRIORITIZED),
    "curriculum-tetris": Experiment(300_000, TETRIS, *CURRICULUM),
    "curriculum-mario": Experiment(
        400_000, ("--game", "mario", "--stage", "1-1,1-4", "--eval-every", "25000", *EARLIER), *CURRICULUM
    ),
}


def play(name: str, choice: str, seed: int, steps: int) -> list[Score]:
    """Run one seed of a choice; returns its greedy evaluations."""
    experiment = EXPERIMENTS[name]
    options = (*experiment.options, *dict((experiment.one, experiment.other))[choice])
    command = [PROGRAM, "--no-ui", "--log-format", "json", "--seed", str(seed), "--steps", str(steps), *options]
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run,
    ):
        assert run.stdout is not None and run.stderr is not None
        for event in map(json.loads, run.stdout):
            if event["event"] == "evaluation":
                score = event["clears"] / event["episodes"] if "mario" in options else event["mean_score"]
                found.append((event["env_steps"], score))
        complaint = run.stderr.read()
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {run.returncode}: {complaint}")
    print(f"{name}, {choice}, seed {seed}: " + " ".join(f"{score:.2f}" for _, score in found), file=sys.stderr)
    return found


def take_core(cores: multiprocessing.Queue[int]) -> None:
    """Pin a process of the pool, and all that it starts, to one core."""
    os.sched_setaffinity(0, {cores.get()})


def reached(found: list[Score], level: float) -> int:
    """Environment steps until an evaluation reached `level`; all steps if none did."""
    return next((steps for steps, score in found if score >= level), found[-1][0])


def difference(ones: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of the difference of the two means."""
    half = half_width_of_sum([(_variance(values), len(values) - 1) for values in (ones, others)])
    middle = float(ones.mean() - others.mean())
    return middle - half, middle + half


def saving(ones: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of `1 - a / b` of the two means."""
    half = half_width_of_sum([(_variance(values / values.mean()), len(values) - 1) for values in (ones, others)])
    ratio = float(ones.mean() / others.mean())
    return 1 - ratio * math.exp(half), 1 - ratio * math.exp(-half)


def _variance(values: NDArray[np.float64]) -> float:
    """Of the mean."""
    return float(values.var(ddof=1)) / len(values)


def compare(console: Console, name: str, found: dict[str, list[list[Score]]]) -> None:
    """Print the results of an experiment."""
    one, other = found
    level = LEVEL * statistics.median(statistics.mean(score for _, score in run[-LAST:]) for run in found[other])
    table = Table("", f"steps to {level:.2f}", "mean score", f"mean of the last {LAST}", title=name)
    figures = {}
    for choice, runs in found.items():
        steps = np.array([reached(run, level) for run in runs], np.float64)
        scores = np.array([statistics.mean(score for _, score in run) for run in runs])
        ends = np.array([statistics.mean(score for _, score in run[-LAST:]) for run in runs])
        figures[choice] = steps, scores
        missed = sum(max(score for _, score in run) < level for run in runs)
        note = f" ({missed} never)" if missed else ""
        table.add_row(choice, f"{steps.mean():,.0f}{note}", f"{scores.mean():.2f}", f"{ends.mean():.2f}")
    console.print(table)
    saved = 1 - figures[one][0].mean() / figures[other][0].mean()
    low, high = saving(figures[one][0], figures[other][0])
    console.print(f"{one} saves {saved:.0%} of the steps (95 % interval {low:.0%} to {high:.0%})")
    gained = figures[one][1].mean() - figures[other][1].mean()
    low, high = difference(figures[one][1], figures[other][1])
    console.print(f"its mean score is higher by {gained:.2f} (95 % interval {low:.2f} to {high:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description="Environment steps that a choice saves.")
    parser.add_argument(
        "experiments", nargs="+", choices=EXPERIMENTS, metavar="EXPERIMENT", help=", ".join(EXPERIMENTS)
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="number of parallel runs")
    parser.add_argument("--steps", type=int, help="environment steps per run; default: the experiment's")
    parser.add_argument("--into", type=Path, help="write EXPERIMENT.csv to this folder")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in sorted(os.sched_getaffinity(0))[: arguments.cores]:
        cores.put(core)
    console = Console(width=120, highlight=False)
    with ProcessPoolExecutor(arguments.cores, context, take_core, (cores,)) as pool:
        for name in arguments.experiments:
            experiment = EXPERIMENTS[name]
            steps = arguments.steps or experiment.steps
            choices = [choice for choice, _ in (experiment.one, experiment.other)]
            runs = {(c, s): pool.submit(play, name, c, s, steps) for s in arguments.seeds for c in choices}
            found = {choice: [runs[choice, seed].result() for seed in arguments.seeds] for choice in choices}
            compare(console, name, found)
            if arguments.into:
                with (arguments.into / f"{name}.csv").open("w", newline="") as file:
                    rows = csv.writer(file, lineterminator="\n")
                    rows.writerow(("choice", "seed", "env_steps", "score"))
                    for (choice, seed), run in runs.items():
                        rows.writerows((choice, seed, steps, round(score, 4)) for steps, score in run.result())


if __name__ == "__main__":
    main()
