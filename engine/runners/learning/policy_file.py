"""Writes the policy of a learner into a file that can be played without its run."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save

from engine import __version__
from engine.envs.factory import describe_evaluation, describe_task
from engine.runners.learning.learner import Learner
from engine.runs.checkpoints import POLICY_FORMAT
from engine.runtime.files import new_file


def save_policy(learner: Learner, path: Path, env_steps: int, score: tuple[float, ...] = ()) -> None:
    """Write the policy network and the `score` that it reached, if there is one."""
    try:
        with new_file(path) as file:
            file.write(save(on_cpu(learner.agent.policy.state_dict()), _metadata(learner, env_steps, score)))
    except BaseException:
        path.unlink(missing_ok=True)  # a partial file, if the disk is full
        raise


def on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors as safetensors takes them: on the CPU, and none in the memory of another, as those of layers that share
    their weights are."""
    taken, found = set[int](), dict[str, torch.Tensor]()
    for name, tensor in tensors.items():
        found[name] = tensor.detach().cpu().contiguous()
        place = found[name].untyped_storage().data_ptr()
        if place in taken:
            found[name] = found[name].clone()
        taken.add(place)
    return found


def _metadata(learner: Learner, env_steps: int, score: tuple[float, ...]) -> dict[str, str]:
    """The safetensors header."""
    config, spec = learner.config, learner.spec
    policy = {
        "version": __version__,
        "network": config.network_name,
        "stack": spec.stack,
        "frame_shape": spec.frame_shape,
        "outputs": spec.actions,
        **describe_task(config),
        "env_steps": env_steps,
        "updates": learner.updates,
        "seed": config.seed,
        **({"score": score, **describe_evaluation(config)} if score else {}),
    }
    return {"format": POLICY_FORMAT, "policy": json.dumps(policy)}
