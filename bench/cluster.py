"""What an Ape-X actor costs on this machine and through Ray: environment steps per second of processor time.

    python -m bench.cluster [--seconds S] [--rounds R] [--game NAME] [--json FILE]

Runs with local actors and with the actors of a local Ray cluster take turns. Start-up and filling the replay are not
counted. "actors" divides the environment steps by the processor time of the actors' processes, "run" by that of all the
run's processes: actors, learner and Ray. Bytes are those of the chunks that an actor sends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from engine.config.game import games
from engine.config.reading import make_config
from engine.host.client import HostProcess
from engine.protocol.commands import Stop
from engine.protocol.messages import Members, Progress
from engine.runs.registry import create_run
from engine.runs.run import Run
from engine.runtime.threads import processor_name
from tests.support.program import members_of, next_event, runner_of

FORMS = {"local": "none", "through Ray": "local"}


@dataclass
class Turn:
    """Measurements of one run. Rates are per second."""

    steps_per_actor_cpu_s: float
    steps_per_run_cpu_s: float
    env_steps: float
    samples: float
    wire_bytes: float
    lag: float
    """Updates by which the actors' weights were out of date, mean over reports."""


def measure(seconds: float, game: str, actors: int, ray: str) -> Turn:
    """Train for `seconds` after the burn-in."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"game": game, "runner": "apex", "num_actors": actors, "ray": ray, "burnin": 2000, "eval_every": 0,
                   "save_every": 10**9, "steps": 10**9, "run_dir": folder}  # fmt: skip
        host = HostProcess(create_run(make_config(options)))
        with host.connect() as client:
            next_event(client, Progress, lambda progress: progress.updates > 20)
            before, since = cpu_seconds(host.run), time.monotonic()
            first = next_event(client, Members)
            found = first
            lags, wire, samples = [], [], []
            while time.monotonic() - since < seconds:
                found = next_event(client, Members)
                lags.append(statistics.mean(member.lag for member in found.members))
                wire.append(found.wire_bytes_per_s)
                samples.append(found.samples_per_s)
            spent = time.monotonic() - since
            after = cpu_seconds(host.run)
            client.send(Stop())
        host.process.wait()
    steps = sum(member.env_steps for member in found.members) - sum(member.env_steps for member in first.members)
    actor_cpu, run_cpu = (after[part] - before[part] for part in ("actors", "run"))
    return Turn(
        steps / actor_cpu, steps / run_cpu, steps / spent, statistics.mean(samples), statistics.mean(wire),
        statistics.mean(lags),
    )  # fmt: skip


def cpu_seconds(run: Run) -> dict[str, float]:
    """Processor time of the run's processes: its actors, and all of them but the host."""
    found = {"actors": 0.0, "run": 0.0}
    runner = runner_of(run)
    members = {member.pid for member in members_of(run)}
    for process in [runner, *runner.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            spent = times.user + times.system
            found["run"] += spent
            if process.pid in members or process.name().startswith("ray::_NodeActor"):
                found["actors"] += spent
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of an actor, on this machine and through Ray.")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a turn, without start-up")
    parser.add_argument("--rounds", type=int, default=3, help="turns per form")
    parser.add_argument("--actors", type=int, default=1, help="actors of the run")
    parser.add_argument("--game", choices=games(), default="mario")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    turns: dict[str, list[Turn]] = {form: [] for form in FORMS}
    for _ in range(arguments.rounds):
        for form, ray in FORMS.items():
            turns[form].append(measure(arguments.seconds, arguments.game, arguments.actors, ray))
    table = Table("actors", "steps per actor CPU s", "steps per run CPU s", "env steps/s", "samples/s", "kB/s", "lag",
                  title=f"Ape-X on {arguments.game}, {arguments.actors} actor(s); {processor_name()}")  # fmt: skip
    medians: dict[str, dict[str, Any]] = {}
    for form, measured in turns.items():
        medians[form] = {name: statistics.median(vars(turn)[name] for turn in measured) for name in vars(measured[0])}
        row = medians[form]
        table.add_row(
            form, f"{row['steps_per_actor_cpu_s']:,.0f}", f"{row['steps_per_run_cpu_s']:,.0f}",
            f"{row['env_steps']:,.0f}", f"{row['samples']:,.0f}", f"{row['wire_bytes'] / 1000:,.0f}",
            f"{row['lag']:,.0f}",
        )  # fmt: skip
    console = Console(width=120, highlight=False)
    console.print(table)
    local, remote = medians.values()
    for name, part in (("actors", "steps_per_actor_cpu_s"), ("run", "steps_per_run_cpu_s")):
        each = [turn[part] / other[part] for turn, other in _pairs(turns)]
        console.print(f"through Ray, times local ({name}): {remote[part] / local[part]:.2f}; "
                      f"by round: {' '.join(f'{ratio:.2f}' for ratio in each)}")  # fmt: skip
    console.print(f"load average of the last 5 minutes: {os.getloadavg()[1]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({form: [vars(t) for t in found] for form, found in turns.items()}) + "\n")


def _pairs(turns: dict[str, list[Turn]]) -> list[tuple[dict[str, float], dict[str, float]]]:
    local, remote = turns.values()
    return [(vars(theirs), vars(ours)) for ours, theirs in zip(local, remote, strict=True)]


if __name__ == "__main__":
    main()
