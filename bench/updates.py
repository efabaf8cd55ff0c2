"""Updates per second of our agent, Stable-Baselines3's DQN and a plain DQN in the style of CleanRL.

    python -m bench.updates [--seconds S] [--rounds R] [--threads N] [--batches N ...] [--json FILE]
    python -m bench.updates --vectors [--batches 64]
    python -m bench.updates --parts [--batches 32]
    python -m bench.updates --limit

An update draws a batch of 84x84x4 observations from a full uniform replay and takes an optimiser step. All contestants
have the same Nature network (32, 64, 64 channels, 512 hidden) and the same number of threads: torch's own threads for
the peers, learning threads for ours. Ours divides the first layer's weights by 255 instead of the observations, as all
its networks do, and clips gradients like Stable-Baselines3; CleanRL does not. The peers learn by plain DQN, whose
targets use the maximum of the target network; Double DQN computes one more forward pass. Only ours has a bfloat16
option. torch's threads spin while they wait for each other, so if other programs use the cores, the peers become much
slower by both clocks; the work itself is compared only on an idle machine or with `--threads 1`.

`--vectors` compares instead what an update on CartPole takes: ours as a run makes it by default, with prioritized
replay, three-step returns, an averaged target and policy; `mlp` has layers of 256 units. Stable-Baselines3's default
network has layers of 64 units, its zoo takes 256.

`--parts` compares instead what each part of newer agents (docs/recipe.md) costs: updates of our network `nature` by DQN
in float32, and with the part.

`--limit` shows instead what the operations of our updates take, beside what the machine needs for them
(`bench/limits.py`): of Nature by plain DQN, and of the network `small` at Mario's 50x60 by Double DQN. To install all:

    pip install -e '.[bench]'
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from bench.limits import limit_table, measure_limit
from bench.networks import Nature
from bench.turns import Contestant, machine, machine_line, not_installed, take_turns, times
from engine.agents import DoubleDQN
from engine.agents.dueling import Head
from engine.agents.munchausen import Munchausen
from engine.agents.networks import DuelingQNetwork, as_planes, make_network, make_networks
from engine.buffers import Batch, FrameStorage, PrioritizedReplayBuffer, UniformSampler
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import ReplayShape, replay_shape
from engine.runtime.devices import Precision
from engine.runtime.threads import has_native_bf16, keep_freed_memory

OURS: dict[str, Precision] = {"ours, float32": "float32", "ours, bfloat16": "bfloat16"}
DOUBLE = ", Double DQN"
SB3_256, SB3_64 = (f"Stable-Baselines3, DQN.train, [{units}, {units}]" for units in (256, 64))
SB3, CLEANRL = "Stable-Baselines3, DQN.train", "CleanRL's manner, Stable-Baselines3's replay"
PLAIN_ROW = "plain, --network nature"
NEEDED = {"stable_baselines3": "'stable-baselines3>=2.7,<3'"}
LANES, CAPACITY, STACK, SIDE, ACTIONS = 8, 4096, 4, 84, 5
SMALL_SIZE = (50, 60)
LEARNING_RATE, GAMMA = 1e-4, 0.99
Update = Callable[[int], Any]
"""Does an update with a batch of this size."""


class OurNature(Nature):
    """The same network, scaled and converted as in `engine.agents.networks`."""

    def forward(self, obs: Tensor) -> Tensor:
        first = self.layers[0]
        assert isinstance(first, nn.Conv2d)
        q: Tensor = self.layers[1:](F.conv2d(as_planes(obs), first.weight / 255, first.bias, first.stride))
        return q.float()


def make_ours(
    threads: int,
    precision: Precision,
    *,
    double_q: bool,
    network: Callable[[], nn.Module] = OurNature,
    size: tuple[int, int] = (SIDE, SIDE),
    munchausen: Munchausen | None = None,
) -> Update:
    storage = FrameStorage(ReplayShape(LANES, CAPACITY // LANES, size, stack=STACK, n_step=1), gamma=GAMMA)
    random = np.random.default_rng(0)
    none = np.zeros(LANES, np.bool_)
    for _ in range(CAPACITY // LANES):
        frames = pictures(random, LANES, size)
        storage.append(
            PlayedStep(frames, random.integers(0, ACTIONS, LANES), np.ones(LANES, np.float32), none, none, frames)
        )
    sampler = UniformSampler(storage)
    torch.set_num_threads(1)  # inherited by the learning threads
    agent = DoubleDQN(
        network(), network(), device=torch.device("cpu"), learning_rate=LEARNING_RATE, precision=precision,
        double_q=double_q, munchausen=munchausen, threads=threads,
    )  # fmt: skip
    used: dict[int, Batch] = {}

    def update(size: int) -> None:
        torch.set_num_threads(1)
        sample = sampler.sample(size, random)
        used[size] = storage.gather(sample.lanes, sample.entries, into=used.get(size))
        agent.update(used[size], sample.weights)

    return update


def fill(replay: Any) -> None:
    """Fill Stable-Baselines3's replay with random transitions."""
    random = np.random.default_rng(0)
    replay.observations[:] = pictures(random, len(replay.observations))[:, None, None]
    replay.next_observations[:-1] = replay.observations[1:]
    replay.actions[:] = random.integers(0, ACTIONS, replay.actions.shape)
    replay.rewards[:] = 1.0
    replay.full = True


