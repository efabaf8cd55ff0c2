"""What a run learns of a Gymnasium environment: complete runs, one seed after the other.

    python -m bench.environments ENV [--reach RETURN] [--zoo] [--seeds S ...] [--eval-every N] [--steps N] [--cores N]
        [--csv FILE] [--run-dir DIR] [OPTION ...]

The best of many evaluations is partly luck. So when one reaches RETURN, its policy is judged on 100 fresh episodes
(`mario-tui eval --fresh`) while the run goes on, and only a mean of RETURN there ends it. A run that ends at its
`--steps` judges its best policy itself. The table has for each seed the minutes and steps of the policy that was judged
last, that mean with its 95 % interval, and the mean return of 100 episodes of training, as papers count it. Minutes
count from the start of the program, without evaluations (of processor time, the seconds that these took are left out:
bind the run to one free core). Unknown options are passed to the run, such as `--preset minatar-paper`. The CSV has all
evaluations of all seeds, and is written anew after each; the columns `fresh_…` are empty where no policy was judged.

With `--zoo`, each seed is followed by a run of Stable-Baselines3's DQN with the settings of RL Baselines3 Zoo
(`bench.zoo`), both for the zoo's number of steps unless `--steps` says another. It is judged alike. The last rows have
the medians over seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.training import PROGRAM
from bench.turns import add_cores, times, use_cores

_EPISODES = 100
"""Training episodes whose returns are averaged (Young and Tian 2019)."""
OURS, ZOO = "mario-tui", "Stable-Baselines3"


@dataclass(frozen=True)
class Point:
    """An evaluation during training."""

    env: str
    seed: int
    minutes: float
    env_steps: int
    training_return: float
    evaluation_return: float
    fresh_return: float | None = None  # of its policy, with both ends of the 95 % interval
    fresh_low: float | None = None
    fresh_high: float | None = None
    learner: str = OURS
    cpu_minutes: float = math.nan  # of all its processes


def train(learner: str, command: list[str], env: str, seed: int, reach: float, run_dir: str) -> list[Point]:
    """Train until the run is done, or until a policy reaches a return on fresh episodes; returns its evaluations."""
    points, returns, begun = dict[int, Point](), deque[float](maxlen=_EPISODES), time.monotonic()
    evaluated_s = 0.0
    judge: subprocess.Popen[str] | None = None
    fresh = [PROGRAM, "eval", "latest", "--run-dir", run_dir, "--fresh", "--json"]
    judges_itself = True

    def judged(found: dict[str, Any], at: int) -> None:
        mean, low, high = found["mean_return"], found["mean_return_low"], found["mean_return_high"]
        if at in points and None not in (mean, low, high):
            points[at] = replace(points[at], fresh_return=mean, fresh_low=low, fresh_high=high)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for event in map(json.loads, run.stdout):
            if event["event"] == "episode":
                returns.append(event["episode_return"])
            elif event["event"] == "final_evaluation":
                judged(event, event["policy_env_steps"])
                judges_itself = event.get("episodes", _EPISODES) >= _EPISODES
            elif event["event"] == "evaluation":
                trained = statistics.mean(returns) if returns else math.nan
                evaluated_s += event.get("seconds", 0.0)
                minutes = event.get("minutes", (time.monotonic() - begun - evaluated_s) / 60)
                cpu_minutes = event.get("cpu_minutes", _cpu_minutes(run.pid) - evaluated_s / 60)
                at = event["env_steps"]
                points[at] = Point(env, seed, minutes, at, trained, event["mean_return"], learner=learner,
                                   cpu_minutes=cpu_minutes)  # fmt: skip
                if learner == OURS and event["best"] and event["mean_return"] >= reach and judge is None:
                    judge = subprocess.Popen(fresh, stdout=subprocess.PIPE, text=True)
            if judge is not None and judge.poll() is not None:
                found = json.loads(judge.communicate()[0])
                judged(found, found["trained_env_steps"])
                judge = None
                if found["mean_return"] >= reach:
                    run.send_signal(signal.SIGINT)
    if judge is not None:
        judge.communicate()  # the run was over before it
    if not judges_itself:  # a tenth of its time was not enough for so many episodes
        found = json.loads(subprocess.run(fresh, stdout=subprocess.PIPE, text=True, check=True).stdout)
        judged(found, found["trained_env_steps"])
    if run.returncode != 0 or not points:
        raise SystemExit(f"{learner} ended with status {run.returncode}, after {len(points)} evaluations")
    return list(points.values())


def _cpu_minutes(pid: int) -> float:
    """Processor time of a program and the processes that it started."""
    program, seconds = psutil.Process(pid), 0.0
    for process in (program, *program.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])  # also of those that have ended
    return seconds / 60


def write_csv(points: list[Point], path: Path) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([field.name for field in fields(Point)])
        rows.writerows([round(value, 2) if isinstance(value, float) else value for value in astuple(p)] for p in points)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a run learns of a Gymnasium environment.")
    parser.add_argument("env", metavar="ENV")
    parser.add_argument("--reach", type=float, default=math.inf, metavar="RETURN")
    parser.add_argument("--zoo", action="store_true", help="also Stable-Baselines3 with the settings of its zoo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--eval-every", type=int, metavar="STEPS")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--run-dir")
    add_cores(parser)
    arguments, options = parser.parse_known_args()
    use_cores(arguments.cores)
    env, reach = arguments.env, arguments.reach
    both = ["--eval-every", str(arguments.eval_every)] if arguments.eval_every else []
    steps, peer = arguments.steps, list[str]()
    if arguments.zoo:
        from bench.zoo import SETTINGS

        steps = steps or SETTINGS[env][0]
        peer = [sys.executable, "-m", "bench.zoo", env, "--reach", str(reach)]
    both += ["--steps", str(steps)] if steps else []
    heads = ("seed", "minutes", "processor minutes", "steps", "fresh episodes", "95 % interval", "training")
    table = Table("", *heads, title=env)
    points, last = list[Point](), dict[str, list[Point]]()
    with tempfile.TemporaryDirectory() as folder:
        run_dir = arguments.run_dir or folder
        ours = [PROGRAM, "--no-ui", "--log-format", "json", "--game", f"gym:{env}", "--run-dir", run_dir, *options]
        for seed in arguments.seeds:
            for learner, command in ({OURS: ours} | ({ZOO: peer} if peer else {})).items():
                found = train(learner, [*command, *both, "--seed", str(seed)], env, seed, reach, run_dir)
                points += found
                if arguments.csv:
                    write_csv(points, arguments.csv)
                shown = next((point for point in reversed(found) if point.fresh_return is not None), found[-1])
                last.setdefault(learner, []).append(shown)
                cells = (f"{shown.minutes:.1f}", f"{shown.cpu_minutes:.2f}", f"{shown.env_steps:,}")
                table.add_row(learner, str(seed), *cells, *_fresh(shown, reach), f"{shown.training_return:.1f}")
    if peer:
        _add_medians(table, last)
    Console(width=118, highlight=False).print(table)


def _add_medians(table: Table, last: dict[str, list[Point]]) -> None:
    """Rows with the medians over seeds of the policies that were judged last, and of both learners' ratio."""
    medians = dict[str, list[float]]()
    for learner, found in last.items():
        minutes, cpu_minutes, steps, fresh = medians[learner] = [
            statistics.median(values)
            for values in zip(*((p.minutes, p.cpu_minutes, p.env_steps, p.fresh_return or math.nan) for p in found),
                              strict=True)
        ]  # fmt: skip
        table.add_row(learner, "median", f"{minutes:.1f}", f"{cpu_minutes:.2f}", f"{steps:,.0f}", f"{fresh:.1f}")
    shares = [times(mine / theirs) for mine, theirs in zip(medians[OURS][:3], medians[ZOO][:3], strict=True)]
    table.add_row("ratio", "", *shares)


def _fresh(point: Point, reach: float) -> tuple[str, str]:
    if point.fresh_return is None:
        return "not judged", ""
    short = "" if point.fresh_return >= reach or math.isinf(reach) else f", not {reach:g}"
    return f"{point.fresh_return:.1f}{short}", f"{point.fresh_low:.1f} to {point.fresh_high:.1f}"


if __name__ == "__main__":
    main()
