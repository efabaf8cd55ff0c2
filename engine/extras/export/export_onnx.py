"""The process behind `mario-tui export --format onnx`: writes a policy's network as an ONNX model, once the model has
given the same Q-values as the network.

`python -m engine.extras.export.export_onnx ORDER` writes one packed message to its standard output:
`Exported` or `Failed`. It exits when its standard input closes.

A module of a network with compiled kernels, which no graph can hold, has an attribute `compiled`: without it, CPUs
compute the same by tensor operations, as other devices do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from engine.agents.exploration import greedy, random_actions
from engine.agents.networks import ImageAndNumbers, QuantileQNetwork
from engine.commands.answers import answered, chosen_policy, order_of, take_stdout
from engine.config.capabilities import learned_apart
from engine.config.reading import config_of_policy
from engine.envs.factory import lanes_of_policy
from engine.envs.lanes import Frames, FrameStack
from engine.errors import UserError
from engine.evaluation.policy import load_policy
from engine.protocol.results import Exported, ExportOrder
from engine.runtime.files import replacing
from engine.runtime.processes import end_with_stdin, killed_with_parent, take_children

OPSET = 18
_INPUT, _OUTPUT = "observations", "q_values"
_OBSERVATIONS = 1000
_LANES, _EPSILON = 20, 0.1  # of the games that they come from
_TOLERANCE = 1e-3
"""Largest difference of a Q-value that is put down to rounding, as a share of the largest Q-value."""


def main() -> int:
    """See the module's docstring."""
    order = order_of(ExportOrder)
    killed_with_parent()
    end_with_stdin()
    send = take_stdout()
    take_children(marked=True)
    return answered(lambda: send(_export(Path(order.policy), Path(order.output), order.own)), send)


def _export(policy: Path, output: Path, own: dict[str, Any]) -> Exported:
    """Raises `ValueError` if the model computes something else than the network, and does not write it then."""
    metadata, game = chosen_policy(policy, own)
    network = load_policy(policy, own.get("network"))
    part = {**metadata, game.tasks: learned_apart(game, metadata[game.tasks])[0]}
    obs, masks = played(part, network, own)
    with torch.no_grad():
        q = network(torch.from_numpy(obs))
    described = {
        "policy": metadata,
        "actions": metadata.get("actions") or game.action_names(config_of_policy(part)),
        "masked": masks is not None,
    }
    inputs = inputs_of(network, obs)
    model = to_onnx(network, {name: part[:2] for name, part in inputs.items()}, described)
    found = _run(model, inputs)
    difference = float((found - q).abs().max())
    if not difference <= _TOLERANCE * float(q.abs().max()):
        raise ValueError(f"the Q-values of the ONNX model differ from those of the network by up to {difference:.3g}")
    try:
        with replacing(output, 0o666) as file:
            file.write(model)
    except OSError as error:
        raise UserError(f"--output: {output}: can't be written ({error.strerror or error})") from None
    return Exported(
        size=len(model),
        opset=OPSET,
        observations=len(obs),
        agreeing=int((greedy(found, masks) == greedy(q, masks)).sum()),
        largest_difference=difference,
    )


def played(
    metadata: Mapping[str, Any], network: nn.Module, own: Mapping[str, Any]
) -> tuple[Frames, NDArray[np.bool_] | None]:
    """Observations [observations, stack, *frame_shape] of games that the network plays with the game's options `own`,
    and what was legal, bool [observations, actions], where actions are masked."""
    lanes, random = lanes_of_policy(metadata, _LANES, threads=1, seed=0, **own), np.random.default_rng(0)
    try:
        stack, masks = FrameStack(lanes.reset(), lanes.spec.stack), lanes.masks
        seen, legal = list[Frames](), list[NDArray[np.bool_]]()
        for _ in range(_OBSERVATIONS // _LANES):
            seen.append(stack.obs.copy())
            if masks is not None:
                legal.append(masks.copy())
            with torch.no_grad():
                actions = greedy(network(torch.from_numpy(stack.obs)), masks)
            explored = random_actions(random, _LANES, lanes.spec.actions, masks)
            step = lanes.step(np.where(random.random(_LANES) < _EPSILON, explored, actions))
            stack.push(step.frames, step.terminated | step.truncated)
            masks = step.masks
    finally:
        lanes.close()
    return np.concatenate(seen), np.concatenate(legal) if legal else None


class _OfParts(nn.Module):
    def __init__(self, network: ImageAndNumbers) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        found = self.network.of_parts(images, numbers)
        return found if found.dim() == 2 else found.mean(2)  # of quantiles


def _with_numbers(network: nn.Module) -> ImageAndNumbers | None:
    """The part of a network that takes images and numbers, if it does."""
    part = network.network if isinstance(network, QuantileQNetwork) else network
    return part if isinstance(part, ImageAndNumbers) else None


def inputs_of(network: nn.Module, obs: Frames) -> dict[str, torch.Tensor]:
    """The inputs of a network's model, by their names, for observations."""
    given = torch.from_numpy(obs)
    if (both := _with_numbers(network)) is not None:
        return dict(zip(("images", "numbers"), both.parts(given), strict=True))
    return {_INPUT: given}


def to_onnx(network: nn.Module, inputs: Mapping[str, torch.Tensor], described: Mapping[str, Any]) -> bytes:
    """A network as an ONNX model for any number of observations, of which `inputs` are two examples. `described`: its
    metadata, whose values are JSON."""
    import onnx  # of the extra `onnx`

    for module in network.modules():
        if hasattr(module, "compiled"):
            module.compiled = False  # type: ignore[assignment]
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        network if (both := _with_numbers(network)) is None else _OfParts(both),
        tuple(inputs.values()),
        dynamo=True,
        opset_version=OPSET,
        input_names=[*inputs],
        output_names=[_OUTPUT],
        dynamic_shapes=tuple({0: batch} for _ in inputs),
        external_data=False,
        verbose=False,
    )
    assert program is not None
    model = program.model_proto
    for part in (model.graph.node, model.graph.input, model.graph.output, model.graph.value_info):
        for each in part:
            del each.metadata_props[:]  # among them the paths of the source files
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in described.items()})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _run(model: bytes, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return what a model gives for inputs."""
    from onnxruntime import InferenceSession  # of the extra `onnx`

    session = InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run([_OUTPUT], {name: part.numpy() for name, part in inputs.items()})
    return torch.from_numpy(found)


if __name__ == "__main__":
    sys.exit(main())