def make_sb3(threads: int, device: str = "cpu") -> Update:
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.logger import Logger

    class Pictures(gymnasium.Env[NDArray[np.uint8], np.int64]):
        """An environment of which only the spaces are used."""

        observation_space = gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        action_space = gymnasium.spaces.Discrete(ACTIONS)

    model = DQN("CnnPolicy", Pictures(), LEARNING_RATE, buffer_size=CAPACITY, gamma=GAMMA, device=device)
    model.set_logger(Logger(None, []))
    fill(model.replay_buffer)

    def update(size: int) -> None:
        torch.set_num_threads(threads)
        model.train(gradient_steps=1, batch_size=size)

    return update


def make_cleanrl(threads: int, device: str = "cpu") -> Update:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    replay = ReplayBuffer(CAPACITY, Box(0, 255, (STACK, SIDE, SIDE), np.uint8), Discrete(ACTIONS), device)
    fill(replay)
    online, target = Nature().to(device), Nature().to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=LEARNING_RATE)

    def update(size: int) -> None:
        torch.set_num_threads(threads)
        batch = replay.sample(size)
        with torch.no_grad():
            best = target(batch.next_observations).amax(1)
            targets = batch.rewards.flatten() + GAMMA * (1 - batch.dones.flatten()) * best
        q = online(batch.observations).gather(1, batch.actions).squeeze(1)
        optimizer.zero_grad()
        F.mse_loss(q, targets).backward()
        optimizer.step()

    return update


def make_our_vectors(threads: int, network: str) -> Update:
    """An update of a run on CartPole with its defaults."""
    config = make_config({"game": "gym", "env": "CartPole-v1", "network": network})
    spec, lanes, random = config.spec, config.parallel_envs, np.random.default_rng(0)
    shape = replay_shape(spec, lanes, config.buffer_size // lanes, config.n_step)
    replay = PrioritizedReplayBuffer(shape, gamma=config.gamma, reuse_batches=True)
    none, ones = np.zeros(lanes, np.bool_), np.ones(lanes, np.float32)
    for _ in range(CAPACITY // lanes):
        frames = random.normal(size=(lanes, *spec.frame_shape)).astype(np.float32)
        replay.append(PlayedStep(frames, random.integers(0, spec.actions, lanes), ones, none, none, frames))
    torch.set_num_threads(1)
    agent = DoubleDQN(
        *make_networks(config, spec), device=torch.device("cpu"), learning_rate=config.learning_rate,
        precision="float32", tau=config.tau, policy_tau=config.policy_tau, double_q=config.double_q, threads=threads,
    )  # fmt: skip

    def update(size: int) -> None:
        torch.set_num_threads(1)
        batch, sample = replay.sample(size, random)
        replay.update_priorities(sample, np.asarray(agent.update(batch, sample.weights).td_errors))

    return update


def make_sb3_vectors(threads: int, units: int) -> Update:
    from stable_baselines3 import DQN
    from stable_baselines3.common.logger import Logger

    model = DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [units, units]}, device="cpu")
    model.set_logger(Logger(None, []))
    replay: Any = model.replay_buffer
    replay.observations[:] = np.random.default_rng(0).normal(size=replay.observations.shape)
    replay.full = True

    def update(size: int) -> None:
        torch.set_num_threads(threads)
        model.train(gradient_steps=1, batch_size=size)

    return update


