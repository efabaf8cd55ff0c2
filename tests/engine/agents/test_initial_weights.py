"""Weights of a policy for a network with more actions."""

from __future__ import annotations

import torch

from engine.agents.weights import for_actions


def test_a_new_action_that_is_like_none_begins_with_the_mean_of_all() -> None:
    weight, bias = torch.tensor([[1.0, 4.0], [3.0, 8.0]]), torch.tensor([1.0, 5.0])
    weights = {"advantage.2.weight": weight, "advantage.2.bias": bias}
    more = for_actions(weights, ["left", "right"], ["right", "fire", "left"], lambda action, known: None)
    assert more["advantage.2.weight"].tolist() == [[3, 8], [2, 6], [1, 4]]
    assert more["advantage.2.bias"].tolist() == [5, 3 - 0.5, 1]
