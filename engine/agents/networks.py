"""Dueling Q-networks for stacked frames of any game, and the table of networks.

All return Q-values float32 [batch, actions]. Those for images take observations [batch, stack, (planes,) height, width]
with values 0 to 255, as uint8 or any float dtype. Observations are not divided by 255; the weights of the first layer
are. That saves a pass over the frames, and uint8 values are exact in every float dtype. `mlp` takes observations
[batch, stack, numbers].
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.dueling import dueling, stream, through
from engine.agents.layout import for_convolutions
from engine.config.fields import ConfigError
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.config.user_code import described_error, import_named


def _nature(channels: int, filters: tuple[int, int, int] = (32, 64, 64)) -> nn.Sequential:
    """For screens of at least 36x36 pixels (Mnih et al. 2015)."""
    first, second, third = filters
    return nn.Sequential(
        nn.Conv2d(channels, first, 8, stride=4), nn.ReLU(inplace=True),
        nn.Conv2d(first, second, 4, stride=2), nn.ReLU(inplace=True),
        nn.Conv2d(second, third, 3), nn.ReLU(inplace=True),
    )  # fmt: skip


def _small(channels: int) -> nn.Sequential:
    """`nature` with half the filters in the first layer, which takes most of the time: an update costs 0.6 times as
    much."""
    return _nature(channels, (16, 32, 64))


def _grid(channels: int) -> nn.Sequential:
    """For boards, with one pixel per cell."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(inplace=True),
    )  # fmt: skip


class _Residual(nn.Module):
    """Two convolutions whose result is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(inplace=True), nn.Conv2d(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.layers(x)
        return added


def _impala(channels: int) -> nn.Sequential:
    """For images of any size (Espeholt et al. 2018, arXiv:1802.01561, figure 3, the large network)."""
    layers: list[nn.Module] = []
    for planes in (16, 32, 32):
        layers += [nn.Conv2d(channels, planes, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [_Residual(planes), _Residual(planes)]
        channels = planes
    return nn.Sequential(*layers, nn.ReLU(inplace=True))


TORSOS: dict[str, Callable[[int], nn.Sequential]] = {
    "nature": _nature, "small": _small, "grid": _grid, "impala": _impala,
}  # fmt: skip


class DuelingQNetwork(nn.Module):
    """A convolutional torso with a value stream and an advantage stream.

    Args:
        stack: frames in an observation.
        frame_shape: (height, width) of a frame, or (planes, height, width).
        actions: number of actions.
        torso: one of `TORSOS`.
        hidden: width of each of the two streams.
    """

    takes_floats = True
    """Whether floats from 0 to 255 are the same as uint8; see `engine.agents.layout.as_input`."""

    def __init__(
        self, stack: int, frame_shape: tuple[int, ...], actions: int, torso: str = "nature", hidden: int = 256
    ) -> None:
        super().__init__()
        channels = stack * (frame_shape[0] if len(frame_shape) == 3 else 1)
        self.features = TORSOS[torso](channels)
        with torch.no_grad():
            width = self.features(torch.zeros(1, channels, *frame_shape[-2:])).numel()
        # Boards are learned faster without LayerNorm: 5x5 Snake reaches 2.5 fruits and more in 14,000 steps, not 1.9.
        self.value, self.advantage = (stream(width, hidden, out, norm=torso != "grid") for out in (1, actions))

    def forward(self, obs: Tensor) -> Tensor:
        """See the module's docstring."""
        first, *others, last = self.features
        assert isinstance(first, nn.Conv2d)
        weight, x = first.weight / 255, for_convolutions(as_planes(obs))
        if obs.device.type == "cuda" and _divides_into_blocks(first):
            x = _convolve_blocks(x, weight, first.bias, first.stride[0])
        else:
            x = F.conv2d(x, weight, first.bias, first.stride, first.padding)
        for layer in others:
            x = layer(x)
        features = last(x.flatten(1))  # flattened before the last ReLU, because the gradients come in that layout
        return dueling(through(self.value, features), through(self.advantage, features))


class VectorQNetwork(nn.Module):
    """Two layers for vectors, then a value stream and an advantage stream.

    Args:
        stack: frames in an observation.
        frame_shape: (numbers,) of a frame.
        actions: number of actions.
        hidden: width of each layer.
    """

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int, hidden: int = 256) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(stack * frame_shape[0], hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
        )  # fmt: skip
        self.value, self.advantage = (stream(hidden, hidden, out, norm=False) for out in (1, actions))

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] of observations float32 [batch, stack, numbers]."""
        features = self.features(obs.flatten(1))
        return dueling(through(self.value, features), through(self.advantage, features))


def as_planes(obs: Tensor) -> Tensor:
    """Observations as floats [batch, stack * planes, height, width], in autocast's dtype where that is on."""
    device = obs.device.type
    if not obs.is_floating_point():
        mixed = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        obs = obs.to(torch.get_autocast_dtype(device) if mixed else torch.float32)
    return obs.flatten(1, -3)


