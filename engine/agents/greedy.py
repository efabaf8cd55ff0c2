"""Greedy choice among legal actions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def greedy(q: Tensor, masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Legal actions [lanes] with the largest of the Q-values [lanes, actions]; masks: legal ones [lanes, actions]."""
    return mask_illegal(q, masks).argmax(1).cpu().numpy()


def mask_illegal(q: Tensor, masks: NDArray[np.bool_] | None) -> Tensor:
    """Q-values [lanes, actions] with those of illegal actions replaced by -inf."""
    return q if masks is None else q.masked_fill(~torch.from_numpy(masks).to(q.device), -torch.inf)
