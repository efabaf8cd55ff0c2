"""Draws what `bench.environments` wrote: a panel for each environment, a line for each run.

    python -m bench.curves FILE.csv FILE.svg

Lines are mean returns of the last 100 training episodes, dots greedy evaluations. The dashed line of a MinAtar game is
the DQN of Young and Tian (2019, arXiv:1903.03176) after a million frames, read off their learning curves. Columns
before the minutes, such as the seed, tell runs apart.
"""

from __future__ import annotations

import csv
import sys
from itertools import groupby, takewhile
from pathlib import Path

from matplotlib.figure import Figure

PUBLISHED = {"Asterix": 7.0, "Breakout": 9.2, "Freeway": 48.0, "Seaquest": 1.0, "SpaceInvaders": 33.0}
"""Training returns of DQN on MinAtar after a million frames."""


def main(table: Path, picture: Path) -> None:
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(takewhile(lambda name: name != "minutes", rows[0]))
    runs = [(key, list(found)) for key, found in groupby(rows, key=lambda row: [row[name] for name in names])]
    envs = list(dict.fromkeys(env for (env, *_), _ in runs))
    settings = list(dict.fromkeys(tuple(key[1:]) for key, _ in runs))
    figure, lines = Figure(figsize=(2.6 * len(envs), 3.1), layout="constrained"), {}
    for env, axes in zip(envs, figure.subplots(1, len(envs), squeeze=False)[0], strict=True):
        for (_, *setting), found in (run for run in runs if run[0][0] == env):
            color = f"C{settings.index(tuple(setting))}"
            label = ", ".join(f"{name} {value}" for name, value in zip(names[1:], setting, strict=True))
            steps = [int(row["env_steps"]) / 1e6 for row in found]
            (lines[label],) = axes.plot(steps, [float(row["training_return"]) for row in found], color=color)
            axes.plot(steps, [float(row["evaluation_return"]) for row in found], ".", markersize=3, color=color)
        name = env.removeprefix("MinAtar/").rpartition("-v")[0]
        if name in PUBLISHED:
            axes.axhline(PUBLISHED[name], color="black", linestyle="--", linewidth=1)
        axes.set(title=name, xlabel="million frames", ylim=(0, None))
    figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=3, fontsize=7)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
