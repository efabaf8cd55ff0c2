"""What becomes of events in programs that draw curves. Names follow CleanRL (`charts/…`, `losses/…`).

The x-axis of all scalars is environment steps. As a run goes on, each point of its episodes is the mean of more and
more of them (`engine.sinks.thinning`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from engine.protocol.messages import Episode, Evaluation, Progress
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.sinks import Begin
from engine.sinks.sink import Sink
from engine.sinks.thinning import Thinning


class ScalarSink(Sink, ABC):
    """Makes scalars of progress, episodes and evaluations; `write_scalars` writes them."""

    def __init__(self) -> None:
        self._thinning, self._outcome = Thinning(), Outcome()
        self._sums: dict[str, float] = {}  # over the episodes of the next point
        self._summed = self._summed_to = 0  # number of those episodes; environment steps at the last one

    @abstractmethod
    def write_scalars(self, env_steps: int, scalars: dict[str, float]) -> None:
        """Write finite values by their tags."""

    def begin(self, run: Begin) -> None:
        self._outcome = run.outcome

    def restart(self, env_steps: int) -> None:
        self._sums, self._summed = {}, 0
        self._thinning.restart()

    def progress(self, progress: Progress) -> None:
        p = progress  # a loop of somebody else's may never tell of frames, updates or a replay
        self._write(
            p.env_steps,
            {
                "losses/td_loss": p.loss,
                "losses/q_values": p.q_mean,
                "charts/learning_rate": p.learning_rate,
                "charts/epsilon": p.epsilon,
                "charts/random_share": p.random_share,
                "charts/mean_return": p.mean_return,
                "charts/env_steps_per_s": p.env_steps_per_s,
                "charts/frames_per_s": p.frames_per_s if p.frames else math.nan,
                "charts/updates_per_s": p.updates_per_s if p.updates else math.nan,
                "replay/size": p.replay_size if p.replay_capacity else math.nan,
                "replay/beta": p.beta,
            },
        )

    def episode(self, episode: Episode) -> None:
        results = self._outcome.named(episode.results)
        scalars = {f"charts/episodic_{name}": value for name, value in results.items()}
        scalars |= {"charts/episodic_return": episode.episode_return, "charts/episodic_length": episode.length}
        if self._outcome.goal is not None:
            scalars["charts/episodic_clear"] = float(episode.success)
        self._sums = {tag: self._sums.get(tag, 0.0) + value for tag, value in scalars.items()}
        self._summed, self._summed_to = self._summed + 1, episode.env_steps
        if self._thinning.is_due():
            self._write_episodes()

    def evaluation(self, evaluation: Evaluation) -> None:
        means = {"return": evaluation.mean_return, **self._outcome.named(evaluation.results)}
        scalars = {f"eval/{key}": value for key, value in mean_keys(means).items()}
        if self._outcome.goal is not None:
            scalars["eval/clear_rate"] = evaluation.clears / evaluation.episodes
        self._write(evaluation.env_steps, scalars)

    def close(self) -> None:
        self._write_episodes()

    def _write_episodes(self) -> None:
        """Write a point with the means of the episodes since the last one."""
        if self._summed:
            means = {tag: total / self._summed for tag, total in self._sums.items()}
            self._sums, self._summed = {}, 0
            self._write(self._summed_to, means)

    def _write(self, env_steps: int, scalars: dict[str, float]) -> None:
        self.write_scalars(env_steps, {tag: value for tag, value in scalars.items() if math.isfinite(value)})
