"""Policies as ONNX models: what they compute, what they tell, and the form of networks that a graph can hold."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.agents import make_network
from engine.agents.dueling import Head
from engine.evaluation.policy import load_policy
from engine.extras.export.export_onnx import OPSET, inputs_of, played, to_onnx
from engine.runs.checkpoints import policy_metadata
from tests.support.policy_files import shipped
from tests.support.program import run_program

needs_onnx = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="ONNX is missing: .venv/bin/pip install -c constraints.txt -e '.[onnx]'"
)


@pytest.mark.long
@pytest.mark.parametrize(("name", "module"), [("snake-12x12", "arrivals"), ("tetris-10x20", "")])
def test_networks_with_kernels_compute_the_same_by_tensor_operations(name: str, module: str) -> None:
    path = shipped(name)
    network = load_policy(path)
    obs = torch.from_numpy(played(policy_metadata(path), network, {})[0][::5])
    with torch.no_grad():
        by_kernels = network(obs)
        setattr(network.get_submodule(module), "compiled", False)  # noqa: B010
        by_tensors = network(obs)
    assert by_kernels.abs().max() > 1
    torch.testing.assert_close(by_tensors, by_kernels, rtol=1e-5, atol=1e-5)


@pytest.mark.long
@needs_onnx
@pytest.mark.parametrize("name", ["mario-1-1", "tetris-7x14", "tetris-10x20", "snake-12x12"])
@pytest.mark.process
def test_a_model_chooses_the_actions_of_its_policy_and_tells_what_it_takes(name: str, tmp_path: Path) -> None:
    import onnx
    from onnxruntime import InferenceSession

    done = run_program("export", name, "--format", "onnx", cwd=tmp_path)
    assert done.stdout.startswith(f"wrote {name}.onnx: ")
    assert f"opset {OPSET}\n1,000 of 1,000 actions agree with the policy; largest difference of a Q-va" in done.stdout
    content = (tmp_path / f"{name}.onnx").read_bytes()
    assert str(Path.home()).encode() not in content and b".py" not in content
    said = {entry.key: json.loads(entry.value) for entry in onnx.load_from_string(content).metadata_props}
    assert said["policy"] == policy_metadata(shipped(name))
    assert len(said["actions"]) == said["policy"]["outputs"]
    assert said["masked"] == name.startswith("tetris")
    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    obs = np.zeros((3, said["policy"]["stack"], *said["policy"]["frame_shape"]), np.uint8)
    for size in (1, 3):
        (q,) = session.run(["q_values"], {"observations": obs[:size]})
        assert q.shape == (size, said["policy"]["outputs"])


@pytest.mark.long
@needs_onnx
@pytest.mark.parametrize(
    ("network", "shape"), [("nature", (4, 84, 84)), ("grid", (1, 5, 6, 7)), ("impala-wide", (2, 84, 84))]
)
def test_networks_of_new_runs_can_be_exported(network: str, shape: tuple[int, ...]) -> None:
    from onnxruntime import InferenceSession

    made = make_network(network, shape[0], shape[1:], 4).eval()
    obs = np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8)
    model = to_onnx(made, inputs_of(made, obs[:2]), {})
    (found,) = InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"observations": obs})
    with torch.no_grad():
        np.testing.assert_allclose(found, made(torch.from_numpy(obs)).numpy(), rtol=1e-4, atol=1e-5)


@needs_onnx
@pytest.mark.parametrize("numbers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_means_of_quantiles_are_exported_without_noise(numbers: int) -> None:
    from onnxruntime import InferenceSession

    made = make_network("grid", 1, (10, 8), 4, numbers=numbers, head=Head(5, noisy=True)).eval()
    obs = np.random.default_rng(0).integers(0, 256, (5, 1, 10, 8), np.uint8)
    obs[:, :, 9:] = 0
    given = inputs_of(made, obs)
    model = to_onnx(made, {name: part[:2] for name, part in given.items()}, {})
    session = InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: part.numpy() for name, part in given.items()})
    with torch.no_grad():
        np.testing.assert_allclose(found, made(torch.from_numpy(obs)).numpy(), rtol=1e-4, atol=1e-5)