def _divides_into_blocks(layer: nn.Conv2d) -> bool:
    stride = layer.stride[0]
    return stride > 1 and layer.padding == (0, 0) and all(side % stride == 0 for side in layer.kernel_size)


def _convolve_blocks(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """The convolution with this stride, as one with stride 1 of blocks of stride x stride pixels as channels.

    Tensor cores take channels by the dozen, so a first layer with four is slow: on an H100, 256 screens of 84x84 take
    18 microseconds instead of 121.
    """
    batch, planes, *size = x.shape
    filters, _, *kernel = weight.shape
    rows, columns = (side // stride for side in size)
    across, down = (side // stride for side in reversed(kernel))
    x = x[..., : rows * stride, : columns * stride].reshape(batch, planes, rows, stride, columns, stride)
    x = x.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows, columns, -1).permute(0, 3, 1, 2)  # channels last in memory
    weight = weight.reshape(filters, planes, down, stride, across, stride)
    weight = weight.permute(0, 2, 4, 1, 3, 5).reshape(filters, down, across, -1).permute(0, 3, 1, 2)
    return F.conv2d(x, weight, bias)


NETWORKS: dict[str, Callable[[int, tuple[int, ...], int], nn.Module]] = {
    "mlp": VectorQNetwork,
    **{name: partial(DuelingQNetwork, torso=name) for name in TORSOS},
}
"""Makes each network from the frames in an observation, the shape of a frame and the number of actions. The games that
it fits have its name among their `networks` (`engine.config.game.Game`); they may bring others."""


def make_network(
    name: str, stack: int, frame_shape: tuple[int, ...], actions: int, *, own: Mapping[str, str] = MappingProxyType({})
) -> nn.Module:
    """Build a network by its name: one of `NETWORKS`, of a game's `own` (`engine.config.game.Game.own_networks`), or
    `MODULE:CLASS` of the user's. Raises `ConfigError` if the user's does not fit."""
    if ":" in name:
        return _of_user(name, stack, frame_shape, actions)
    if name in own:
        network: nn.Module = pkgutil.resolve_name(own[name])(stack, frame_shape, actions)
        return network
    return NETWORKS[name](stack, frame_shape, actions)


def _check_values(name: str, values: Any, shape: tuple[int, int]) -> None:
    """Raise `ConfigError` unless the values that a network of the user's own returned have the shape."""
    is_tensor = isinstance(values, Tensor)
    if is_tensor and (values.shape, values.dtype) == (shape, torch.float32):
        return
    got = f"{values.dtype} {list(values.shape)}".removeprefix("torch.") if is_tensor else type(values).__name__
    raise ConfigError("network", f"{name} must return float32 {list(shape)} for a batch of {shape[0]}, got {got}")


@torch.enable_grad()
def _of_user(name: str, stack: int, frame_shape: tuple[int, ...], actions: int) -> nn.Module:
    make = import_named(name, "network")
    try:
        network = make(stack, frame_shape, actions)
        if not isinstance(network, nn.Module):
            raise ConfigError("network", f"{name} must make a torch.nn.Module, got {type(network).__name__}")
        if any(True for _ in network.buffers()):
            raise ConfigError("network", f"{name} has buffers, such as those of BatchNorm, which actors don't receive")
        for batch in (3, 1):
            dtype = torch.uint8 if len(frame_shape) > 1 else torch.float32
            values = network(torch.zeros(batch, stack, *frame_shape, dtype=dtype))
            _check_values(name, values, (batch, actions))
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError("network", f"{name} fails: {described_error(error)}") from error
    parameters = dict(network.named_parameters())
    if other := {str(each.dtype).removeprefix("torch.") for each in parameters.values()} - {"float32"}:
        raise ConfigError("network", f"{name}: its parameters must be float32, got {', '.join(sorted(other))}")
    learned = [each for each in parameters.values() if each.requires_grad]
    try:
        gradients = torch.autograd.grad(values.sum(), learned, allow_unused=True) if values.requires_grad else []
    except RuntimeError as error:
        raise ConfigError("network", f"{name} can't learn: {described_error(error)}") from error
    found = {id(each) for each, gradient in zip(learned, gradients, strict=False) if gradient is not None}
    if not found:
        raise ConfigError("network", f"{name} has no parameters to learn")
    if idle := [parameter for parameter, each in parameters.items() if id(each) not in found]:
        raise ConfigError("network", f"{name}: it must learn every parameter, and {idle[0]} gets no gradient")
    return network


def make_networks(config: RunConfig, spec: Spec) -> tuple[nn.Module, nn.Module]:
    """Build the online and the target network of a run."""
    game = config.game_info
    shape = (spec.stack, spec.frame_shape, spec.actions)
    online, target = (make_network(config.network_name, *shape, own=game.own_networks) for _ in range(2))
    for network in (online, target):
        game.prepare_network(config, network)
    return online, target
