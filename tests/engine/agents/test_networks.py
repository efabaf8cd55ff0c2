"""Parts of the networks that only some devices use."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from engine.agents.networks import _convolve_blocks, _divides_into_blocks


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
