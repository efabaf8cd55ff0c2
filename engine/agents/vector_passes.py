"""The passes of a `VectorQNetwork` on a CPU in float32, compiled.

Such a network is so small that PyTorch takes longer to start its operations than to compute them, and its matrix
products use a third of a core. Here a pass is one call. Arrays of activations have a row for each unit and a column for
each sample, so only the gradients of weights need them transposed.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.agents.networks import QuantileQNetwork, VectorQNetwork, inner_of
from engine.agents.noisy import noisy_layers
from engine.console.compiler.kernels import bind_last, helper, kernel, multiply_add

_WEIGHT, _BIAS, _FROM, _INPUTS, _TO, _OUTPUTS, _RECTIFIED = range(7)
"""Of a layer: where its parameters begin, rows of what it takes and gives, and whether a ReLU follows."""
_VALUE, _ADVANTAGE = 3, 5  # the last layers of both streams; the first ones take what the second layer gives
_TAKES = (0, 1, 2, 3, 2, 5)


class VectorPasses:
    """The passes of a `VectorQNetwork` whose parameters are parts of `flat` (`engine.agents.layout.flattened`)."""

    @staticmethod
    def fit(network: nn.Module) -> bool:
        """Return whether they are those of a network. Noise and quantiles are left to PyTorch."""
        inner = inner_of(network)
        is_plain = not isinstance(network, QuantileQNetwork) and not noisy_layers(network)
        return type(inner) is VectorQNetwork and is_plain

    def __init__(self, network: nn.Module, flat: Tensor) -> None:
        parameters = list(network.parameters())
        weights = parameters[::2]
        outputs = [len(each) for each in weights]
        rows = [0, *itertools.accumulate([weights[0].shape[1], *outputs])]
        begins = [each.storage_offset() for each in parameters]
        self._layers = np.array([
            (*begins[2 * place : 2 * place + 2], rows[_TAKES[place]], weight.shape[1], rows[place + 1], outputs[place],
             place not in (_VALUE, _ADVANTAGE))
            for place, weight in enumerate(weights)
        ])  # fmt: skip
        self._size, self._actions, self._rows = flat.numel(), outputs[-1], rows[-1]
        bound = (flat.detach().numpy(), self._layers)
        self._values, self._gradients = bind_last(_values, *bound), bind_last(_gradients, *bound)

    def values(self, obs: NDArray[np.float32]) -> Tensor:
        """Q-values [batch, actions] of observations [batch, ...]."""
        size = len(obs)
        q = np.empty((size, self._actions), np.float32)
        self._values(_matrix(obs), q, np.empty(self._rows * size, np.float32))
        return torch.from_numpy(q)

    def gradients(
        self,
        obs: NDArray[np.float32],
        actions: NDArray[np.int64],
        targets: NDArray[np.float32],
        importance: NDArray[np.float32],
        gap_share: float,
        batch: int,
    ) -> tuple[list[Tensor], Tensor]:
        """What these samples contribute to the gradients of the mean loss of a batch with so many, as one tensor like
        `flat`, and their part [3, samples] of what `DoubleDQN.gradients` returns."""
        size = len(obs)
        gradients, found = np.zeros(self._size, np.float32), np.empty((3, size), np.float32)
        activations, turned = (np.empty(self._rows * size, np.float32) for _ in range(2))
        slopes = np.zeros(self._rows * size, np.float32)
        self._gradients(
            _matrix(obs), actions, targets, importance, gap_share, batch, gradients, found, activations,
            slopes, turned,
        )  # fmt: skip
        return [torch.from_numpy(gradients)], torch.from_numpy(found)


def _matrix(obs: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(obs.reshape(len(obs), -1))


@kernel("float32[2], float32[2], float32[1], float32[1], int64[2]")
def _values(obs: Any, q: Any, activations: Any, weights: Any, layers: Any) -> None:
    """Fill `q` [batch, actions]."""
    _forward(obs, activations, weights, layers)
    size = len(obs)
    for sample in range(size):
        for action in range(q.shape[1]):
            q[sample, action] = activations[(layers[_ADVANTAGE, _TO] + action) * size + sample]


@kernel(
    "float32[2], int64[1], float32[1], float32[1], float64, int64, "
    "float32[1], float32[2], float32[1], float32[1], float32[1], float32[1], int64[2]"
)
def _gradients(
    obs: Any, actions: Any, targets: Any, importance: Any, gap_share: Any, batch: Any,
    gradients: Any, found: Any, activations: Any, slopes: Any, turned: Any, weights: Any, layers: Any,
) -> None:  # fmt: skip
    """Add to `gradients`, and fill `found` [3, samples]; see `VectorPasses.gradients`. `slopes` of the loss are those
    along each activation."""
    size = len(obs)
    _forward(obs, activations, weights, layers)
    _loss(actions, targets, importance, gap_share, batch, found, activations, slopes, layers)
    for place in range(len(layers)):
        layer = layers[len(layers) - 1 - place]
        inputs, outputs = layer[_INPUTS], layer[_OUTPUTS]
        weight = weights[layer[_WEIGHT] : layer[_WEIGHT] + inputs * outputs]
        of_weight = gradients[layer[_WEIGHT] : layer[_WEIGHT] + inputs * outputs]
        of_outputs = slopes[layer[_TO] * size : (layer[_TO] + outputs) * size]
        if layer[_RECTIFIED]:
            given = activations[layer[_TO] * size : (layer[_TO] + outputs) * size]
            for number in range(outputs * size):
                if given[number] <= 0:
                    of_outputs[number] = 0.0
        for unit in range(inputs):
            for sample in range(size):
                turned[sample * inputs + unit] = activations[(layer[_FROM] + unit) * size + sample]
        _add_product(of_outputs, size, 1, turned, of_weight, outputs, size, inputs)
        for unit in range(outputs):
            gradients[layer[_BIAS] + unit] = _sum(of_outputs, unit * size, size)
        if layer[_FROM]:
            of_inputs = slopes[layer[_FROM] * size : (layer[_FROM] + inputs) * size]
            _add_product(weight, 1, inputs, of_outputs, of_inputs, inputs, outputs, size)


@helper
def _forward(obs: Any, activations: Any, weights: Any, layers: Any) -> None:
    """Fill `activations`; those of the last layer are the Q-values."""
    size = len(obs)
    for sample in range(size):
        for number in range(obs.shape[1]):
            activations[number * size + sample] = obs[sample, number]
    for place in range(len(layers)):
        layer = layers[place]
        inputs, outputs = layer[_INPUTS], layer[_OUTPUTS]
        given = activations[layer[_FROM] * size : (layer[_FROM] + inputs) * size]
        found = activations[layer[_TO] * size : (layer[_TO] + outputs) * size]
        for unit in range(outputs):
            for sample in range(size):
                found[unit * size + sample] = weights[layer[_BIAS] + unit]
        weight = weights[layer[_WEIGHT] : layer[_WEIGHT] + inputs * outputs]
        _add_product(weight, inputs, 1, given, found, outputs, inputs, size)
        if layer[_RECTIFIED]:
            for number in range(outputs * size):
                if found[number] < 0:
                    found[number] = 0.0
    value, advantage, actions = layers[_VALUE, _TO], layers[_ADVANTAGE, _TO], layers[_ADVANTAGE, _OUTPUTS]
    for sample in range(size):
        mean = 0.0
        for action in range(actions):
            mean += activations[(advantage + action) * size + sample] / actions
        for action in range(actions):
            activations[(advantage + action) * size + sample] += activations[value * size + sample] - mean


@helper
def _loss(
    actions: Any, targets: Any, importance: Any, gap_share: Any, batch: Any,
    found: Any, activations: Any, slopes: Any, layers: Any,
) -> None:  # fmt: skip
    """The loss of `DoubleDQN._loss`, and its slopes along the outputs of both streams."""
    size, value, advantage = len(actions), layers[_VALUE, _TO], layers[_ADVANTAGE, _TO]
    for sample in range(size):
        q = activations[(advantage + actions[sample]) * size + sample]
        best = q
        for action in range(layers[_ADVANTAGE, _OUTPUTS]):
            other = activations[(advantage + action) * size + sample]
            best = other if other > best else best
        error = q - (targets[sample] - gap_share * (best - q))
        sign = 1.0 if error > 0 else -1.0
        far = error * sign
        near = far if far < 1 else 1.0
        found[0, sample], found[1, sample], found[2, sample] = importance[sample] * near * (far - 0.5 * near), q, far
        slope = importance[sample] * near * sign / batch
        slopes[value * size + sample] = slope
        for action in range(layers[_ADVANTAGE, _OUTPUTS]):
            own = slope if action == actions[sample] else 0.0
            slopes[(advantage + action) * size + sample] = own - slope / layers[_ADVANTAGE, _OUTPUTS]


@helper
def _add_product(a: Any, row: Any, step: Any, b: Any, out: Any, rows: Any, terms: Any, width: Any) -> None:
    """Add to each row i of `out` [rows, width] the sum over k of a[i * row + k * step] * b[k], for `b` [terms, width].

    Four rows and terms at a time, so that a number that is loaded is used four times.
    """
    for i in range(0, rows - 3, 4):
        for k in range(0, terms - 3, 4):
            at = i * row + k * step
            a0, a1, a2, a3 = _four(a, at, step)
            b0, b1, b2, b3 = _four(a, at + row, step)
            c0, c1, c2, c3 = _four(a, at + 2 * row, step)
            d0, d1, d2, d3 = _four(a, at + 3 * row, step)
            for j in range(width):
                x0, x1, x2, x3 = _four(b, k * width + j, width)
                here = i * width + j
                out[here] = _sum_of_four(out[here], a0, x0, a1, x1, a2, x2, a3, x3)
                here += width
                out[here] = _sum_of_four(out[here], b0, x0, b1, x1, b2, x2, b3, x3)
                here += width
                out[here] = _sum_of_four(out[here], c0, x0, c1, x1, c2, x2, c3, x3)
                here += width
                out[here] = _sum_of_four(out[here], d0, x0, d1, x1, d2, x2, d3, x3)
        _add_singly(a, row, step, b, out, i, i + 4, terms - terms % 4, terms, width)
    _add_singly(a, row, step, b, out, rows - rows % 4, rows, 0, terms, width)


@helper
def _add_singly(
    a: Any, row: Any, step: Any, b: Any, out: Any, begin: Any, end: Any, first: Any, terms: Any, width: Any
) -> None:
    for i in range(begin, end):
        for k in range(first, terms):
            factor = a[i * row + k * step]
            for j in range(width):
                out[i * width + j] = multiply_add(factor, b[k * width + j], out[i * width + j])


@helper
def _four(array: Any, at: Any, step: Any) -> Any:
    return array[at], array[at + step], array[at + 2 * step], array[at + 3 * step]


@helper
def _sum_of_four(total: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    return multiply_add(g, h, multiply_add(e, f, multiply_add(c, d, multiply_add(a, b, total))))


@helper
def _sum(array: Any, begin: Any, size: Any) -> Any:
    """In four parts, because each addition waits for the one before."""
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    for at in range(begin, begin + size - 3, 4):
        one += array[at]
        two += array[at + 1]
        three += array[at + 2]
        four += array[at + 3]
    for at in range(begin + size - size % 4, begin + size):
        one += array[at]
    return one + two + three + four
