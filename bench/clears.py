"""Minutes until World 1-1 is cleared: complete runs with the default options, one seed after the other.

    python -m bench.clears [--seeds S ...] [--minutes M] [--nes-py] [--plain] [--into DIR] [OPTION ...]

Minutes count from the start of the program, including compiling, filling the replay and all evaluations. The last rows
of the table have the medians and the worst. Each run is stopped after its minutes; then its best policy plays 100
greedy episodes that begin with 0 to 30 random no-op frames, like those that chose it, and 100 that begin with 31 to
120, with `mario-tui eval` (with `--nes-py` also the former on nes-py, which takes some more minutes). With `--plain`,
the plain Double-DQN loop of `bench.training` gets the same number of minutes. Unknown options are passed to the run,
such as `--runner apex`; with `--steps 1000000 --minutes 20`, the columns after `95 %` say how steady a good policy is.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.training import PROGRAM, PlainDoubleDQN

RATES = (0.0, 0.5, 0.95)
STEADY = 0.9
"""Clear rate below which an evaluation of a policy that was good counts as a fall."""
JUDGED = {
    "0 to 30 no-ops": ("--emulator", "native", "--noop-max", "30"),
    "31 to 120 no-ops": ("--emulator", "native", "--noop-min", "31", "--noop-max", "120"),
}
ON_NES_PY = {"on nes-py": ("--emulator", "nes-py", "--noop-max", "30")}


@dataclass(frozen=True)
class Evaluated:
    """A greedy evaluation during training."""

    minutes: float  # since the program was started
    env_steps: int
    frames: int
    clears: int
    episodes: int
    mean_return: float
    best: bool


def train(seed: int, minutes: float, folder: Path, options: list[str]) -> list[Evaluated]:
    """Train headless in `folder` for so many minutes, then stop the run cleanly; returns its evaluations."""
    command = [PROGRAM, "--no-ui", "--log-format", "json", "--seed", str(seed), *options]
    found: list[Evaluated] = []
    begun, frames = time.monotonic(), 0
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as run:
        end = threading.Timer(minutes * 60, run.send_signal, [signal.SIGINT])
        end.start()
        assert run.stdout is not None
        for event in map(json.loads, run.stdout):
            if event["event"] == "progress":
                frames = event["frames"]
            elif event["event"] == "evaluation":
                values = {name: event[name] for name in ("env_steps", "clears", "episodes", "mean_return", "best")}
                found.append(Evaluated(minutes=(time.monotonic() - begun) / 60, frames=frames, **values))
                print(f"seed {seed}: {found[-1]}", file=sys.stderr)
        end.cancel()
    if run.returncode != 0:
        raise SystemExit(f"mario-tui ended with status {run.returncode}")
    return found


def judge(folder: Path, conditions: Sequence[str]) -> dict[str, Any]:
    """The report of `mario-tui eval` on the best policy of the run in `folder`."""
    options = ("--run-dir", "checkpoints", "--episodes", "100", "--seed", "1", "--json", *conditions)
    done = subprocess.run([PROGRAM, "eval", "latest", *options], cwd=folder, stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def plain(minutes: float) -> str:
    """A line about what the plain loop has learned after so many minutes."""
    from engine.config.run_config import RunConfig
    from engine.envs.factory import make_lanes
    from engine.evaluation.policy import greedy_act, play_episodes

    program = PlainDoubleDQN()
    rate = program.turn(minutes * 60)
    env = make_lanes(RunConfig(), 31, threads=1, seed=1)
    env.spread_starts()
    played = play_episodes(env, greedy_act(program.network), 31)
    clears, mean = sum(each.success for each in played), sum(each.episode_return for each in played) / 31
    env.close()
    program.close()
    return f"plain loop: {rate:,.0f} environment steps/s, greedy return {mean:,.0f}, clears {clears}/31"


def first_at(found: list[Evaluated], rate: float) -> int | None:
    """Index of the first evaluation that had a clear rate above 0 and of at least `rate`; None if there is none."""
    return next((at for at, each in enumerate(found) if each.clears and each.clears / each.episodes >= rate), None)


def describe_first(found: list[Evaluated], rate: float) -> str:
    """When an evaluation first had a clear rate above 0 and of at least `rate`."""
    at = first_at(found, rate)
    if at is None:
        return "not reached"
    each = found[at]
    return f"{each.minutes:.1f} min, {each.env_steps / 1e3:,.0f}k steps, {each.frames / 1e6:.2f}M frames"


def after_good(found: list[Evaluated]) -> list[Evaluated]:
    """The evaluations after the first of at least 95 %."""
    at = first_at(found, RATES[-1])
    return [] if at is None else found[at + 1 :]


def lowest_after(found: list[Evaluated]) -> str:
    lowest = min(after_good(found), key=lambda each: each.clears, default=None)
    return f"{lowest.clears} of {lowest.episodes}" if lowest else "none"


def falls(found: list[Evaluated]) -> str:
    """How many of these evaluations fell below `STEADY`."""
    return f"{sum(each.clears < STEADY * each.episodes for each in found)} of {len(found)}"


def over_seeds(curves: Sequence[list[Evaluated]], rate: float, summary: Callable[[list[float]], float]) -> str:
    """The median or maximum over the runs of the minutes and steps until `rate`; a run that did not reach it counts as
    infinite."""
    runs = [(found, first_at(found, rate)) for found in curves]
    minutes, steps = (
        summary([math.inf if at is None else getattr(found[at], name) for found, at in runs])
        for name in ("minutes", "env_steps")
    )
    return "not reached" if math.isinf(minutes) else f"{minutes:.1f} min, {steps / 1e3:,.0f}k steps"


def draw(curves: dict[int, list[Evaluated]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for seed, found in curves.items():
        axes.plot([e.minutes for e in found], [100 * e.clears / e.episodes for e in found], label=f"seed {seed}")
    axes.set(xlabel="minutes since the start, 2 CPU cores", ylabel="greedy clears of 1-1, %", ylim=(-2, 102))
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def write_csv(curves: dict[int, list[Evaluated]], path: Path) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("seed", "minutes", "env_steps", "frames", "clears", "episodes", "mean_return"))
        for seed, found in curves.items():
            for e in found:
                minutes, mean = round(e.minutes, 2), round(e.mean_return, 1)
                rows.writerow((seed, minutes, e.env_steps, e.frames, e.clears, e.episodes, mean))


def main() -> None:
    parser = argparse.ArgumentParser(description="Minutes until World 1-1 is cleared.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=15.0, help="per run, including everything")
    parser.add_argument("--nes-py", action="store_true", help="evaluate the policies on nes-py as well")
    parser.add_argument("--plain", action="store_true", help="train the plain loop for the same time")
    parser.add_argument("--into", type=Path, help="write clears.csv and clears.svg to this folder, and keep the runs")
    arguments, options = parser.parse_known_args()
    if arguments.into and importlib.util.find_spec("matplotlib") is None:
        parser.error("--into draws with matplotlib; to install it: pip install -e '.[bench]'")
    console = Console(width=160, highlight=False)
    marks = ("first clear", "50 %", "95 %", "lowest after that", "below 90 %")
    judged = JUDGED | (ON_NES_PY if arguments.nes_py else {})
    table = Table("seed", *marks, *judged, title=" ".join(options) or None)
    curves: dict[int, list[Evaluated]] = {}
    with tempfile.TemporaryDirectory() as name:
        for seed in arguments.seeds:
            folder = (arguments.into or Path(name)) / f"seed-{seed}"
            folder.mkdir(parents=True)
            found = curves[seed] = train(seed, arguments.minutes, folder, options)
            clears = [judge(folder, conditions)["clears"] for conditions in judged.values()]
            firsts = [describe_first(found, rate) for rate in RATES]
            table.add_row(str(seed), *firsts, lowest_after(found), falls(after_good(found)), *map(str, clears))
            if arguments.into:
                write_csv(curves, arguments.into / "clears.csv")
                draw(curves, arguments.into / "clears.svg")
    table.add_section()
    runs = list(curves.values())
    together = falls([each for found in runs for each in after_good(found)])
    table.add_row("median", *(over_seeds(runs, rate, statistics.median) for rate in RATES))
    table.add_row("worst", *(over_seeds(runs, rate, max) for rate in RATES), "", together)
    console.print(table)
    if arguments.plain:
        console.print(plain(arguments.minutes))


if __name__ == "__main__":
    main()
