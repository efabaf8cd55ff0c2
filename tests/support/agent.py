"""A small agent, and batches for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine.agents import DoubleDQN, DuelingQNetwork
from engine.buffers import Batch

BATCH = 32  # samples


def batch_of(number: int) -> tuple[Batch, np.ndarray]:
    """What update `number` learns from: 9x9 boards, three actions."""
    random = np.random.default_rng(number)
    obs, next_obs = random.integers(0, 256, (2, BATCH, 1, 9, 9), np.uint8)
    returns, discounts = random.normal(size=(2, BATCH)).astype(np.float32)
    return (
        Batch(obs, random.integers(0, 3, BATCH), returns, next_obs, abs(discounts) / 2),
        random.uniform(0.1, 1, BATCH).astype(np.float32),
    )


def agent_of(seed: int, kind: type[DoubleDQN] = DoubleDQN, **options: Any) -> Any:
    torch.manual_seed(seed)
    networks = [DuelingQNetwork(1, (9, 9), 3, "grid", hidden=16) for _ in range(2)]
    return kind(
        *networks, device=torch.device("cpu"), learning_rate=1e-3, precision="float32", sync_every=4, tau=0.5, **options
    )


class Table(nn.Module):
    """Q-values looked up by the observation's only pixel."""

    def __init__(self, rows: list[list[float]]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(rows))

    def forward(self, obs: Tensor) -> Tensor:
        return self.values[obs.flatten(1)[:, 0].long()]
