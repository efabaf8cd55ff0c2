"""Dueling Q-networks for stacked frames of games and boards.

All take observations [batch, stack, (planes,) height, width] with values 0 to 255, as uint8 or any float dtype, and
return Q-values float32 [batch, actions]. Observations are not divided by 255; the weights of the first layer are. That
saves a pass over the frames, and uint8 values are exact in every float dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.afterstates import AfterstateQNetwork
from engine.agents.dueling import dueling, in_float32, stream, through
from engine.agents.paths import PathsQNetwork
from engine.config.run_config import RunConfig
from engine.envs.vec_env import Spec


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


TORSOS: dict[str, Callable[[int], nn.Sequential]] = {"nature": _nature, "small": _small, "grid": _grid}
_PIECE_PLANE, _BOX = 2, 4  # the plane in which Tetris shows the piece, and the side of its box


class DuelingQNetwork(nn.Module):
    """A convolutional torso with a value stream and an advantage stream.

    Args:
        stack: frames in an observation.
        frame_shape: (height, width) of a frame, or (planes, height, width).
        actions: number of actions.
        torso: one of `TORSOS`.
        hidden: width of each of the two streams.
    """

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
        first = self.features[0]
        assert isinstance(first, nn.Conv2d)
        x = F.conv2d(_planes(obs), first.weight / 255, first.bias, first.stride, first.padding)
        features = self.features[1:](x).flatten(1)
        return dueling(through(self.value, features), through(self.advantage, features))


class ColumnsQNetwork(nn.Module):
    """For Tetris: shares weights between columns, because a piece fits one column as well as another.

    The first layer sees whole columns with two neighbours on either side. The piece, which the board shows in its
    corner, is added to the features of every column, so the advantage of a rotation and a column is computed in that
    column.

    Args:
        stack: 1.
        frame_shape: (planes, height, width) of `engine.envs.boards.tetris`.
        actions: 4 * width.
        hidden: number of channels, and width of the value stream.
    """

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int, hidden: int = 128) -> None:
        super().__init__()
        planes, height, width = frame_shape
        self._width = width
        self.columns = nn.Conv2d(stack * planes, hidden, (height, 5), padding=(0, 2))
        self.piece = nn.Linear(_BOX * _BOX, hidden)
        self.mix = nn.Sequential(
            nn.ReLU(inplace=True), nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(inplace=True), nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(inplace=True),
        )  # fmt: skip
        self.advantage = nn.Conv1d(hidden, actions // width, 1)
        self.value = nn.Sequential(nn.Linear(hidden * width, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 1))

    def forward(self, obs: Tensor) -> Tensor:
        """See the module's docstring."""
        x = _planes(obs)
        piece = F.linear(x[:, _PIECE_PLANE, :_BOX, :_BOX].flatten(1), self.piece.weight / 255, self.piece.bias)
        columns = self.columns
        x = F.conv2d(x, columns.weight / 255, columns.bias, padding=columns.padding).squeeze(2) + piece[:, :, None]
        features = self.mix(x)  # [batch, hidden, width]
        value = through(self.value, features.flatten(1))
        return dueling(value, in_float32(self.advantage, features).flatten(1))


def _planes(obs: Tensor) -> Tensor:
    """Observations as floats [batch, stack * planes, height, width]."""
    return (obs if obs.is_floating_point() else obs.float()).flatten(1, -3)


NETWORKS: dict[str, Callable[[int, tuple[int, ...], int], nn.Module]] = {
    **{name: partial(DuelingQNetwork, torso=name) for name in TORSOS},
    "columns": ColumnsQNetwork,
    "afterstates": lambda stack, frame_shape, actions: AfterstateQNetwork(frame_shape),
    "paths": lambda stack, frame_shape, actions: PathsQNetwork(frame_shape),
}
"""Makes each network from the frames in an observation, the shape of a frame and the number of actions. The games that
it fits have its name among their `networks` (`engine.config.game.Game`)."""


def make_network(name: str, stack: int, frame_shape: tuple[int, ...], actions: int) -> nn.Module:
    """Build a network by its name, one of `NETWORKS`."""
    return NETWORKS[name](stack, frame_shape, actions)


def make_networks(config: RunConfig, spec: Spec) -> tuple[nn.Module, nn.Module]:
    """Build the online and the target network of a run."""
    name = config.network_name
    online, target = (make_network(name, spec.stack, spec.frame_shape, spec.actions) for _ in range(2))
    for network in (online, target):
        config.game_info.prepare_network(config, network)
    return online, target