def pictures(random: np.random.Generator, count: int, size: tuple[int, int] = (SIDE, SIDE)) -> NDArray[np.uint8]:
    return random.integers(0, 256, (count, *size), np.uint8)


def line_up(threads: int) -> dict[str, tuple[str, Update | None]]:
    """{row: (missing packages, update function)}; our rows come first."""
    rows = dict[str, tuple[str, Update | None]]()
    for name, precision in OURS.items():
        for more, double_q in (("", False), (DOUBLE, True)):
            is_native = precision == "float32" or has_native_bf16()
            rows[name + more] = (
                ("", make_ours(threads, precision, double_q=double_q))
                if is_native
                else ("not computed by this CPU", None)
            )
    missing = not_installed(NEEDED)
    for name, make in ((SB3, make_sb3), (CLEANRL, make_cleanrl)):
        rows[name] = (missing, None if missing else make(threads))
    return rows


def vectors_line_up(threads: int) -> dict[str, tuple[str, Update | None]]:
    """`line_up` of networks for vectors."""
    missing = not_installed(NEEDED)
    rows: dict[str, tuple[str, Update | None]] = {
        f"ours, {network}": ("", make_our_vectors(threads, network)) for network in ("mlp-128", "mlp")
    }
    for name, units in ((SB3_256, 256), (SB3_64, 64)):
        rows[name] = (missing, None if missing else make_sb3_vectors(threads, units))
    return rows


def parts_line_up(threads: int) -> dict[str, tuple[str, Update | None]]:
    """`line_up` of the parts of newer agents; the plain agent counts as the peer."""
    munchausen = Munchausen(0.9, RunConfig.munchausen_temperature, RunConfig.munchausen_clip)
    parts: dict[str, tuple[str, Head, Munchausen | None]] = {
        PLAIN_ROW: ("nature", Head(), None),
        "ours, --munchausen 0.9": ("nature", Head(), munchausen),
        "ours, --quantiles 32": ("nature", Head(32), None),
        "ours, --quantiles 200": ("nature", Head(200), None),
        "ours, --noisy": ("nature", Head(noisy=True), None),
        "ours, --network impala": ("impala", Head(), None),
        "ours, --network impala-wide": ("impala-wide", Head(), None),
        "ours, all of --preset btr": ("impala-wide", Head(32, noisy=True), munchausen),
    }
    return {
        name: ("", make_ours(threads, "float32", double_q=False, munchausen=added, network=partial(
            make_network, network, STACK, (SIDE, SIDE), ACTIONS, head=head)))
        for name, (network, head, added) in parts.items()
    }  # fmt: skip


