"""Learning Snake and Tetris with ours and other packages: speed, memory, and minutes to a score.

    python -m bench.field [--game G] [--board WxH] [--minutes M] [--mark SCORE] [--cores N] [--learners L ...]
        [--seed S] [--into DIR]

All learners get the same minutes on the same cores, one after the other; see `bench.learners` for their options. Their
minutes count from the first step, without the scoring; those of ours from the start of the program, with its
evaluations. Memory is the largest proportional set size (Linux) of all processes of a learner when a score was printed.
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.judge import PIECES
from bench.learners import LEARNERS, NEEDED
from bench.training import PROGRAM
from bench.turns import add_cores, use_cores

OURS = "mario-tui"
DEFAULTS = {"snake": ("8x8", 20.0), "tetris": ("10x20", 20.0)}
"""The board and the mark of a game."""


@dataclass(frozen=True)
class Score:
    minutes: float
    env_steps: int
    score: float
    megabytes: float


def scores_of(learner: str, game: str, board: str, minutes: float, seed: int, folder: Path) -> Iterator[Score]:
    """Let a program learn in `folder` for so many minutes."""
    command = [sys.executable, "-m", "bench.learners", learner, game, board, str(minutes), str(seed)]
    if learner == OURS:
        command = [PROGRAM, "--no-ui", "--log-format", "json", "--game", game, "--board", board, "--seed", str(seed)]
        command += ["--eval-every", "50000", "--run-dir", str(folder)]
        command += ["--max-pieces", str(PIECES)] if game == "tetris" else []
    begun, stopped = time.monotonic(), False
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as run,
    ):
        assert run.stdout is not None
        for said in map(json.loads, run.stdout):
            spent = (time.monotonic() - begun) / 60
            if learner != OURS:
                yield Score(said["minutes"], said["env_steps"], said["score"], megabytes(run.pid))
            elif said["event"] == "evaluation":
                yield Score(spent, said["env_steps"], said["mean_score"], megabytes(run.pid))
            if learner == OURS and spent >= minutes and not stopped:
                run.send_signal(signal.SIGINT)
                stopped = True
    if run.returncode != 0:
        complaint = (folder / "stderr").read_text()[-2000:]
        raise SystemExit(f"{' '.join(command)}: status {run.returncode}\n{complaint}")


def megabytes(pid: int) -> float:
    """Memory of a process and those that it started. Pages that they share count once."""
    program = psutil.Process(pid)
    total = 0
    for process in (program, *program.children(recursive=True)):
        try:
            memory: Any = process.memory_full_info()
        except psutil.NoSuchProcess:
            continue
        total += getattr(memory, "pss", memory.rss)
    return total / 1e6


def row(learner: str, found: list[Score], mark: float) -> tuple[str, ...]:
    last = found[-1]
    reached = next(
        (f"{each.minutes:.1f} min, {each.env_steps / 1e3:,.0f}k" for each in found if each.score >= mark), "–"
    )
    rate = last.env_steps / (60 * last.minutes)
    best = max(each.score for each in found)
    most = max(each.megabytes for each in found)
    return learner, f"{rate:,.0f}", f"{most:,.0f}", reached, f"{last.score:.1f}", f"{best:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Learning Snake and Tetris with ours and other packages.")
    parser.add_argument("--game", choices=DEFAULTS, default="snake")
    parser.add_argument("--board", metavar="WxH", help="default: 8x8 for Snake, 10x20 for Tetris")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--mark", type=float, help="score of which the minutes are told (default: 20)")
    add_cores(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learners", nargs="+", choices=(OURS, *LEARNERS), default=[OURS, *LEARNERS])
    parser.add_argument("--into", type=Path, help="write all scores to GAME-BOARD.csv in this folder")
    arguments = parser.parse_args()
    game, (board, mark) = arguments.game, DEFAULTS[arguments.game]
    board, mark = arguments.board or board, arguments.mark or mark
    cores = use_cores(arguments.cores)
    table = Table(
        "learner", "environment steps/s", "MB", f"score {mark:g}", "last score", "best",
        title=f"{game} {board}, {arguments.minutes:g} minutes, {cores} cores",
    )  # fmt: skip
    curves: dict[str, list[Score]] = {}
    for learner in arguments.learners:
        if learner != OURS and find_spec(NEEDED[learner]) is None:
            table.add_row(learner, "not installed: pip install -e '.[bench]'")
            continue
        with tempfile.TemporaryDirectory() as name:
            found = curves[learner] = []
            for score in scores_of(learner, game, board, arguments.minutes, arguments.seed, Path(name)):
                print(learner, score, file=sys.stderr)
                found.append(score)
        table.add_row(*row(learner, found, mark) if found else (learner, "no score"))
    Console(width=120, highlight=False).print(table)
    if arguments.into:
        with (arguments.into / f"{game}-{board}.csv").open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(("learner", "minutes", "env_steps", "score", "megabytes"))
            for learner, found in curves.items():
                rows.writerows((learner, round(s.minutes, 2), s.env_steps, s.score, round(s.megabytes)) for s in found)


if __name__ == "__main__":
    main()
