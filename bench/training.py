"""Environment steps per second of training: the product's default run compared with a plain Double-DQN loop.

    python -m bench.training [--seconds S] [--rounds R] [--cores N] [--json FILE]

The plain loop is similar to the PyTorch Mario tutorial: one gym-super-mario-bros 7.4 environment, uniform replay, fp32,
one update every eight steps. It has the product's frame size (50x60), network and number of learned samples per
environment step (4), and both ask the network for an action in every step. They take turns on the same machine;
start-up and filling the replay are not counted. If another program uses a core, torch's threads wait for each other and
both become several times slower: measure on an idle machine, or with `--cores` below the number of cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from bench.mario_package import mario_env
from bench.turns import add_cores, use_cores
from engine.agents import DuelingQNetwork
from engine.console.view import VIEWS
from engine.games.mario.actions import STACK, action_buttons
from engine.games.mario.options import MarioOptions

PROGRAM = str(Path(sys.executable).with_name("mario-tui"))
PRODUCT, PLAIN = "mario-tui, default run", "plain Double DQN on gym-super-mario-bros 7.4"
BURNIN, SETTLE_S = 2000, 3.0
SKIP, BATCH, UPDATE_EVERY = 4, 32, 8  # 4 learned samples for each environment step
CAPACITY, PLAIN_BURNIN, EPSILON, GAMMA, SYNC_EVERY = 20_000, 500, 0.1, 0.95, 1000
VIEW = VIEWS["50x60"]
SHADES = np.array([0.299, 0.587, 0.114], np.float32)


class Game:
    """One game with the wrappers of the tutorial: frame skip, grayscale, resize, frame stack."""

    def __init__(self) -> None:
        self._env = mario_env()
        self._buttons = action_buttons("right-only")
        self.actions = len(self._buttons)
        self.obs = self.last_obs = self._begin()

    def step(self, action: int) -> tuple[float, bool]:
        """Hold an action; returns reward and end. Sets `last_obs`, the observation that it led to, and `obs`, the one
        to act on next."""
        total = 0.0
        for _ in range(SKIP):
            screen, reward, done, _ = self._env.step(self._buttons[action])
            total += reward
            if done:
                break
        self.obs = np.concatenate((self.obs[1:], picture(screen)[None]))
        self.last_obs = self.obs
        if done:
            self.obs = self._begin()
        return total, done

    def close(self) -> None:
        self._env.close()

    def _begin(self) -> NDArray[np.uint8]:
        return np.repeat(picture(self._env.reset())[None], STACK, axis=0)


def picture(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Grayscale area means of 4x4 pixels of the product's crop of the screen, uint8 [50, 60]."""
    crop = screen[VIEW.top : VIEW.bottom, VIEW.left : VIEW.right]
    rows, columns = (VIEW.bottom - VIEW.top) // VIEW.height, (VIEW.right - VIEW.left) // VIEW.width
    blocks = crop.reshape(VIEW.height, rows, VIEW.width, columns, 3).sum(axis=(1, 3), dtype=np.uint16)
    gray: NDArray[np.uint8] = (blocks @ (SHADES / (rows * columns)) + 0.5).astype(np.uint8)
    return gray


