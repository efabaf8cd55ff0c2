"""Prioritized batches per second and bytes per transition of our and other replay packages.

    python -m bench.replay [--seconds S] [--rounds R] [--capacity N] [--pictures N] [--json FILE]

Each step draws a batch by priority with importance weights, gathers its transitions, and sets new priorities: once with
observations of one pixel, which measures the tree, and once with stacks of four 84x84 frames. Replays are full and
contain one-step transitions. Ours has 32 lanes; it never draws entries that the border of an episode or the write head
makes invalid and skips priorities of overwritten entries, which the others do not check here. Peers use their best
storage: cpprb stores frames once (`stack_compress`) or whole stacks (four times the memory), tianshou frames once
(`stack_num`). Everything runs on one thread. Peers that are not installed get a row that says so. To install all:

    pip install -e '.[bench]'
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.turns import Contestant, machine, machine_line, not_installed, take_turns, times
from engine.buffers import Batch, FrameStorage, PrioritizedSampler
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import ReplayShape

OURS, CPPRB, TIANSHOU, SB3 = "ours", "cpprb 11", "tianshou 2", "Stable-Baselines3"
NEEDED = {
    CPPRB: {"cpprb": "'cpprb==11.*'"},
    TIANSHOU: {"tianshou": "'tianshou==2.*'"},
    SB3: {"stable_baselines3": "'stable-baselines3>=2.7,<3'"},
}
LANES, STACK, ACTIONS = 32, 4, 5
ALPHA, BETA = 0.6, 0.4
BATCHES = (32, 256, 512, 4096)
PIXEL, PICTURE = (1, 1), (84, 84)
CHUNK = 256  # transitions added at once

Draw = Callable[[int], Any]
"""Draws a batch of this size and sets its priorities."""


def make_ours(capacity: int, frame: tuple[int, int], stack: int) -> Draw:
    storage = FrameStorage(ReplayShape(LANES, capacity // LANES, frame, stack=stack, n_step=1), gamma=0.99)
    sampler = PrioritizedSampler(storage, alpha=ALPHA, beta=BETA, beta_annealing=0.0)
    random = np.random.default_rng(0)
    none = np.zeros(LANES, np.bool_)
    for frames in (random.integers(0, 256, (LANES, *frame), np.uint8) for _ in range(capacity // LANES)):
        storage.append(
            PlayedStep(frames, random.integers(0, ACTIONS, LANES), np.ones(LANES, np.float32), none, none, frames)
        )
        sampler.on_append()
    used: dict[int, Batch] = {}  # a batch of each size, whose memory is reused as in training

    def draw(size: int) -> None:
        sample = sampler.sample(size, random)
        used[size] = storage.gather(sample.lanes, sample.entries, into=used.get(size))
        sampler.update(sample, errors(random, size))

    return draw


def make_cpprb(capacity: int, frame: tuple[int, int], stack: int, compress: bool) -> Draw:
    from cpprb import PrioritizedReplayBuffer

    axis = -1 if compress else 1  # the axis of the stack in a batch: cpprb compresses the last one
    shape = (*frame, stack) if compress else (stack, *frame)
    columns = {
        "obs": {"shape": shape, "dtype": np.uint8},
        "act": {"dtype": np.int64},
        "rew": {},
        "done": {},
    }
    options = {"stack_compress": "obs"} if compress else {}
    replay = PrioritizedReplayBuffer(capacity, columns, alpha=ALPHA, next_of="obs", **options)
    random = np.random.default_rng(0)
    for _ in range(capacity // CHUNK):
        frames = random.integers(0, 256, (CHUNK + stack, *frame), np.uint8)
        stacks = np.moveaxis(sliding_window_view(frames, stack, axis=0), -1, axis)
        replay.add(
            obs=stacks[:-1],
            next_obs=stacks[1:],
            act=random.integers(0, ACTIONS, CHUNK),
            rew=np.ones(CHUNK),
            done=np.zeros(CHUNK),
        )

    def draw(size: int) -> None:
        batch = replay.sample(size, beta=BETA)
        replay.update_priorities(batch["indexes"], errors(random, size))

    return draw


def make_tianshou(capacity: int, frame: tuple[int, int], stack: int) -> Draw:
    from tianshou.data import PrioritizedReplayBuffer, ReplayBuffer

    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (capacity, *frame), np.uint8)
    no = np.zeros(capacity, np.bool_)
    actions, rewards = random.integers(0, ACTIONS, capacity), np.ones(capacity)
    filled: Any = ReplayBuffer.from_data(frames, actions, rewards, no, no, no, np.zeros(capacity, np.uint8))
    replay = PrioritizedReplayBuffer(
        capacity, alpha=ALPHA, beta=BETA, stack_num=stack, ignore_obs_next=True, save_only_last_obs=stack > 1
    )
    replay.update(filled)
    np.random.seed(0)  # noqa: NPY002  # it draws with NumPy's global state

    def draw(size: int) -> None:
        _, indices = replay.sample(size)
        replay.update_weight(indices, errors(random, size))

    return draw


def errors(random: np.random.Generator, size: int) -> NDArray[np.float32]:
    """Absolute TD errors, most of them small."""
    return random.standard_exponential(size, np.float32)


def line_up(capacity: int, frame: tuple[int, int], stack: int) -> dict[str, tuple[str, Draw | None]]:
    """{row: (missing packages, draw function)}."""
    pictures = frame == PICTURE
    makers: dict[str, tuple[str, Callable[..., Draw]]] = {
        OURS: (OURS, make_ours),
        f"{CPPRB}, frames once" if pictures else CPPRB: (CPPRB, partial(make_cpprb, compress=pictures)),
    }
    if pictures:
        makers[f"{CPPRB}, whole stacks"] = (CPPRB, partial(make_cpprb, compress=False))
    makers[TIANSHOU] = (TIANSHOU, make_tianshou)
    rows: dict[str, tuple[str, Draw | None]] = {}
    for row, (package, make) in makers.items():
        missing = not_installed(NEEDED.get(package, {}))
        rows[row] = (missing, None if missing else make(capacity, frame, stack))
    return rows


def measure(title: str, capacity: int, frame: tuple[int, int], stack: int, rounds: int, seconds: float) -> Any:
    """Measure all contestants with all batch sizes."""
    rows = line_up(capacity, frame, stack)
    found, everybody = [], list[Contestant]()
    for size in BATCHES:
        contestants = [
            Contestant(name, partial(draw, size) if draw else None, missing) for name, (missing, draw) in rows.items()
        ]
        take_turns(contestants, rounds, seconds)
        ours, *peers = contestants
        best, cpu_best = (max((getattr(p, clock) for p in peers), default=0.0) for clock in ("median", "cpu_median"))
        found.append(
            {
                "batch": size,
                "rows": [contestant.report() for contestant in contestants],
                "to_best_peer": ours.median / best if best else None,
                "to_best_peer_per_cpu_s": ours.cpu_median / cpu_best if cpu_best else None,
            }
        )
        everybody += contestants
    return {"title": title, "capacity": capacity, "sizes": found, "machine": machine(everybody)}


def table(numbers: dict[str, Any]) -> Table:
    found = Table(
        title=f"{numbers['title']}, capacity {numbers['capacity']:,}: prioritized batches per second, medians",
        caption="left by the clock on the wall, right per second of processor time; ratios: to the best peer",
    )
    found.add_column("sample, gather, set priorities", no_wrap=True)
    for size in numbers["sizes"]:
        found.add_column(f"batch {size['batch']}", justify="right", no_wrap=True)
    for rows in zip(*(size["rows"] for size in numbers["sizes"]), strict=True):
        cells = [
            "not installed" if row["missing"] else f"{row['median']:,.0f} | {row['median_per_cpu_s']:,.0f}"
            for row in rows
        ]
        found.add_row(rows[0]["what"], *cells)
    ratios = [f"{times(s['to_best_peer'])} | {times(s['to_best_peer_per_cpu_s'])}" for s in numbers["sizes"]]
    found.add_row("ours to the best peer", *ratios)
    return found


def bytes_per_transition() -> dict[str, float | None]:
    """Bytes stored for a transition of 84x84x4, without priorities; None if a package is not installed."""
    capacity = 1024
    storage: Any = FrameStorage(ReplayShape(1, capacity, PICTURE, stack=STACK, n_step=1), gamma=0.99)
    sizes: dict[str, float | None] = {OURS: _bytes(storage) / capacity}
    for optimize in (False, True):
        name = f"{SB3}, optimize_memory_usage={optimize}"
        if not_installed(NEEDED[SB3]):
            sizes[name] = None
            continue
        from gymnasium.spaces import Box, Discrete
        from stable_baselines3.common.buffers import ReplayBuffer

        replay = ReplayBuffer(
            capacity,
            Box(0, 255, (STACK, *PICTURE), np.uint8),
            Discrete(ACTIONS),
            "cpu",
            optimize_memory_usage=optimize,
            handle_timeout_termination=not optimize,  # it does not support both
        )
        sizes[name] = _bytes(replay) / capacity
    return sizes


def _bytes(replay: Any) -> int:
    arrays = [value for value in vars(replay).values() if isinstance(value, np.ndarray)]
    return sum(array.nbytes for array in arrays if array.base is None)  # all others are views of these


def main() -> None:
    parser = argparse.ArgumentParser(description="Prioritized batches per second of ours and of other packages.")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--capacity", type=int, default=2**20, help="transitions with observations of one pixel")
    parser.add_argument("--pictures", type=int, default=2**17, help="transitions with 84x84 frames (6.5 GB in total)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    console = Console(width=118, highlight=False)
    tables = []
    for title, capacity, frame, stack in (
        ("the tree, tiny observations", arguments.capacity, PIXEL, 1),
        ("stacks of four 84x84 pictures", arguments.pictures, PICTURE, STACK),
    ):
        tables.append(measure(title, capacity, frame, stack, arguments.rounds, arguments.seconds))
        console.print(table(tables[-1]))
        console.print(machine_line(tables[-1]["machine"]))
        gc.collect()
    sizes = bytes_per_transition()
    memory = Table("bytes per transition of 84x84x4", "bytes", "to ours")
    for name, size in sizes.items():
        memory.add_row(name, f"{size:,.0f}" if size else "not installed", times(size and size / (sizes[OURS] or 1)))
    console.print(memory)
    if arguments.json:
        arguments.json.write_text(json.dumps({"tables": tables, "bytes_per_transition": sizes}, indent=2) + "\n")


if __name__ == "__main__":
    main()
