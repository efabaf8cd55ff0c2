"""Greedy evaluation while training: on lanes of its own, always from the same starts; the best policy is kept.

Its score lies in its file, nowhere else: whatever a run goes on from, file and score belong together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.config.stages import stages_of
from engine.envs.factory import describe_task, make_lanes
from engine.envs.vec_env import Frames, Lanes
from engine.evaluation.episodes import play_episodes
from engine.protocol.messages import Evaluation
from engine.runners.host_link import HostLink
from engine.runners.learner import Learner
from engine.runners.stats.counters import Counters
from engine.runs.checkpoints import BEST_POLICY_FILE, CheckpointError, policy_metadata

_SEED = 20_000  # the starts of every evaluation of every run, so that policies can be compared


_STARTING_S = 600.0
"""For the lanes to start in: on nes-py each plays the log of its start again, which takes it half a second."""


class _StopWaits(Exception):
    """The run is to end: an evaluation is given up for that."""


class Evaluator:
    """Training stands still during an evaluation, so that a run's numbers do not depend on the machine's speed."""

    def __init__(self, run: Path, config: RunConfig, link: HostLink, learner: Learner, threads: int) -> None:
        self._run, self._config, self._link, self._learner, self._threads = run, config, link, learner, threads
        self._env: Lanes | None = None
        self._best = score_of(run / BEST_POLICY_FILE, describe_task(config))

    def evaluate(self, counters: Counters) -> None:
        """Play, report, and keep the policy if none was better: by clears, then by return. A stop ends it early."""
        started = time.monotonic()
        episodes = episodes_of(self._config)
        if self._env is None:
            self._link.beat(_STARTING_S)
            self._env = make_lanes(self._config, episodes, threads=self._threads, seed=_SEED, once=True)
            self._env.spread_starts()
        self._env.rewind()
        try:
            played = play_episodes(self._env, self._act, episodes)
        except _StopWaits:
            return
        clears = sum(episode.flag for episode in played)
        mean_return = sum(episode.episode_return for episode in played) / episodes
        score = (clears / episodes, mean_return)
        is_best = score >= self._best and self._keep(counters.env_steps, score)
        self._link.send(
            Evaluation(
                env_steps=counters.env_steps,
                episodes=episodes,
                clears=clears,
                mean_return=mean_return,
                mean_x_pos=sum(episode.x_pos for episode in played) / episodes,
                mean_score=sum(episode.score for episode in played) / episodes,
                best=is_best,
                seconds=time.monotonic() - started,
            )
        )

    def _act(self, obs: Frames, masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        self._link.beat()
        if self._link.stop_waits:
            raise _StopWaits
        return self._learner.agent.play(obs, masks)

    def _keep(self, env_steps: int, score: tuple[float, float]) -> bool:
        """Replace the best policy, whole or not at all; whether it was."""
        partial = self._run / f".{BEST_POLICY_FILE}.partial"
        try:
            self._learner.save_policy(partial, env_steps, score)
            partial.replace(self._run / BEST_POLICY_FILE)
        except Exception as error:  # safetensors raises its own kinds for a full disk
            self._link.log(f"the best policy could not be saved: {error}", "warning")
            return False
        self._best = score
        return True


def score_of(policy: Path, task: Mapping[str, Any]) -> tuple[float, ...]:
    """(clear rate, mean return) that a kept policy reached at `task`.

    Empty, which is less than any score, if there is no such file, it is another task's or does not tell.
    """
    try:
        said = policy_metadata(policy)
    except CheckpointError:
        return ()
    return tuple(said.get("score", ())) if task.items() <= said.items() else ()


def episodes_of(config: RunConfig) -> int:
    """Episodes of an evaluation, a lane each: at least those that were asked for, and as many of every stage."""
    stages = len(stages_of(config.stage))
    return math.ceil(config.eval_episodes / stages) * stages