def measure(size: int, rows: dict[str, tuple[str, Update | None]], rounds: int, seconds: float) -> Any:
    contestants = [Contestant(n, partial(step, size) if step else None, missing) for n, (missing, step) in rows.items()]
    take_turns(contestants, rounds, seconds)
    peers = [peer for peer in contestants if not peer.name.startswith("ours")]
    ratios = {
        ours.name: {
            peer.name: [
                mine / theirs if mine and theirs else None
                for mine, theirs in ((ours.median, peer.median), (ours.cpu_median, peer.cpu_median))
            ]
            for peer in peers
        }
        for ours in contestants
        if ours not in peers
    }
    found = {"batch": size, "rows": [contestant.report() for contestant in contestants], "wall_and_cpu_ratios": ratios}
    return found | {"machine": machine([contestant for contestant in contestants if contestant.step])}


def table(sizes: list[dict[str, Any]], what: str, threads: int) -> Table:
    found = Table(
        title=f"updates per second, {what}, {threads} thread{'s' * (threads > 1)}, medians",
        caption="left by the clock on the wall, right per second of processor time",
    )
    found.add_column("update", no_wrap=True)
    for size in sizes:
        found.add_column(f"batch {size['batch']}", justify="right", no_wrap=True)
    for rows in zip(*(size["rows"] for size in sizes), strict=True):
        cells = [row["missing"] or f"{row['median']:,.2f} | {row['median_per_cpu_s']:,.2f}" for row in rows]
        found.add_row(rows[0]["what"], *cells)
    for mine in (row["what"] for row in sizes[0]["rows"] if row["what"].startswith("ours")):
        for peer in sizes[0]["wall_and_cpu_ratios"][mine]:
            ratios = [size["wall_and_cpu_ratios"][mine][peer] for size in sizes]
            found.add_row(
                f"{mine}, to {peer.replace(', DQN.train', '')}", *(f"{times(w)} | {times(c)}" for w, c in ratios)
            )
    return found


def show_limits(sizes: list[int]) -> None:
    """The limits of Nature at 84x84 by plain DQN in both precisions, and of `small` at Mario's 50x60 by Double DQN."""
    console = Console(width=118, highlight=False)
    small = partial(DuelingQNetwork, STACK, SMALL_SIZE, ACTIONS, "small")
    for size in sizes:
        for precision in OURS.values():
            if precision == "bfloat16" and not has_native_bf16():
                continue
            for name, update in (
                ("Nature, 84x84", make_ours(1, precision, double_q=False)),
                ("small, 50x60, Double DQN", make_ours(1, precision, double_q=True, network=small, size=SMALL_SIZE)),
            ):
                console.print(limit_table(measure_limit(f"{name}, {precision}, batch {size}", partial(update, size))))


def main() -> None:
    parser = argparse.ArgumentParser(description="Updates per second of ours and of other packages.")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contestant")
    parser.add_argument(
        "--batches", type=int, nargs="+", help="batch sizes (default: 32 256; --vectors: 64; --parts: 32)"
    )
    parser.add_argument("--vectors", action="store_true", help="networks for CartPole instead of Nature")
    parser.add_argument("--parts", action="store_true", help="parts of newer agents instead of other packages")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    parser.add_argument("--limit", action="store_true", help="show the operations of our updates instead")
    arguments = parser.parse_args()
    batches = arguments.batches or ([64] if arguments.vectors else [32] if arguments.parts else [32, 256])
    keep_freed_memory()  # as in training; it applies to the peers as well
    if arguments.limit:
        show_limits(batches)
        return
    chosen = parts_line_up if arguments.parts else vectors_line_up if arguments.vectors else line_up
    rows = chosen(arguments.threads)
    sizes = [measure(size, rows, arguments.rounds, arguments.seconds) for size in batches]
    console = Console(width=118, highlight=False)
    pictures = "parts at 84x84x4, uniform replay" if arguments.parts else "Nature network, 84x84x4, uniform replay"
    what = "networks for vectors" if arguments.vectors else pictures
    console.print(table(sizes, what, arguments.threads))
    for size in sizes:
        console.print(f"batch {size['batch']}: {machine_line(size['machine'])}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"threads": arguments.threads, "sizes": sizes}, indent=2) + "\n")


if __name__ == "__main__":
    main()
