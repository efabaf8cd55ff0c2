"""Q-networks for stacked frames of any game, and the table of networks.

All return Q-values float32 [batch, actions]; those with a `Head` for quantiles, in a `QuantileQNetwork`, quantiles
[batch, actions, quantiles]. Those for images take observations [batch, stack, (planes,) height, width]
with values 0 to 255, as uint8 or any float dtype. Observations are not divided by 255; the weights of the first layer
are. That saves a pass over the frames, and uint8 values are exact in every float dtype. `mlp` and `mlp-128` take
observations [batch, stack, numbers].

A game whose rules are known can bring a network that knows what follows from an action, and learns only what that is
worth: Q(s, a) = r(s, a) + gamma * V(state after a), afterstates (Sutton & Barto 2018, section 6.8).
"""

from __future__ import annotations

import copy
import pkgutil
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.dueling import PLAIN, Head, dueling, stream, through
from engine.agents.layout import for_convolutions
from engine.agents.spectral import SpectralConv2d
from engine.config.fields import ConfigError
from engine.config.game import Spec, rows_of_numbers
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

    def __init__(self, channels: int, convolution: type[nn.Conv2d] = nn.Conv2d) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(), convolution(channels, channels, 3, padding=1),
            nn.ReLU(inplace=True), convolution(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.layers(x)
        return added


def _impala(channels: int, width: int = 1, convolution: type[nn.Conv2d] = nn.Conv2d) -> nn.Sequential:
    """For images of any size (Espeholt et al. 2018, arXiv:1802.01561, figure 3, the large network). `convolution`: of
    the residual blocks."""
    layers: list[nn.Module] = []
    for planes in (16 * width, 32 * width, 32 * width):
        layers += [nn.Conv2d(channels, planes, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [_Residual(planes, convolution), _Residual(planes, convolution)]
        channels = planes
    return nn.Sequential(*layers, nn.ReLU(inplace=True))


def _wide_impala(channels: int) -> nn.Sequential:
    """`impala` with twice the filters, normalised residual blocks, and at most 6x6 features (Clark et al. 2024,
    arXiv:2411.03820)."""
    *layers, last = _impala(channels, 2, SpectralConv2d)
    return nn.Sequential(*layers, LargestIn(6), last)


class LargestIn(nn.Module):
    """The largest number in each of at most `side` x `side` windows of an image: adaptive max pooling. On CUDA,
    PyTorch's own kernel gives other gradients each time; and ONNX has none."""

    compiled = True  # see `engine.extras.export.export_onnx`

    def __init__(self, side: int) -> None:
        super().__init__()
        self._side = side

    def forward(self, x: Tensor) -> Tensor:
        counts = [min(self._side, size) for size in x.shape[2:]]
        if self.compiled and x.device.type == "cpu":
            return F.adaptive_max_pool2d(x, counts)
        for axis, count in enumerate(counts, 2):
            size = x.shape[axis]
            windows = [(size * i // count, -(-size * (i + 1) // count)) for i in range(count)]
            x = torch.stack([x.narrow(axis, begin, end - begin).amax(axis) for begin, end in windows], axis)
        return x


TORSOS: dict[str, Callable[[int], nn.Sequential]] = {
    "nature": _nature, "small": _small, "grid": _grid, "impala": _impala, "impala-wide": _wide_impala,
}  # fmt: skip


class DuelingQNetwork(nn.Module):
    """A convolutional torso with a value stream and an advantage stream.

    Args:
        stack: frames in an observation.
        frame_shape: (height, width) of a frame, or (planes, height, width).
        actions: number of actions.
        torso: one of `TORSOS`.
        hidden: width of each of the two streams.
        numbers: beside a frame.
        head: what the streams tell.
    """

    takes_floats = True
    """Whether floats from 0 to 255 are the same as uint8; see `engine.agents.layout.as_input`."""

    def __init__(
        self,
        stack: int,
        frame_shape: tuple[int, ...],
        actions: int,
        torso: str = "nature",
        hidden: int = 256,
        numbers: int = 0,
        head: Head = PLAIN,
    ) -> None:
        super().__init__()
        channels = stack * (frame_shape[0] if len(frame_shape) == 3 else 1)
        self.features = TORSOS[torso](channels)
        with torch.no_grad():
            width = self.features(torch.zeros(1, channels, *frame_shape[-2:])).numel() + stack * numbers
        # Boards are learned faster without LayerNorm: 5x5 Snake reaches 2.5 fruits and more in 14,000 steps, not 1.9.
        norm = torso != "grid"
        self.value, self.advantage = (stream(width, hidden, out, norm=norm, head=head) for out in (1, actions))

    def forward(self, obs: Tensor, numbers: Tensor | None = None) -> Tensor:
        """See the module's docstring. numbers: float32 [batch, stack, numbers]."""
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
        if numbers is not None:
            features = torch.cat([features, numbers.flatten(1)], 1)
        return dueling(through(self.value, features), through(self.advantage, features))


class VectorQNetwork(nn.Module):
    """Two layers for vectors, then a value stream and an advantage stream.

    Args:
        stack: frames in an observation.
        frame_shape: (numbers,) of a frame.
        actions: number of actions.
        hidden: width of each layer.
        head: what the streams tell.
    """

    def __init__(
        self, stack: int, frame_shape: tuple[int, ...], actions: int, hidden: int = 256, head: Head = PLAIN
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(stack * frame_shape[0], hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
        )  # fmt: skip
        self.value, self.advantage = (stream(hidden, hidden, out, norm=False, head=head) for out in (1, actions))

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] of observations float32 [batch, stack, numbers]."""
        features = self.features(obs.flatten(1))
        return dueling(through(self.value, features), through(self.advantage, features))


class MinAtarQNetwork(nn.Module):
    """One convolution and one hidden layer, without separate streams (Young and Tian 2019, arXiv:1903.03176).

    Args:
        stack: frames in an observation.
        frame_shape: (height, width) of a frame, or (planes, height, width); at least 3x3.
        actions: number of actions.
        head: what the last layer tells.
    """

    takes_floats = True

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int, head: Head = PLAIN) -> None:
        super().__init__()
        channels = stack * (frame_shape[0] if len(frame_shape) == 3 else 1)
        height, width = frame_shape[-2:]
        self.convolution = nn.Conv2d(channels, 16, 3)
        self.layers = stream(16 * (height - 2) * (width - 2), 128, actions, norm=False, head=head)
        self._actions = actions

    def forward(self, obs: Tensor) -> Tensor:
        """See the module's docstring."""
        features = F.relu(self.convolution(as_planes(obs) / 255))
        found = through(self.layers, features.flatten(1))
        return (
            found if found.shape[1] == self._actions else found.view(-1, self._actions, found.shape[1] // self._actions)
        )


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


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": VectorQNetwork,
    "mlp-128": partial(VectorQNetwork, hidden=128),
    "minatar": MinAtarQNetwork,
    **{name: partial(DuelingQNetwork, torso=name) for name in TORSOS},
    "impala-wide": partial(DuelingQNetwork, torso="impala-wide", hidden=512),
}
"""Makes each network from the frames in an observation, the shape of a frame and the number of actions, those of
`TORSOS` also from that of numbers beside a frame. The games that
it fits have its name among their `networks` (`engine.config.game.Game`); they may bring others."""


FROZEN_AFTER = 100_000
"""Frames after which `Normalized` keeps its mean and deviation."""
_FARTHEST = 10.0
"""Deviations beyond which a number is clipped, as Stable-Baselines3's `VecNormalize` does."""
_SMALLEST_DEVIATION = 1e-4


class OfRawNumbers(nn.Module):
    """A network that changes its input before the user's, or the game's, `network` sees it."""

    network: nn.Module

    @abstractmethod
    def observe(self, frames: Tensor) -> None:
        """Take played frames [n, *frame_shape] into what it knows of the input."""


class Normalized(OfRawNumbers):
    """A network for vectors, shifted by their mean and divided by their deviation in what has been played.

    Args:
        network: takes observations [batch, stack, numbers].
        numbers: in a frame.
    """

    mean: Tensor  # float32 [numbers]
    deviation: Tensor  # float32 [numbers]
    count: Tensor  # float32 [], frames that they are of

    def __init__(self, network: nn.Module, numbers: int) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.zeros(numbers))
        self.register_buffer("deviation", torch.ones(numbers))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] of observations float32 [batch, stack, numbers]."""
        q: Tensor = self.network(self.scaled(obs))
        return q

    def scaled(self, obs: Tensor) -> Tensor:
        """What the network within takes."""
        deviations = (obs - self.mean) / self.deviation.clamp(min=_SMALLEST_DEVIATION)
        return deviations.clamp(-_FARTHEST, _FARTHEST)

    def observe(self, frames: Tensor) -> None:
        """Take frames [n, numbers] into mean and deviation (Chan et al. 1979), unless these are of `FROZEN_AFTER`."""
        if self.count >= FROZEN_AFTER:
            return
        exact, mean, count = frames.double(), self.mean.double(), self.count.double()
        share = len(exact) / (count + len(exact))
        shift = exact.mean(0) - mean
        before, variance = self.deviation.double().square() * (1 - share), exact.var(0, unbiased=False) * share
        self.deviation.copy_((before + variance + shift.square() * share * (1 - share)).sqrt())
        self.mean.copy_(mean + shift * share)
        self.count += len(exact)


class ImageAndNumbers(OfRawNumbers):
    """A network that sees images, and numbers beside them, of frames that hold both; see `engine.config.game.Spec`.

    Args:
        network: takes images [batch, stack, (planes,) height, width] and float32 [batch, stack, numbers].
        numbers: in a frame.
        rows: last rows of a frame, with the numbers.
        normalized: whether numbers are as in `Normalized`.
    """

    def __init__(self, network: nn.Module, numbers: int, rows: int, *, normalized: bool) -> None:
        super().__init__()
        self.network, self._numbers, self._rows = network, numbers, rows
        self.scale = Normalized(nn.Identity(), numbers) if normalized else nn.Identity()

    def parts(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Images and numbers of observations uint8 [batch, stack, *frame_shape]."""
        held = obs[..., -self._rows :, :].flatten(2)[..., : 4 * self._numbers]
        return obs[..., : -self._rows, :], held.contiguous().view(torch.float32)

    def of_parts(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] of `parts`."""
        q: Tensor = self.network(images, self.scale(numbers))
        return q

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] of observations uint8 [batch, stack, *frame_shape]."""
        return self.of_parts(*self.parts(obs))

    def observe(self, frames: Tensor) -> None:
        """Take the numbers of frames into mean and deviation."""
        if isinstance(self.scale, Normalized):
            self.scale.observe(self.parts(frames[:, None])[1][:, 0])


class QuantileQNetwork(OfRawNumbers):
    """Q-values that are the means of quantiles of the returns; see `engine.agents.values`.

    Args:
        network: returns quantiles float32 [batch, actions, quantiles].
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.takes_floats = getattr(network, "takes_floats", False)

    def quantiles(self, obs: Tensor) -> Tensor:
        """Quantiles float32 [batch, actions, quantiles] of the returns of actions."""
        found: Tensor = self.network(obs)
        return found

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions]."""
        return self.quantiles(obs).mean(2)

    def observe(self, frames: Tensor) -> None:
        if isinstance(self.network, OfRawNumbers):
            self.network.observe(frames)


def inner_of(network: nn.Module) -> nn.Module:
    """The user's, or the game's, network in a network."""
    while isinstance(network, OfRawNumbers):
        network = network.network
    return network


def buffers_of(network: nn.Module) -> list[Tensor]:
    """What of a network's state is not learned, such as running means; none of `Afterstates`, which every process sets
    alike."""
    if isinstance(network, Afterstates):
        return []
    learned = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    return [tensor for name, tensor in network.state_dict(keep_vars=True).items() if name not in learned]


def make_network(
    name: str,
    stack: int,
    frame_shape: tuple[int, ...],
    actions: int,
    *,
    own: Mapping[str, str] = MappingProxyType({}),
    normalized: bool = False,
    numbers: int = 0,
    head: Head = PLAIN,
) -> nn.Module:
    """Build a network by its name: one of `NETWORKS`, of a game's `own` (`engine.config.game.Game.own_networks`), or
    `MODULE:CLASS` of the user's. Raises `ConfigError` if one that is not the program's does not fit."""
    beside: dict[str, Any] = {} if head == PLAIN else {"head": head}
    if numbers:
        rows = rows_of_numbers(numbers, frame_shape)
        image = (*frame_shape[:-2], frame_shape[-2] - rows, frame_shape[-1])
        network = _made(name, (stack, image, actions), own, numbers=numbers, **beside)
        network = ImageAndNumbers(network, numbers, rows, normalized=normalized)
    else:
        network = _made(name, (stack, frame_shape, actions), own, **beside)
        network = Normalized(network, frame_shape[0]) if normalized else network
    return QuantileQNetwork(network) if head.quantiles else network


def _made(name: str, shape: tuple[int, tuple[int, ...], int], own: Mapping[str, str], **beside: Any) -> nn.Module:
    if ":" in name:
        return _checked(import_named(name, "network"), name, *shape, **beside)
    if name in own:
        make = pkgutil.resolve_name(own[name])
        if not own[name].startswith("engine."):  # of a package
            return _checked(make, own[name], *shape, **beside)
        network: nn.Module = make(*shape, **beside)
        return network
    return NETWORKS[name](*shape, **beside)


def _check_values(name: str, values: Any, shape: tuple[int, int]) -> None:
    """Raise `ConfigError` unless the values that a network of the user's own returned have the shape."""
    is_tensor = isinstance(values, Tensor)
    if is_tensor and (values.shape, values.dtype) == (shape, torch.float32):
        return
    got = f"{values.dtype} {list(values.shape)}".removeprefix("torch.") if is_tensor else type(values).__name__
    raise ConfigError("network", f"{name} must return float32 {list(shape)} for a batch of {shape[0]}, got {got}")


@torch.enable_grad()
def _checked(
    make: Callable[..., Any], name: str, stack: int, frame_shape: tuple[int, ...], actions: int, **beside: int
) -> nn.Module:
    try:
        network = make(stack, frame_shape, actions, **beside)
        if not isinstance(network, nn.Module):
            raise ConfigError("network", f"{name} must make a torch.nn.Module, got {type(network).__name__}")
        acting, learning = copy.deepcopy(network).eval(), copy.deepcopy(network)
        places = [id(each) for each in learning.buffers()]
        for each, batch in ((acting, 3), (acting, 1), (learning, 2)):
            dtype = torch.uint8 if len(frame_shape) > 1 else torch.float32
            numbers = {name: torch.zeros(batch, stack, count) for name, count in beside.items()}
            values = each(torch.zeros(batch, stack, *frame_shape, dtype=dtype), **numbers)
            _check_values(name, values, (batch, actions))
        if not all(map(torch.equal, acting.buffers(), network.buffers())):
            raise ConfigError("network", f"{name} must not change its buffers in evaluation mode, in which it acts")
        if [id(each) for each in learning.buffers()] != places:
            raise ConfigError("network", f"{name} must change its buffers in place")
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError("network", f"{name} fails: {described_error(error)}") from error
    parameters = dict(learning.named_parameters())
    floats = [*parameters.values(), *(each for each in network.buffers() if each.is_floating_point())]
    if other := {str(each.dtype).removeprefix("torch.") for each in floats} - {"float32"}:
        raise ConfigError(
            "network", f"{name}: its parameters and buffers must be float32, got {', '.join(sorted(other))}"
        )
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


@runtime_checkable
class PreparesNetworks(Protocol):
    """A game whose networks have to know more than observations."""

    def prepare_network(self, config: RunConfig, network: nn.Module) -> None:
        """Tell a new network of the run what it has to know."""


def make_networks(config: RunConfig, spec: Spec) -> tuple[nn.Module, nn.Module]:
    """Build the online and the target network of a run."""
    game = config.game_info
    shape = (spec.stack, spec.frame_shape, spec.actions)
    head = Head(config.quantiles, config.noisy)
    raw: dict[str, Any] = {"normalized": spec.normalized, "numbers": spec.numbers}
    online, target = (
        make_network(config.network_name, *shape, own=game.own_networks, **raw, head=head) for _ in range(2)
    )
    if isinstance(game, PreparesNetworks):
        for network in (online, target):
            game.prepare_network(config, network)
    return online, target


def for_learning(network: nn.Module) -> nn.Module:
    """A copy with the same tensors, for passes with gradients. The network itself goes into evaluation mode, in which
    it acts and values: dropout belongs to the gradients alone."""
    tensors = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    learning = copy.deepcopy(network, tensors)
    network.eval()
    return learning


class Afterstates(nn.Module):
    """A network whose Q-values contain the rewards, so that it needs the discount factor."""

    gamma: Tensor  # float32 []

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gamma", torch.zeros(()))

    @abstractmethod
    def of_actions(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values [images, batch] of one action int64 [batch] per observation: of what follows, and of other states
        that are worth the same, such as its mirror image. Cheaper than the Q-values of all actions."""


def set_gamma(network: nn.Module, gamma: float) -> None:
    """Set the discount factor of a network for afterstates; for other networks it is the replay's alone."""
    if isinstance(network, Afterstates):
        network.gamma.fill_(gamma)
