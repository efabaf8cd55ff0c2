"""The weights of a policy for a network with more actions: a run can go on from a policy that had fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.config.joypad import most_similar

_LOWERED = 0.5
"""By how much the Q-value of a new action is lower at first than that of the most similar action, so that the network
plays almost as the policy does until it has learned what the action is worth."""


def for_actions(weights: Mapping[str, Tensor], known: Sequence[str], wanted: Sequence[str]) -> dict[str, Tensor]:
    """The weights of a dueling network with the actions `known` of Mario, for one with the actions `wanted`.

    Every known action must be wanted. A new one begins with the weights of the most similar known action.
    """
    last = max(int(name.split(".")[1]) for name in weights if name.startswith("advantage."))
    rows = [known.index(most_similar(action, known)) for action in wanted]
    lowered = torch.tensor([0.0 if action in known else _LOWERED for action in wanted])
    weight, bias = f"advantage.{last}.weight", f"advantage.{last}.bias"
    return {**weights, weight: weights[weight][rows], bias: weights[bias][rows] - lowered}
