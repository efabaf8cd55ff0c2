"""When updates are due: after the burn-in, `replay_ratio` samples are learned for each environment step."""

from __future__ import annotations

import math

from engine.buffers import Replay
from engine.config.run_config import RunConfig


class Pace:
    """Counts environment steps as credit for updates.

    Args:
        lanes: that append to `replay`.
        burnin: environment steps before learning starts. Unless the rings that play are full before, the replay must
            also hold a batch, and in each lane a complete n-step window.
    """

    def __init__(self, config: RunConfig, replay: Replay, lanes: int, burnin: int) -> None:
        self._replay, self._batch_size = replay, config.batch_size
        self._least = max(config.batch_size, lanes * (config.n_step + 1))
        self.ratio = config.replay_ratio
        """Samples per environment step."""
        self.resume(0.0, burnin)

    def resume(self, credit: float, burnin: int) -> None:
        """Continue with so many updates due, once the replay holds `burnin` transitions."""
        self.credit, self.burnin = credit, burnin
        self._played = self._replay.size  # from now on without the final frames, which the replay counts
        self._has_begun = False
        self._burnin_left = self.burnin_left  # at the last count

    @property
    def burnin_left(self) -> int:
        """Environment steps until learning starts. Actors that wait for a core are not waited for."""
        if self._has_begun:  # though an actor that begins later has room
            return 0
        left = max(self.burnin - self._played, self._least - self._replay.size)
        return max(0, min(left, self._replay.room))

    @property
    def fill(self) -> int:
        """Entries of the replay with which learning starts, for `resume`."""
        return self.burnin + max(0, self._replay.size - self._played)

    @property
    def backlog(self) -> int:
        """Environment steps played but not yet learned from."""
        return math.ceil(self.credit * self._batch_size / self.ratio)

    @property
    def due_within(self) -> int:
        """Environment steps after which an update is certainly due."""
        return math.ceil(self._batch_size / self.ratio) + 1

    def count(self, env_steps: int) -> None:
        """Count environment steps added to the replay. Those of the burn-in give no credit."""
        self._played += env_steps
        burnin, self._burnin_left = self._burnin_left, self.burnin_left
        self._has_begun = self._burnin_left == 0
        if self._has_begun:
            self.credit += max(0, env_steps - burnin) * self.ratio / self._batch_size

    def due(self, ahead: int = 0) -> int:
        """Updates due now, or `ahead` environment steps later."""
        if self._burnin_left > 0:  # credit from a checkpoint waits until the replay is filled
            return 0
        return max(0, int(self.credit + ahead * self.ratio / self._batch_size))
