"""Updates of an agent, with a replay on the host or on the device that learns.

With a replay on the device the host never waits for the device: sampling, loss, gradients, optimiser step and new
priorities are one function of tensors that stay in place. On CUDA it is launched as one graph. Losses are summed on the
device and read now and then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from engine.agents.double_dqn import DoubleDQN, Losses, Share, UpdateResult
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.buffers.device.storage import Array
from engine.buffers.frames import Batch
from engine.buffers.replay import Replay
from engine.buffers.sampling import Sample
from engine.runtime.devices import GraphedCall
from engine.runtime.stopwatch import stopwatch


class HostUpdate:
    """Takes updates of `agent` with batches from `replay`, which may lie elsewhere than the agent. `random` draws
    them."""

    should_read = True

    def __init__(
        self, agent: DoubleDQN, replay: Replay, batch_size: int, random: np.random.Generator, *, prioritized: bool
    ) -> None:
        self.agent, self.replay, self._random = agent, replay, random
        self._batch_size, self._prioritized = batch_size, prioritized
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


_READ_EVERY = 100
"""Updates after which losses are read; sooner if they take longer than `_READ_EVERY_S`."""
_READ_EVERY_S = 1.0


class DeviceUpdate:
    """Takes updates of `agent` with batches from `replay`.

    Args:
        random: draws the batches on a CPU, as for a replay on the host.
        generator: draws them on another device; None on a CPU.
        log: receives a line if CUDA graphs can't be used.
    """

    def __init__(
        self,
        agent: DoubleDQN,
        replay: DeviceReplayBuffer,
        batch_size: int,
        *,
        random: np.random.Generator,
        generator: torch.Generator | None,
        log: Callable[[str], None],
    ) -> None:
        self.agent, self.replay, self._random, self._generator, self._log = agent, replay, random, generator, log
        self._jitter = torch.zeros(batch_size, dtype=torch.float64, device=agent.device)
        self._sums = torch.zeros(2, dtype=torch.float64, device=agent.device)
        """Of the loss and of the mean Q-value, over the updates since the last reading. NaN and infinity stay in it."""
        self._summed = 0
        self._has_stepped = False  # in the update that is being computed
        self._read_at = time.monotonic()
        self._calls: dict[tuple[bool, int], GraphedCall] = {}

    def begin(self) -> None:
        """Nothing: all of an update is computed where the replay lies."""

    @stopwatch("forward")  # and the rest as well, if all of it is one graph
    def __call__(self) -> None:
        """One update. Raises `NothingToSample` if the replay is empty.

        If memory runs out, `accumulate` is doubled and the update repeated; see `DoubleDQN.update`.
        """
        agent = self.agent
        self.replay.check_not_empty()
        if self._generator is None:
            self._jitter.copy_(torch.from_numpy(self._random.random(len(self._jitter))))
        while True:
            try:
                self._call(agent.moves_target, agent.accumulate)()
            except (RuntimeError, MemoryError) as error:
                if self._has_stepped:
                    raise  # repeated, it would count twice
                self._calls.clear()  # graphs hold the memory of the larger parts
                agent.split_after(error, len(self._jitter))
            else:
                break
        agent.updates += 1
        self.replay.count_update()
        self._summed += 1

    @property
    def should_read(self) -> bool:
        """Return whether it is time to `read`. Always on a CPU, where reading costs nothing."""
        if self.agent.device.type == "cpu" or self._summed >= _READ_EVERY:
            return True
        return self._summed > 0 and time.monotonic() - self._read_at > _READ_EVERY_S

    def read(self) -> Losses | None:
        """Mean loss and Q-value since the last reading, if there were updates. Waits for the device."""
        if not self._summed:
            return None
        loss, q_mean = (self._sums / self._summed).tolist()
        self._sums.zero_()
        self._summed, self._read_at = 0, time.monotonic()
        return Losses(loss, q_mean)

    def _call(self, move_target: bool, accumulate: int) -> GraphedCall:
        """A graph is valid for one number of parts, and for updates that move the target network or don't."""
        key = (move_target, accumulate)
        if key not in self._calls:
            generators = [] if self._generator is None else [self._generator]
            update = partial(self._update, move_target)
            self._calls[key] = GraphedCall(update, self.agent.device, generators=generators, log=self._log)
        return self._calls[key]

    def _update(self, move_target: bool) -> None:
        """Changes only the contents of tensors, and does not wait for the device."""
        agent, replay = self.agent, self.replay
        self._has_stepped = False
        if self._generator is not None:
            self._jitter.uniform_(generator=self._generator)
        with stopwatch("sample"):
            batch, sample = replay.draw(self._jitter)
        gradients, found = agent.gradients(batch, sample.weights)
        self._has_stepped = True
        agent.step(gradients, move_target=move_target)
        with stopwatch("sample"):
            replay.set_priorities(sample, found[2])
        self._sums += found[:2].mean(1)
