"""Evaluation during training and at its end, on separate lanes and with the same random decisions each time.

The best policy during training is kept. Its score is stored only in the policy's own file, so file and score match
whatever checkpoint a run resumes from. That score is the largest of many evaluations on the same episodes, and so
partly luck. The result of the run is not: its chosen policy plays episodes that neither training nor the choice has
seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.agents.weights import load_weights, policy_weights
from engine.config.capabilities import EVALUATION_SEED, FRESH_SEED, NO_FRESH, CanBeSolved, fresh_episodes
from engine.config.reading import rounded_up
from engine.config.run_config import RunConfig
from engine.envs.episode import EpisodeRecord, mean_results
from engine.envs.factory import describe_evaluation, describe_task, make_lanes
from engine.envs.lanes import Frames, Lanes
from engine.evaluation.policy import mean_interval, play_episodes, wilson
from engine.protocol.messages import Evaluation, FinalEvaluation, Mean
from engine.protocol.outcome import Conditions
from engine.runners.learning.checkpoint import save_policy
from engine.runners.learning.learner import Learner
from engine.runners.links import ParentLink
from engine.runners.shared_state import starts_slowly
from engine.runs.checkpoints import BEST_POLICY_FILE, CheckpointError, policy_metadata
from engine.runtime.files import why_not_written
from engine.runtime.stored_arrays import seeded_global_random

STARTING_S = 600.0
"""Seconds that all lanes may take to begin: on nes-py each replays the inputs of its start, about half a second."""
_TELL_AFTER_S = 5.0
"""An evaluation that lasts longer is told of in the log, then again whenever it has lasted twice as long."""


class StopWaits(Exception):
    """The run should stop, so an evaluation is abandoned."""


class _Judge:
    """Plays with the agent's policy on lanes of its own, which it keeps until they are closed."""

    _seed: int

    def __init__(self, run: Path, config: RunConfig, link: ParentLink, learner: Learner, threads: int) -> None:
        self._run, self._config, self._link, self._learner, self._threads = run, config, link, learner, threads
        self._env: Lanes | None = None

    def _play(self, config: RunConfig, episodes: int, on_step: Callable[[int], object]) -> list[EpisodeRecord]:
        """Play episodes of a run with these options. `on_step` is called at every step with the number of those that
        have ended. Raises `StopWaits` if a Stop command has come, and what `on_step` raises."""
        ended = 0

        def act(obs: Frames, masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
            self._link.beat()
            if self._link.stop_waits:
                raise StopWaits
            on_step(ended)
            return self._learner.agent.play(obs, masks)

        def count(episode: EpisodeRecord, env_steps: int) -> None:
            nonlocal ended
            ended += 1

        if self._env is None or starts_slowly(config):
            self._link.beat(STARTING_S)
        with seeded_global_random(self._seed):
            if self._env is None:
                self._env = make_lanes(config, episodes, threads=self._threads, seed=self._seed, evaluation=True)
                self._env.spread_starts()
            self._env.rewind()
            epsilon = config.eval_conditions.epsilon
            return play_episodes(self._env, act, episodes, epsilon=epsilon, seed=self._seed, on_episode=count)

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None


class Evaluator(_Judge):
    """Evaluates the policy of a run. Training waits meanwhile, so results do not depend on the machine's speed."""

    _seed = EVALUATION_SEED

    def __init__(self, run: Path, config: RunConfig, link: ParentLink, learner: Learner, threads: int) -> None:
        super().__init__(run, config, link, learner, threads)
        self._best = score_of(run / BEST_POLICY_FILE, config)

    def evaluate(self, env_steps: int) -> tuple[float, float] | None:
        """Play, report, and keep the policy unless a better one is kept: by success rate, then by return.

        `env_steps`: of the run.

        Returns both, a full success rate if the return solves the task; None if a Stop command ended the evaluation
        early.
        """
        started = time.monotonic()
        config = self._config
        episodes = rounded_up(config.eval_episodes, config.game_info.tasks_of(config.task))  # one lane each
        tell_at = started + _TELL_AFTER_S

        def tell(ended: int) -> None:
            nonlocal tell_at
            if (now := time.monotonic()) > tell_at:
                tell_at = 2 * now - started
                self._link.log(f"evaluating: {ended} of {episodes} episodes have ended after {now - started:.0f} s")

        try:
            played = self._play(config, episodes, tell)
        except StopWaits:
            return None
        successes = sum(episode.success for episode in played)
        mean_return = sum(episode.episode_return for episode in played) / episodes
        score = (successes / episodes, mean_return)
        game, solved = config.game_info, None
        if isinstance(game, CanBeSolved) and (threshold := game.solved_at(config)) is not None:
            solved = mean_return >= threshold
            if solved and not (self._best and self._best[-1] >= threshold):
                reached = f"a mean return of {mean_return:g} reaches {threshold:g}"
                self._link.log(f"solved after {env_steps:,} environment steps: {reached}")
        is_best = score >= self._best and self._keep(env_steps, score)
        self._link.send(
            Evaluation(
                env_steps=env_steps,
                episodes=episodes,
                clears=successes,
                mean_return=mean_return,
                results=mean_results(played),
                best=is_best,
                solved=solved,
                seconds=time.monotonic() - started,
            )
        )
        return (1.0, mean_return) if solved else score

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
    if judged := said.get("evaluation"):
        said["evaluation"] = msgspec.structs.asdict(Conditions()) | judged  # of which earlier versions had fewer
    wanted = describe_task(config) | describe_evaluation(config)
    return tuple(said.get("score", ())) if wanted.items() <= said.items() else ()


SHARE = 0.1
"""Of the time that a run has trained: the most that its final evaluation takes."""
_FIRST = 10
"""Episodes that show how many there is time for."""
_PLANNED = 0.8
"""Share of the time left that is planned for these."""


class _TimeIsOver(Exception):
    """The episodes take too long."""


class FinalEvaluator(_Judge):
    """Plays as many episodes in each lane, so that long episodes count as much as short ones: it never stops in the
    middle to count those that have ended. Lanes that begin slowly are made once."""

    _seed = FRESH_SEED

    def evaluate(self, env_steps: int, wall_s: float, on_step: Callable[[int, int], object]) -> FinalEvaluation:
        """Judge the policy that the run has chosen, which replaces the agent's. `env_steps` and `wall_s`: what the run
        has trained; `on_step`: called at every step with the episodes that have been played, and those that will be.
        Raises `StopWaits` if a Stop command has come."""
        began, asked = monotonic(), self._config.final_episodes
        deadline = began + SHARE * wall_s
        fresh, tasks = fresh_episodes(self._config), self._config.game_info.tasks_of(self._config.task)
        if fresh is None:
            return self._result(env_steps, env_steps, [], note=NO_FRESH)
        chosen_at = self._load_chosen(env_steps)
        wanted = rounded_up(asked, tasks)
        most = wanted if fresh.most is None else min(wanted, fresh.most)
        played: list[EpisodeRecord] = []
        planned = min(most, rounded_up(_FIRST, tasks))

        def look(ended: int) -> None:
            if monotonic() > deadline:
                raise _TimeIsOver
            on_step(ended, planned)

        try:
            played = self._play(fresh.config, planned, look)
            left, per_episode_s = deadline - monotonic(), (monotonic() - began) / len(played)
            planned = min(most, int(_PLANNED * left / per_episode_s) // len(tasks) * len(tasks))
            if planned > len(played):
                if not starts_slowly(fresh.config):
                    self.close()
                played = self._play(fresh.config, planned, look)
        except _TimeIsOver:
            pass
        finally:
            self.close()
        note = ""
        if len(played) < most:
            note = f"a tenth of the run's time is not enough for {asked}"
        elif most < wanted:
            note = f"only {most} of {asked} fresh episodes differ"
        return self._result(env_steps, chosen_at, played, starts=fresh.starts, note=note, seconds=monotonic() - began)

    def _load_chosen(self, env_steps: int) -> int:
        """Let the agent play the best policy of the run's task, if there is one. Returns its environment steps;
        `env_steps`: those of the agent's own."""
        best = self._run / BEST_POLICY_FILE
        if not best.is_file():  # none was evaluated
            return env_steps
        metadata = policy_metadata(best)
        if not describe_task(self._config).items() <= metadata.items():
            return env_steps
        load_weights(self._learner.agent.policy, policy_weights(best), best)
        return int(metadata["env_steps"])

    def _result(
        self,
        env_steps: int,
        chosen_at: int,
        played: Sequence[EpisodeRecord],
        *,
        starts: str = "",
        note: str,
        seconds: float = 0.0,
    ) -> FinalEvaluation:
        clears = sum(episode.success for episode in played)
        low, high = wilson(clears, len(played)) if played else (math.nan, math.nan)
        means = [_mean([episode.results[index] for episode in played])
                 for index in range(len(self._config.outcome.results))]  # fmt: skip
        return FinalEvaluation(
            env_steps=env_steps,
            policy_env_steps=chosen_at,
            episodes=len(played),
            clears=clears,
            clear_rate_low=low,
            clear_rate_high=high,
            mean_return=_mean([episode.episode_return for episode in played]),
            results=tuple(means),
            starts=starts,
            note=note,
            seconds=seconds,
        )


def _mean(values: Sequence[float]) -> Mean:
    return Mean(*mean_interval(values)) if values else Mean(math.nan, math.nan, math.nan)
