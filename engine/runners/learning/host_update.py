"""Updates of an agent whose replay lies on the host."""

from __future__ import annotations

import math

import numpy as np

from engine.agents import DoubleDQN, Losses
from engine.agents.double_dqn import Share, UpdateResult
from engine.buffers import Batch, Replay, Sample
from engine.buffers.device.storage import Array
from engine.config.run_config import RunConfig
from engine.runtime.stopwatch import stopwatch


class HostUpdate:
    """Takes updates of `agent` with batches from `replay`, which may lie elsewhere than the agent. `random` draws
    them."""

    should_read = True

    def __init__(self, agent: DoubleDQN, replay: Replay, config: RunConfig, random: np.random.Generator) -> None:
        self.agent, self.replay, self._random = agent, replay, random
        self._batch_size, self._prioritized = config.batch_size, config.prioritized_replay
        self._begun: tuple[Batch, Sample, list[Share]] | None = None
        self._result: UpdateResult | None = None

    def begin(self) -> None:
        """Draw the batch of the next update, and have its targets computed, if other threads do that; see
        `DoubleDQN.begin`. Raises `NothingToSample`."""
        if self.agent.computes_ahead:
            self._begun = self._draw()

    def _draw(self) -> tuple[Batch, Sample, list[Share]]:
        with stopwatch("sample"):
            batch, sample = self.replay.sample(self._batch_size, self._random)
        return batch, sample, self.agent.begin(batch)

    def __call__(self) -> None:
        """One update. Raises `NothingToSample` before it changes anything."""
        batch, sample, shares = self._begun or self._draw()
        self._begun = None
        weights: Array = sample.weights
        if self._prioritized:  # otherwise all are 1
            weights = self.agent.common_weights(weights, sample.scales)
        self._result = result = self.agent.update(batch, weights, shares)
        if math.isfinite(result.loss):  # otherwise the run ends
            with stopwatch("sample"):
                self.replay.update_priorities(sample, result.td_errors)

    def read(self) -> Losses | None:
        """The losses of the latest update, once."""
        result, self._result = self._result, None
        return result
