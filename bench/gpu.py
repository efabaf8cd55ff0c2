"""What one GPU does: updates, replay, batched games, and whole runs. `make gpu` runs the tests of the GPU first.

    python -m bench.gpu [--device D] [--seconds S] [--rounds R] [--only NAME ...] [--into DIR]

Every table is printed and written to DIR as soon as it is measured, so nothing is lost if time runs out; the most
telling ones come first. A part that fails is reported, and the others go on. The queue of a GPU is emptied at the end
of every 20 steps, which all contestants pay for. `--device cpu` tries the program out without a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.clears import describe_first, train
from bench.networks import Nature
from bench.training import PROGRAM
from bench.turns import Contestant, not_installed, take_turns, times
from bench.updates import ACTIONS, GAMMA, LEARNING_RATE, NEEDED, SIDE, STACK, make_cleanrl, make_sb3, pictures
from engine.agents import DoubleDQN, make_network
from engine.buffers import PrioritizedReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.envs.lanes import PlayedStep
from engine.errors import UserError
from engine.runners.learning.updates import DeviceUpdate
from engine.runners.start import resolve_device
from engine.runs.replay_file import ReplayShape
from engine.runtime.devices import gpu_precision, synchronise
from engine.runtime.threads import processor_name

LANES, CAPACITY, AT_ONCE = 32, 8192, 20
BATCHES = (128, 512, 1024, 4096)
GAMES = (256, 4096, 65_536)
Rows = list[dict[str, Any]]
Step = Callable[[], object]


@dataclass(frozen=True)
class Options:
    device: torch.device
    seconds: float
    rounds: int


def updates(options: Options) -> Rows:
    """Updates of the networks from a prioritized replay on the device, as one graph and one operation at a time."""
    rows: Rows = []
    peers = not_installed(NEEDED)
    for network in ("small", "nature"):
        for batch in BATCHES:
            contestants = [
                Contestant("ours, one graph", at_once(graphed_update(network, batch, options.device), options.device)),
                Contestant("ours, eager", at_once(eager_update(network, batch, options.device), options.device)),
            ]
            if network == "nature":
                for name, make in (("Stable-Baselines3", make_sb3), ("CleanRL's manner", make_cleanrl)):
                    step = None if peers else at_once(partial(make(1, str(options.device)), batch), options.device)
                    contestants.append(Contestant(name, step, peers))
            rows += in_turns(contestants, options, {"network": network, "batch": batch}, samples=batch)
    return rows


def replay(options: Options) -> Rows:
    """A draw and new priorities, and the insertion of a step of 32 lanes, on the host and on the device."""
    rows: Rows = []
    host = PrioritizedReplayBuffer(ReplayShape(LANES, CAPACITY // LANES, (SIDE, SIDE), stack=STACK), reuse_batches=True)
    device = filled_replay(options.device)
    step = played_steps()[0]
    for _ in range(CAPACITY // LANES):
        host.append(step)
    random = np.random.default_rng(0)
    inserting = [
        Contestant("host", at_once(lambda: host.append(step), options.device)),
        Contestant("device", at_once(lambda: device.append(step), options.device)),
    ]
    rows += in_turns(inserting, options, {"what": "insert 32 steps"}, samples=LANES)
    for batch in BATCHES:
        errors = torch.ones(batch, device=options.device)

        def draw_on_host(batch: int = batch) -> None:
            drawn, sample = host.sample(batch, random)
            for frames in (drawn.obs, drawn.next_obs):
                torch.from_numpy(frames).to(options.device)
            host.update_priorities(sample, np.ones(batch, np.float32))

        def draw_on_device(batch: int = batch, errors: torch.Tensor = errors) -> None:
            _, sample = device.sample(batch, random)
            device.update_priorities(sample, errors)

        drawing = [
            Contestant("host, copied to the device", at_once(draw_on_host, options.device)),
            Contestant("device, eager", at_once(draw_on_device, options.device)),
        ]
        rows += in_turns(drawing, options, {"what": f"draw {batch}"}, samples=batch)
    return rows


def games(options: Options) -> Rows:
    """Steps of the batched games with random actions, with all results that training reads on the host."""
    rows: Rows = []
    for game in ("snake", "tetris"):
        for lanes in GAMES:
            config = make_config({"game": game, "parallel_envs": 1})
            env = make_lanes(config, lanes, threads=1, seed=0, device=options.device)
            env.reset()
            actions = np.random.default_rng(0).integers(0, env.spec.actions, lanes)
            contestants = [Contestant("ours", at_once(partial(env.step, actions), options.device))]
            rows += in_turns(contestants, options, {"game": game, "games": lanes}, samples=lanes)
            env.close()
    return rows


def runs(options: Options) -> Rows:
    """Environment steps per second of whole headless runs: from second 15 to second 35 of the program."""
    rows: Rows = []
    for name, arguments in (
        ("mario", ()),
        ("mario, 128 lanes", ("--parallel-envs", "128")),
        ("snake, 1,024 lanes", ("--game", "snake", "--parallel-envs", "1024")),
        ("tetris, 1,024 lanes", ("--game", "tetris", "--parallel-envs", "1024")),
    ):
        rows.append({"run": name, "env steps/s": rate_of_run(options.device, arguments)})
    return rows


def clears(options: Options) -> Rows:
    """Minutes from the start of the program until 95 % of the greedy episodes clear World 1-1."""
    with tempfile.TemporaryDirectory() as folder:
        found = train(0, 2.5, Path(folder), ["--parallel-envs", "128", "--device", str(options.device)])
    return [{"World 1-1": name, "after": describe_first(found, rate)} for name, rate in (("50 %", 0.5), ("95 %", 0.95))]


PARTS: dict[str, Callable[[Options], Rows]] = {
    "updates": updates,
    "clears": clears,
    "games": games,
    "runs": runs,
    "replay": replay,
}


def graphed_update(network: str, batch: int, device: torch.device) -> Step:
    agent, held = agent_of(network, device), filled_replay(device)
    generator = None if device.type == "cpu" else torch.Generator(device).manual_seed(0)
    random = np.random.default_rng(0)
    return DeviceUpdate(agent, held, batch, random=random, generator=generator, log=print)


def eager_update(network: str, batch: int, device: torch.device) -> Step:
    agent, held, random = agent_of(network, device), filled_replay(device), np.random.default_rng(0)

    def update() -> None:
        drawn, sample = held.sample(batch, random)
        held.update_priorities(sample, agent.update(drawn, sample.weights).td_errors)

    return update


def agent_of(network: str, device: torch.device) -> DoubleDQN:
    """`nature` is the network of the peers, which has no streams."""
    networks = [
        Nature() if network == "nature" else make_network(network, STACK, (SIDE, SIDE), ACTIONS) for _ in range(2)
    ]
    return DoubleDQN(*networks, device=device, learning_rate=LEARNING_RATE, precision=gpu_precision(device))


def filled_replay(device: torch.device) -> DeviceReplayBuffer:
    held = DeviceReplayBuffer(
        ReplayShape(LANES, CAPACITY // LANES, (SIDE, SIDE), stack=STACK), gamma=GAMMA, device=device
    )
    steps = played_steps()
    for number in range(CAPACITY // LANES):
        held.append(steps[number % len(steps)])
    return held


def played_steps() -> list[PlayedStep]:
    random = np.random.default_rng(0)
    none, ones = np.zeros(LANES, np.bool_), np.ones(LANES, np.float32)
    frames = [pictures(random, LANES) for _ in range(8)]
    return [PlayedStep(each, random.integers(0, ACTIONS, LANES), ones, none, none, each) for each in frames]


def rate_of_run(device: torch.device, arguments: Sequence[str]) -> float | None:
    command = [PROGRAM, "--no-ui", "--log-format", "json", "--eval-every", "0", "--device", str(device), *arguments]
    with tempfile.TemporaryDirectory() as folder:
        begun, marks = time.monotonic(), []
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for event in map(json.loads, run.stdout):
                now = time.monotonic() - begun
                if event["event"] == "progress" and now > 15:
                    marks.append((now, event["env_steps"]))
                if now > 35:
                    run.terminate()
                    break
            run.stdout.read()
    if len(marks) < 2:
        return None
    (first, low), (last, high) = marks[0], marks[-1]
    return (high - low) / (last - first)


def at_once(step: Step, device: torch.device) -> Step:
    """`AT_ONCE` steps, and waiting for them."""

    def steps() -> None:
        for _ in range(AT_ONCE):
            step()
        synchronise(device)

    return steps


def in_turns(contestants: list[Contestant], options: Options, what: dict[str, Any], samples: int) -> Rows:
    """A row for each contestant; ratios are to the first one, which is ours."""
    take_turns(contestants, options.rounds, options.seconds)
    first = contestants[0].median
    return [
        {
            **what,
            "contestant": each.name,
            "steps/s": each.median * AT_ONCE or None,
            "samples/s": each.median * AT_ONCE * samples or None,
            "first to this": times(first / each.median) if each.median else each.missing,
        }
        for each in contestants
    ]


def table(title: str, rows: Rows) -> Table:
    found = Table(title=title)
    for name in rows[0]:
        found.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        found.add_row(*(f"{cell:,.0f}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="What one GPU does.")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    parser.add_argument("--into", type=Path, default=Path("gpu-results"), help="folder for the results")
    arguments = parser.parse_args()
    try:
        device = resolve_device(arguments.device)
    except UserError as error:
        print(f"bench.gpu: {error}", file=sys.stderr)
        return 2
    arguments.into.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
    console = Console(width=118, highlight=False)
    console.print(f"{name}, PyTorch {torch.__version__}")
    failed = 0
    for part in arguments.only:
        begun = time.monotonic()
        try:
            rows = PARTS[part](Options(device, arguments.seconds, arguments.rounds))
        except (Exception, SystemExit):  # one part must not cost the others
            traceback.print_exc()
            failed += 1
            continue
        told = {"device": name, "torch": torch.__version__, "seconds": time.monotonic() - begun, "rows": rows}
        (arguments.into / f"{part}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        console.print(table((PARTS[part].__doc__ or "").splitlines()[0], rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
