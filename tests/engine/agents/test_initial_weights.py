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


def test_all_quantiles_and_the_noise_of_an_action_go_with_it() -> None:
    weights = {
        "advantage.2.weight": torch.tensor([[1.0], [2.0], [3.0], [6.0]]),  # of two quantiles of two actions
        "advantage.2.bias": torch.tensor([1.0, 2.0, 3.0, 6.0]),
        "advantage.2.weight_deviation": torch.tensor([[0.1], [0.2], [0.3], [0.4]]),
        "value.2.weight": torch.tensor([[7.0], [8.0]]),
    }
    more = for_actions(weights, ["left", "right"], ["right", "fire", "left"], lambda action, known: "left")
    assert more["advantage.2.weight"].flatten().tolist() == [3, 6, 1, 2, 1, 2]
    assert more["advantage.2.bias"].tolist() == [3, 6, 0.5, 1.5, 1, 2]
    assert [round(each, 1) for each in more["advantage.2.weight_deviation"].flatten().tolist()] == [
        0.3, 0.4, 0.1, 0.2, 0.1, 0.2,
    ]  # fmt: skip
    assert more["value.2.weight"] is weights["value.2.weight"]
