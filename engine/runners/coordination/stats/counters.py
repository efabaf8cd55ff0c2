"""Totals of a run, and the progress report made from them."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from engine.protocol.messages import Progress, ReplayContents, State
from engine.runs.checkpoint_state import MEAN_OVER, KeptCounters

if TYPE_CHECKING:
    from engine.agents import Losses

_RATE_WINDOW_S = 10.0


class Counters:
    """Environment steps, frames, updates and episodes over all sessions of a run, and their current rates.

    Pauses do not count as trained time (`stop_clock`, `start_clock`).
    """

    def __init__(self, kept: KeptCounters | None = None) -> None:
        kept = kept or KeptCounters()
        self.env_steps, self.frames, self.episodes = kept.env_steps, kept.frames, kept.episodes
        self.returns: deque[float] = deque(kept.returns, maxlen=MEAN_OVER)
        self.best_return = kept.best_return
        self._wall_before = kept.wall_s
        self._since: float | None = time.monotonic()
        self._marks: deque[tuple[float, int, int, int]] = deque()  # (wall_s, env_steps, frames, updates)
        self._losses: list[Losses] = []

    def state(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {
            "env_steps": self.env_steps,
            "frames": self.frames,
            "episodes": self.episodes,
            "returns": list(self.returns),
            "best_return": self.best_return,
            "wall_s": self.wall_s,
        }

    @property
    def wall_s(self) -> float:
        """Seconds of training, without pauses."""
        return self._wall_before + (time.monotonic() - self._since if self._since is not None else 0.0)

    @property
    def mean_return(self) -> float:
        """Over the last 100 episodes; NaN before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else float("nan")

    def forget_returns(self) -> None:
        """Start mean and best return anew, such as for another task."""
        self.returns.clear()
        self.best_return = float("-inf")

    def stop_clock(self) -> None:
        self._wall_before = self.wall_s
        self._since = None

    def start_clock(self) -> None:
        self._since = time.monotonic()
        self._marks.clear()

    def record_episode(self, episode_return: float) -> None:
        self.episodes += 1
        self.returns.append(episode_return)
        self.best_return = max(self.best_return, episode_return)

    def record_losses(self, losses: list[Losses]) -> None:
        self._losses += losses

    def report(
        self,
        *,
        state: State,
        steps: int,
        updates: int,
        episodes: int | None = None,
        epsilon: float,
        random_share: float,
        learning_rate: float,
        replay_size: int,
        replay_capacity: int,
        beta: float,
        burnin_left: int,
        replay: ReplayContents | None = None,
    ) -> Progress:
        """A progress report; losses are means since the last report. `steps`, `episodes`: the limits of the run."""
        wall = self.wall_s
        if not self._marks or wall > self._marks[-1][0]:  # a pause may last for days
            self._marks.append((wall, self.env_steps, self.frames, updates))
        while len(self._marks) > 2 and wall - self._marks[0][0] > _RATE_WINDOW_S:
            self._marks.popleft()
        then, steps_then, frames_then, updates_then = self._marks[0]
        span = max(wall - then, 1e-9)
        steps_per_s = (self.env_steps - steps_then) / span
        left_s = _seconds_left(steps - self.env_steps, steps_per_s)
        if episodes is not None:  # few end within the window of the other rates
            by_episodes_s = _seconds_left(episodes - self.episodes, self.episodes / wall if wall else 0.0)
            left_s = None if by_episodes_s is None or left_s is None else min(left_s, by_episodes_s)
        if burnin_left > 0:  # it is much faster than learning
            left_s = None
        losses, self._losses = self._losses, []
        return Progress(
            at=time.time(),
            state=state,
            env_steps=self.env_steps,
            frames=self.frames,
            updates=updates,
            episodes=self.episodes,
            wall_s=wall,
            remaining_s=left_s,
            env_steps_per_s=steps_per_s,
            frames_per_s=(self.frames - frames_then) / span,
            updates_per_s=(updates - updates_then) / span,
            mean_return=self.mean_return,
            best_return=self.best_return,
            loss=_mean([each.loss for each in losses]),
            q_mean=_mean([each.q_mean for each in losses]),
            epsilon=epsilon,
            random_share=random_share,
            learning_rate=learning_rate,
            replay_size=replay_size,
            replay_capacity=replay_capacity,
            beta=beta,
            burnin_left=burnin_left,
            replay=replay,
        )


def _seconds_left(count: int, per_s: float) -> float | None:
    """None if unknown."""
    return max(0, count) / per_s if per_s > 0 else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
