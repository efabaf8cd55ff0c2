"""Environment steps per second of batched Snake and Tetris with our and other packages.

    python -m bench.games [--seconds S] [--rounds R] [--threads T] [--json FILE]

All contestants play random actions on the boards of Jumanji's Snake-v1 and Tetris-v0 (12x12, 10x10) and return
observation, reward, end and legal actions, with automatic resets; actions are drawn in advance. Rates are in wall time.
The contestants take turns, so that slow phases of the machine affect all of them; the table shows medians over the
rounds. Peers that are not installed get a row that says so. To install all of them:

    .venv/bin/pip install -c constraints.txt -e '.[bench]'
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.turns import Contestant, cores, take_turns
from engine.games.snake.rules import SnakeLanes
from engine.games.tetris.rules import TetrisLanes

GAMES = ("Snake-v1", "Tetris-v0")
BATCHES = (64, 256, 4096)
DRAWN = 64  # number of batches of actions
OURS, TENSORS, SMALL, ENVPOOL, JUMANJI = "ours", "ours, in tensors", "ours, 14x7", "EnvPool", "Jumanji, vmap and jit"
NEEDED = {OURS: "torch", TENSORS: "torch", SMALL: "torch", ENVPOOL: "envpool", JUMANJI: "jumanji"}
Step = Callable[[], Any]
_JUMANJI_TETRIS: dict[str, Any] = {"height": 10, "width": 10, "reward": "jumanji"}


@dataclass(kw_only=True)
class BoardContestant(Contestant):
    """A row of the table. `step` steps all games; rates are environment steps per second."""

    game: str


def drawn_actions(game: str, games: int, width: int = 10) -> np.ndarray:
    """Random actions, int64 [DRAWN, games]."""
    return np.random.default_rng(0).integers(0, 4 if game == "Snake-v1" else 4 * width, (DRAWN, games))


def turns_through(actions: Any, play: Callable[[Any], Any]) -> Step:
    at = 0

    def step() -> Any:
        nonlocal at
        at = (at + 1) % DRAWN
        return play(actions[at])

    return step


def ours(game: str, games: int, threads: int, **options: Any) -> Step:
    lanes: SnakeLanes | TetrisLanes
    lanes = SnakeLanes(games, **options) if game == "Snake-v1" else TetrisLanes(games, **options)
    width = lanes.frame_shape[2]
    return turns_through(torch.from_numpy(drawn_actions(game, games, width)), lanes.step)


def in_tensors(game: str, games: int, threads: int, **options: Any) -> Step:
    """Our games as a GPU steps them."""
    return ours(game, games, threads, compiled=False, **options)


def envpool(game: str, games: int, threads: int) -> Step:
    import envpool

    env = envpool.make_gymnasium(game, num_envs=games, batch_size=games, num_threads=threads)
    env.reset()
    actions = drawn_actions(game, games).astype(np.int32)
    if game == "Tetris-v0":
        actions = np.stack(np.divmod(actions, 10), 2).astype(np.int32)
    return turns_through(actions, env.step)


def jumanji(game: str, games: int, threads: int) -> Step:
    import jax
    from jumanji.environments import Snake, Tetris
    from jumanji.wrappers import AutoResetWrapper

    env: Any = AutoResetWrapper(Snake() if game == "Snake-v1" else Tetris())
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), games))
    advance = jax.jit(jax.vmap(env.step))
    actions = drawn_actions(game, games)
    if game == "Tetris-v0":
        actions = np.stack(np.divmod(actions, 10), 2)

    def play(chosen: Any) -> None:
        nonlocal state
        state, found = advance(state, chosen)
        jax.block_until_ready((state, found))

    return turns_through(actions, play)


def line_up(threads: int) -> list[BoardContestant]:
    """All contestants, ready to step."""
    rows = []
    makers = {OURS: ours, TENSORS: in_tensors, ENVPOOL: envpool, JUMANJI: jumanji}
    for game in GAMES:
        for games in BATCHES:
            for kind, make in makers.items():
                options = _JUMANJI_TETRIS if make in (ours, in_tensors) and game == "Tetris-v0" else {}
                there = find_spec(NEEDED[kind]) is not None
                step = make(game, games, threads, **options) if there else None
                rows.append(BoardContestant(kind, step, count=games, game=game))
            if game == "Tetris-v0":
                rows.append(BoardContestant(SMALL, ours(game, games, threads), count=games, game=game))
    return rows


def report(rows: list[BoardContestant]) -> list[dict[str, Any]]:
    """All results, for the JSON file."""
    medians = {(row.game, row.name, row.count): row.median for row in rows}

    def ratio(row: BoardContestant, kind: str) -> float | None:
        base = medians[row.game, kind, row.count]
        return row.median / base if row.median and base and row.name != SMALL else None

    return [
        {
            "game": row.game,
            "what": row.name,
            "games": row.count,
            "env_steps_per_s": row.rates,
            "median": row.median or None,
            "missing": None if row.step else NEEDED[row.name],
            "to_envpool": ratio(row, ENVPOOL),
            "to_jumanji": ratio(row, JUMANJI),
        }
        for row in rows
    ]


def table(numbers: list[dict[str, Any]], threads: int) -> Table:
    found = Table(
        title=f"Batched games: environment steps per second, medians; {threads} threads",
        caption="ratios: with as many games; 14x7 is another board",
    )
    found.add_column("game")
    found.add_column("what", no_wrap=True)
    for heading in ("games", "env\nsteps/s", "min..max", "x EnvPool", "x Jumanji"):
        found.add_column(heading, justify="right", no_wrap=True)
    for row in numbers:
        head = (row["game"], row["what"], str(row["games"]))
        if row["missing"]:
            found.add_row(*head, "–", f"{row['missing']} is not installed")
            continue
        rates = row["env_steps_per_s"]
        ratios = (f"{value:.2f}x" if value else "–" for value in (row["to_envpool"], row["to_jumanji"]))
        found.add_row(*head, f"{row['median']:,.0f}", f"{min(rates):,.0f}..{max(rates):,.0f}", *ratios)
    return found


def main() -> None:
    here = cores()
    parser = argparse.ArgumentParser(description="Environment steps per second of batched Snake and Tetris.")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--threads", type=int, default=here, help="threads of EnvPool; Jumanji chooses its own")
    parser.add_argument("--torch-threads", type=int, default=1, help="our threads; more slow down small batches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.torch_threads)
    rows = line_up(arguments.threads)
    take_turns(rows, arguments.rounds, arguments.seconds)
    numbers = report(rows)
    console = Console(width=110, highlight=False)
    console.print(table(numbers, arguments.threads))
    console.print(f"{here} cores; ours with {arguments.torch_threads} torch threads; load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
