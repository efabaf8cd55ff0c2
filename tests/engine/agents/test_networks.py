"""Networks: parts that only some devices use, and those of the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from engine.agents import DoubleDQN
from engine.agents.networks import _convolve_blocks, _divides_into_blocks, make_network
from engine.config.fields import ConfigError
from engine.evaluation.policy import greedy_act
from engine.runners.learning.policy_file import on_cpu


def test_a_convolution_of_blocks_is_the_convolution() -> None:
    torch.manual_seed(0)
    for height, width in ((84, 84), (50, 60), (37, 63)):
        layer = nn.Conv2d(4, 5, 8, stride=4, dtype=torch.float64)
        x = torch.rand(2, 4, height, width, dtype=torch.float64)
        torch.testing.assert_close(_convolve_blocks(x, layer.weight, layer.bias, 4), layer(x))
    layer = nn.Conv2d(3, 2, (6, 4), stride=2, dtype=torch.float64)
    x = torch.rand(1, 3, 11, 9, dtype=torch.float64)
    assert _divides_into_blocks(layer)
    torch.testing.assert_close(
        _convolve_blocks(x, layer.weight, layer.bias, 2), F.conv2d(x, layer.weight, layer.bias, 2)
    )


def test_other_convolutions_are_not_made_of_blocks() -> None:
    for layer in (nn.Conv2d(4, 8, 8, stride=3), nn.Conv2d(4, 8, 3, stride=1), nn.Conv2d(4, 8, 8, stride=4, padding=1)):
        assert not _divides_into_blocks(layer)


OWN = "tests.support.own_networks"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Unused", "it must learn every parameter, and shared.weight gets no gradient"),
        ("Frozen", "it must learn every parameter, and last.weight gets no gradient"),
        ("InPlace", "can't learn: RuntimeError: one of the variables needed for gradient computation"),
        ("Empty", "has no parameters to learn"),
        ("Double", "its parameters must be float32, got float64"),
        ("Squeezed", r"must return float32 \[1, 2\] for a batch of 1, got float32 \[2\]"),
        ("Two", r"must return float32 \[3, 2\] for a batch of 3, got float32 \[2, 2\]"),
        ("Exit", "fails: SystemExit: 4"),
        ("Pair", r"must return float32 \[3, 2\] for a batch of 3, got tuple"),
        ("Normed", "has buffers, such as those of BatchNorm, which actors don't receive"),
        ("no_module", r"must make a torch\.nn\.Module, got function"),
    ],
)
def test_a_network_of_the_users_that_can_not_learn_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_network(f"{OWN}:{name}", 1, (4,), 2)


def test_layers_that_share_weights_are_saved_and_nothing_is_dropped_in_evaluations(tmp_path: Path) -> None:
    torch.manual_seed(0)
    online, target = (make_network(f"{OWN}:Net", 1, (4,), 2) for _ in range(2))
    agent = DoubleDQN(online, target, device=torch.device("cpu"), learning_rate=1e-3, precision="float32", tau=1.0)
    obs = np.random.default_rng(0).random((512, 1, 4), np.float32)
    chosen = agent.play(obs)
    assert np.array_equal(agent.play(obs), chosen)
    assert [name for name, module in online.named_modules() if not module.training] == ["calm"]  # as it was made
    save_file(on_cpu(online.state_dict()), tmp_path / "own.safetensors")
    restored = make_network(f"{OWN}:Net", 1, (4,), 2)
    restored.load_state_dict(load_file(tmp_path / "own.safetensors"))
    assert np.array_equal(greedy_act(restored.eval())(obs, None), chosen)
