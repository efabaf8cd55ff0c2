"""Evaluation during training, on separate lanes, always from the same starts and with the same random decisions. Keeps
the best policy.

The best score is stored only in the policy's own file, so file and score match whatever checkpoint a run resumes from.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.config.tasks import rounded_up
from engine.envs.episode import mean_results
from engine.envs.factory import describe_evaluation, describe_task, make_lanes
from engine.envs.lanes import Frames, Lanes
from engine.evaluation.episodes import play_episodes
from engine.protocol.messages import Evaluation
from engine.runners.learning.learner import Learner
from engine.runners.learning.policy_file import save_policy
from engine.runners.parent_link import ParentLink
from engine.runs.checkpoints import BEST_POLICY_FILE, CheckpointError, policy_metadata
from engine.runtime.files import why_not_written

_SEED = 20_000  # the same starts and draws in every evaluation of every run, so that policies can be compared


_STARTING_S = 600.0
"""Seconds that all lanes may take to begin: on nes-py each replays the inputs of its start, about half a second, and
environments of Gymnasium are made anew."""


class _StopWaits(Exception):
    """The run should stop, so the evaluation is abandoned."""


class Evaluator:
    """Evaluates the policy of a run. Training waits meanwhile, so results do not depend on the machine's speed."""

    def __init__(self, run: Path, config: RunConfig, link: ParentLink, learner: Learner, threads: int) -> None:
        self._run, self._config, self._link, self._learner, self._threads = run, config, link, learner, threads
        self._env: Lanes | None = None
        self._best = score_of(run / BEST_POLICY_FILE, config)

    def evaluate(self, env_steps: int) -> tuple[float, float] | None:
        """Play, report, and keep the policy unless a better one is kept: by success rate, then by return.

        `env_steps`: of the run.

        Returns both; None if a Stop command ended the evaluation early.
        """
        started = time.monotonic()
        config = self._config
        episodes = rounded_up(config.eval_episodes, config.game_info.tasks_of(config.task))  # one lane each
        if self._env is None or config.game_info.starts_slowly(config):
            self._link.beat(_STARTING_S)
        if self._env is None:
            self._env = make_lanes(config, episodes, threads=self._threads, seed=_SEED, once=True)
            self._env.spread_starts()
        self._env.rewind()
        try:
            played = play_episodes(self._env, self._act, episodes, epsilon=config.eval_conditions.epsilon, seed=_SEED)
        except _StopWaits:
            return None
        successes = sum(episode.success for episode in played)
        mean_return = sum(episode.episode_return for episode in played) / episodes
        score = (successes / episodes, mean_return)
        is_best = score >= self._best and self._keep(env_steps, score)
        self._link.send(
            Evaluation(
                env_steps=env_steps,
                episodes=episodes,
                clears=successes,
                mean_return=mean_return,
                results=mean_results(played),
                best=is_best,
                seconds=time.monotonic() - started,
            )
        )
        return score

    def _act(self, obs: Frames, masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        self._link.beat()
        if self._link.stop_waits:
            raise _StopWaits
        return self._learner.agent.play(obs, masks)

    def _keep(self, env_steps: int, score: tuple[float, float]) -> bool:
        """Replace the best policy atomically. Returns whether that succeeded."""
        partial = self._run / f".{BEST_POLICY_FILE}.partial"
        try:
            save_policy(self._learner, partial, env_steps, score)
            partial.replace(self._run / BEST_POLICY_FILE)
        except Exception as error:  # safetensors raises its own kinds for a full disk
            self._link.log(f"{why_not_written(error)}: the best policy was not saved", "error")
            return False
        self._best = score
        return True


def score_of(policy: Path, config: RunConfig) -> tuple[float, ...]:
    """The (success rate, mean return) that a kept policy reached at the task and under the conditions of a run.

    Empty, which compares as less than any score, if the file is missing, has no score, or is of another task, or judged
    by another number of episodes or under other conditions.
    """
    try:
        said = {"eval_episodes": config.eval_episodes, **policy_metadata(policy)}  # earlier versions did not store it
    except CheckpointError:
        return ()
    wanted = describe_task(config) | describe_evaluation(config)
    return tuple(said.get("score", ())) if wanted.items() <= said.items() else ()