class PlainDoubleDQN:
    """The complete plain training program."""

    def __init__(self) -> None:
        self._game = Game()
        self._random = np.random.default_rng(0)
        shape = (STACK, VIEW.shape, self._game.actions)
        self._online, self._target = (DuelingQNetwork(*shape, MarioOptions.network) for _ in range(2))
        self._target.requires_grad_(False)
        self._target.load_state_dict(self._online.state_dict())
        self._optimizer = torch.optim.Adam(self._online.parameters(), lr=2.5e-4)
        self._obs = np.zeros((CAPACITY, STACK, *VIEW.shape), np.uint8)
        self._next_obs = np.zeros_like(self._obs)
        self._actions = np.zeros(CAPACITY, np.int64)
        self._rewards = np.zeros(CAPACITY, np.float32)
        self._ended = np.zeros(CAPACITY, np.float32)
        self._steps = self._updates = 0

    def turn(self, seconds: float) -> float:
        """Train for `seconds`; returns environment steps per second."""
        while self._steps < PLAIN_BURNIN:
            self._step()
        steps, begin = self._steps, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds:
            self._step()
            if self._steps % UPDATE_EVERY == 0:
                self._update()
        return (self._steps - steps) / spent

    @property
    def network(self) -> DuelingQNetwork:
        return self._online

    def close(self) -> None:
        self._game.close()

    @torch.no_grad()
    def _step(self) -> None:
        slot = self._steps % CAPACITY
        self._obs[slot] = self._game.obs
        action = int(self._online(torch.from_numpy(self._game.obs)[None]).argmax())
        if self._random.random() < EPSILON:
            action = int(self._random.integers(self._game.actions))
        reward, done = self._game.step(action)
        self._next_obs[slot] = self._game.last_obs
        self._actions[slot], self._rewards[slot], self._ended[slot] = action, reward / 15, done
        self._steps += 1

    def _update(self) -> None:
        picked = self._random.integers(0, min(self._steps, CAPACITY), BATCH)
        obs, actions, rewards, next_obs, ended = (
            torch.from_numpy(array[picked])
            for array in (self._obs, self._actions, self._rewards, self._next_obs, self._ended)
        )
        with torch.no_grad():
            best = self._online(next_obs).argmax(1, keepdim=True)
            targets = rewards + GAMMA * (1 - ended) * self._target(next_obs).gather(1, best).squeeze(1)
        q = self._online(obs).gather(1, actions[:, None]).squeeze(1)
        self._optimizer.zero_grad()
        F.smooth_l1_loss(q, targets).backward()
        self._optimizer.step()
        self._updates += 1
        if self._updates % SYNC_EVERY == 0:
            self._target.load_state_dict(self._online.state_dict())


def product_turn(seconds: float, *more: str) -> float:
    """Environment steps per second of a headless run with options `more`, stopped after `seconds` of learning."""
    return steady_rate(learning_turn(seconds, *more))


def learning_turn(seconds: float, *more: str) -> list[dict[str, Any]]:
    """The progress reports of such a run since its first update."""
    options = ("--burnin", str(BURNIN), "--eval-every", "0", "--log-format", "json", *more)
    learning: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            (folder / "stderr").open("w") as stderr,
            subprocess.Popen(
                [PROGRAM, "--no-ui", *options], cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True
            ) as run,
        ):
            assert run.stdout is not None
            for event in map(json.loads, run.stdout):
                if event["event"] != "progress" or not event["updates"]:
                    continue
                learning.append(event)
                if event["wall_s"] - learning[0]["wall_s"] >= SETTLE_S + seconds:
                    run.send_signal(signal.SIGINT)
                    break
            run.stdout.read()  # the summary
        if run.returncode != 0:
            said = (folder / "stderr").read_text()[-2000:]
            raise SystemExit(f"mario-tui ended with status {run.returncode}:\n{said}")
    return learning


def steady_rate(learning: list[dict[str, Any]], what: str = "env_steps") -> float:
    """Environment steps (or another counter `what`) per second, from reports some time after the first update."""
    steady = [report for report in learning if report["wall_s"] - learning[0]["wall_s"] >= SETTLE_S]
    if len(steady) < 2:
        raise SystemExit("too short to measure: give more --seconds")
    first, last = steady[0], steady[-1]
    return float((last[what] - first[what]) / (last["wall_s"] - first["wall_s"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Environment steps per second of training.")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a turn, without start-up")
    parser.add_argument("--rounds", type=int, default=3, help="turns per contestant")
    add_cores(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    if arguments.cores:
        torch.set_num_threads(arguments.cores)
    cores = use_cores(arguments.cores)
    rates: dict[str, list[float]] = {PRODUCT: [], PLAIN: []}
    plain = PlainDoubleDQN()
    plain.turn(1.0)
    for _ in range(arguments.rounds):
        rates[PRODUCT].append(product_turn(arguments.seconds))
        rates[PLAIN].append(plain.turn(arguments.seconds))
    plain.close()
    medians = {name: statistics.median(values) for name, values in rates.items()}
    table = Table(f"training, 4 learned samples a step; cores: {cores}", "env steps/s, median", "all rounds")
    for name, values in rates.items():
        table.add_row(name, f"{medians[name]:,.0f}", " ".join(f"{value:,.0f}" for value in values))
    console = Console(width=110, highlight=False)
    console.print(table)
    ratio = medians[PRODUCT] / medians[PLAIN]
    console.print(f"ratio: {ratio:.2f}x; load average of the last 5 minutes: {os.getloadavg()[1]:.1f}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"env_steps_per_s": rates, "ratio": ratio, "cores": cores}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
