"""Draws what `bench.environments` wrote: a panel for each environment, a line for each seed.

    python -m bench.curves FILE.csv FILE.svg

Lines are mean returns of the last 100 training episodes, dots greedy evaluations. The dashed line of a MinAtar game is
the DQN of Young and Tian (2019, arXiv:1903.03176) after a million frames, read off their learning curves.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure

PUBLISHED = {"Asterix": 7.0, "Breakout": 9.2, "Freeway": 48.0, "Seaquest": 1.0, "SpaceInvaders": 33.0}
"""Training returns of DQN on MinAtar after a million frames."""


def main(table: Path, picture: Path) -> None:
    runs = defaultdict[str, dict[str, list[dict[str, str]]]](lambda: defaultdict(list))
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            runs[row["env"]][row["seed"]].append(row)
    figure = Figure(figsize=(2.6 * len(runs), 2.6), layout="constrained")
    for axes, (env, seeds) in zip(figure.subplots(1, len(runs), squeeze=False)[0], sorted(runs.items()), strict=True):
        for color, rows in enumerate(seeds.values()):
            steps = [int(row["env_steps"]) / 1e6 for row in rows]
            axes.plot(steps, [float(row["training_return"]) for row in rows], color=f"C{color}")
            axes.plot(steps, [float(row["evaluation_return"]) for row in rows], ".", markersize=3, color=f"C{color}")
        name = env.removeprefix("MinAtar/").rpartition("-v")[0]
        if name in PUBLISHED:
            axes.axhline(PUBLISHED[name], color="black", linestyle="--", linewidth=1)
        axes.set(title=name, xlabel="million frames", ylim=(0, None))
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
