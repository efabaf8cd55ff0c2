"""The weights of a policy for a network with more actions: a run can go on from a policy that had fewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

_LOWERED = 0.5
"""By how much the Q-value of a new action is lower at first than that of the most similar action, so that the network
plays almost as the policy does until it has learned what the action is worth."""


def for_actions(
    weights: Mapping[str, Tensor],
    known: Sequence[str],
    wanted: Sequence[str],
    most_similar: Callable[[str, Sequence[str]], str | None],
) -> dict[str, Tensor]:
    """The weights of a dueling network with the actions `known`, for one with the actions `wanted`.

    Every known action must be wanted. A new one begins with the weights of the most similar known action, or with the
    mean of all where there is none.
    """
    last = max(int(name.split(".")[1]) for name in weights if name.startswith("advantage."))
    similar = [action if action in known else most_similar(action, known) for action in wanted]
    lowered = torch.tensor([0.0 if action in known else _LOWERED for action in wanted])

    def rows(values: Tensor) -> Tensor:
        return torch.stack([values.mean(0) if like is None else values[known.index(like)] for like in similar])

    weight, bias = f"advantage.{last}.weight", f"advantage.{last}.bias"
    return {**weights, weight: rows(weights[weight]), bias: rows(weights[bias]) - lowered}
