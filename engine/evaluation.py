"""Play a policy: many episodes for a clear rate, or one game after the other to watch.

A process of its own (`python -m engine.evaluation POLICY …`) that writes packed messages to its standard output: an
`Episode` for each one that ends, a `Frame` for every step with `--watch`, at the end `Evaluated`, or `Failed`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from engine import checkpoints
from engine.agents import DuelingQNetwork
from engine.envs.emulator import SCREEN_SHAPE
from engine.envs.mario import ACTION_NAMES, FRAME_SKIP, MarioLanes
from engine.envs.nes_py import NesPyEmulator
from engine.envs.stack import FrameStack
from engine.messages import Episode, Evaluated, EvaluationReport, Frame, pack
from engine.runners.process import describe
from engine.threads import thread_budget

_LANES = 8
_FRAMES_PER_S = 60.0988  # NTSC


@dataclass(frozen=True)
class Policy:
    """A network and what it was trained on."""

    network: DuelingQNetwork
    stage: str
    emulator: str

    @staticmethod
    def load(path: Path) -> Policy:
        """Read a policy file. Raises `CheckpointError` if this version can't play it."""
        said = checkpoints.policy_metadata(path)
        if said["network"] != "dueling" or tuple(said["actions"]) != ACTION_NAMES:
            raise checkpoints.CheckpointError(f"{path}: made for a network or actions that this version does not have")
        height, width = said["frame_shape"]
        network = DuelingQNetwork(said["stack"], (height, width), len(said["actions"]))
        network.load_state_dict(load_file(path))
        return Policy(network.eval(), said["stage"], said["emulator"])


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a rate (Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953)."""
    z, rate = 1.959964, successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2))
    low = centre - half if successes > 0 else 0.0  # exact at the ends, where rounding would leave a trace
    high = centre + half if successes < trials else 1.0
    return low, high


class Evaluation:
    """Episodes of one policy. Every lane plays the same number, so short episodes don't count more often."""

    def __init__(self, path: Path, *, lanes: int, epsilon: float, noop_max: int, seed: int) -> None:
        self._path = path
        self._policy = Policy.load(path)
        threads = thread_budget(lanes)
        torch.set_num_threads(threads.torch_threads)
        self._env = MarioLanes(
            NesPyEmulator(lanes, threads.lane_threads), self._policy.stage, noop_max=noop_max, seed=seed
        )
        self._epsilon, self._noop_max = epsilon, noop_max
        self._random = np.random.default_rng(seed)

    @torch.no_grad()
    def play(self, episodes: int | None, watch: bool, tell: Callable[[EvaluationReport], None]) -> None:
        """Play and tell of it; without `episodes`, until the reader leaves."""
        started = time.monotonic()
        env, seen = self._env, list[Episode]()
        quota = np.full(env.lanes, math.inf if episodes is None else episodes // env.lanes)
        if episodes is not None:
            quota[: episodes % env.lanes] += 1
        stack, steps = FrameStack(env.reset()), 0
        while (quota > 0).any():
            due = started + steps * FRAME_SKIP / _FRAMES_PER_S
            greedy = self._policy.network(torch.from_numpy(stack.obs)).argmax(1).numpy()
            explore = self._random.random(env.lanes) < self._epsilon
            step = env.step(np.where(explore, self._random.integers(0, env.actions, env.lanes), greedy))
            ended = step.terminated | step.truncated
            stack.push(step.frames, ended)
            steps += 1
            if watch:
                height, width, _ = SCREEN_SHAPE
                time.sleep(max(0.0, due - time.monotonic()))
                tell(Frame(index=steps, height=height, width=width, rgb=env.emulator.screen(0).tobytes()))
            for lane in np.flatnonzero(ended & (quota > 0)):
                quota[lane] -= 1
                seen.append(
                    Episode(
                        actor=0,
                        lane=int(lane),
                        env_steps=steps * env.lanes,
                        episode=len(seen) + 1,
                        episode_return=float(step.returns[lane]),
                        length=int(step.lengths[lane]),
                        x_pos=int(step.furthest[lane]),
                        flag=bool(step.clears[lane]),
                        epsilon=self._epsilon,
                    )
                )
                tell(seen[-1])
        tell(self._result(seen, time.monotonic() - started))

    def _result(self, seen: list[Episode], seconds: float) -> Evaluated:
        clears = sum(episode.flag for episode in seen)
        low, high = wilson(clears, len(seen))
        return Evaluated(
            policy=str(self._path),
            stage=self._policy.stage,
            emulator=self._policy.emulator,
            episodes=len(seen),
            epsilon=self._epsilon,
            noop_max=self._noop_max,
            clears=clears,
            clear_rate=clears / len(seen),
            clear_rate_low=low,
            clear_rate_high=high,
            mean_return=float(np.mean([episode.episode_return for episode in seen])),
            mean_x_pos=float(np.mean([episode.x_pos for episode in seen])),
            mean_length=float(np.mean([episode.length for episode in seen])),
            seconds=seconds,
        )


def _take_stdout() -> Callable[[EvaluationReport], None]:
    """A function that writes messages; what libraries print goes to stderr from now on, not between the messages."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(report: EvaluationReport) -> None:
        stream.write(pack(report))
        stream.flush()

    return tell


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="engine.evaluation")
    parser.add_argument("policy", type=Path)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--noop-max", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--watch", action="store_true")
    options = parser.parse_args()
    tell = _take_stdout()
    lanes = 1 if options.watch else min(_LANES, options.episodes)
    try:
        evaluation = Evaluation(
            options.policy, lanes=lanes, epsilon=options.epsilon, noop_max=options.noop_max, seed=options.seed
        )
        evaluation.play(options.episodes, options.watch, tell)
    except BrokenPipeError:
        os._exit(0)  # the reader has seen enough; nothing may be flushed any more
    except Exception as error:
        tell(describe(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
