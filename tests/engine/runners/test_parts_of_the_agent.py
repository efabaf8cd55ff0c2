"""Quantiles, noise and Munchausen returns in every runner; what is refused with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from engine.agents.munchausen import Munchausen
from engine.agents.weights import load_vector, vector_of
from engine.config.fields import ConfigError
from engine.config.reading import completed, make_config
from engine.config.runners import Choices
from engine.errors import UserError
from engine.evaluation.policy import load_policy
from engine.monitoring.memory_budget import estimate_bytes
from engine.runners.apex_actor import ApexActor, TDErrors
from engine.runs.checkpoint_state import ONLINE_FILE, TARGET_FILE
from engine.runs.checkpoints import POLICY_FILE, CheckpointError, policy_metadata
from tests.support.policy_files import altered
from tests.support.program import nobody_is_left, refusal, run_program
from tests.support.runners import RAY, RUNNERS, train

PARTS = ("--quantiles", "5", "--noisy", "--munchausen", "0.9")
SMALL = (
    "--game", "snake", "--board", "4x4", "--no-amp", "--batch-size", "32", "--burnin", "100", "--buffer-size", "4000",
    "--replay-ratio", "1", "--parallel-envs", "4", "--eval-episodes", "2", "--final-episodes", "0", "--restarts", "0",
)  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(
    "runner", ["apex", *(pytest.param(name, marks=pytest.mark.long) for name in ("single", "parallel", "ddp", "ray"))]
)
def test_every_runner_trains_resumes_and_evaluates_every_part(runner: str, tmp_path: Path) -> None:
    from engine.extras.distillation.teachers import check_initial, describe_student, load_teachers

    options = {**RUNNERS, "single": (), "ray": RAY}[runner]
    events = train(tmp_path, *SMALL, *PARTS, *options, "--steps", "800", "--eval-every", "400")
    assert events[-1]["event"] == "summary" and events[-1]["updates"] > 5
    again = train(tmp_path, "--resume", "latest", *(RAY[-2:] if runner == "ray" else ()), "--steps", "1200")
    assert again[-1]["updates"] > events[-1]["updates"]
    assert not any(event["event"] == "warning" for event in again)
    best = Path(events[-1]["checkpoint"]).parent / "best.safetensors"
    said = policy_metadata(best)
    assert (said["quantiles"], said["noisy"]) == (5, True)
    scores = [
        json.loads(run_program("eval", str(best), "--episodes", "5", "--json", cwd=tmp_path).stdout) for _ in range(2)
    ]
    assert scores[0]["mean_score"] == scores[1]["mean_score"]
    refused = refusal("--no-ui", "--resume", "latest", "--quantiles", "6", "--steps", "2000", cwd=tmp_path)
    assert "--quantiles must be 5, as in the checkpoint, got '6'" in refused
    refused = refusal("--no-ui", *SMALL, "--initial-policy", str(best), "--no-noisy", cwd=tmp_path)
    assert "--initial-policy must have noisy False, as this run, got True in best.safetensors" in refused
    (teacher,) = load_teachers([str(best)])
    with pytest.raises(UserError, match="--initial-policy: quantiles must be none as in every student, got 5"):
        check_initial(best, describe_student([teacher], said["network"]))
    nobody_is_left(tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    "runner", ["single", *(pytest.param(name, marks=pytest.mark.long) for name in ("parallel", "ddp", "apex", "ray"))]
)
def test_the_vectors_of_power_iteration_travel_with_the_weights_in_every_runner(runner: str, tmp_path: Path) -> None:
    options = {**RUNNERS, "single": (), "ray": RAY}[runner]
    events = train(
        tmp_path, "--game", "gym:tests.support.gym_envs:Squares", "--network", "impala-wide", *PARTS, *options,
        "--no-amp", "--parallel-envs", "2", "--batch-size", "4", "--burnin", "20", "--buffer-size", "200",
        "--replay-ratio", "1", "--policy-tau", "0.01", "--tau", "0.1", "--max-episode-steps", "20",
        "--eval-every", "40", "--eval-episodes", "2", "--final-episodes", "0", "--restarts", "0", "--steps", "80",
    )  # fmt: skip
    assert events[-1]["updates"] > 3
    assert not any(event["event"] == "warning" for event in events)
    again = train(tmp_path, "--resume", "latest", *(RAY[-2:] if runner == "ray" else ()), "--steps", "120")
    checkpoint = Path(again[-1]["checkpoint"])
    for file in (ONLINE_FILE, TARGET_FILE, POLICY_FILE):
        tensors = load_file(checkpoint / file)
        vectors = [name.removesuffix(".u") for name in tensors if name.endswith(".u")]
        assert len(vectors) == 12
        for name in vectors:
            u, v, weight = (tensors[f"{name}.{part}"] for part in ("u", "v", "weight"))
            matrix = weight.flatten(1)
            assert (u @ matrix @ v / torch.linalg.svdvals(matrix)[0]).item() == pytest.approx(1, abs=0.05)
    nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"game": "tetris", "noisy": True}, "--noisy must be off with the network afterstates"),
        ({"game": "tetris", "afterstates": False, "quantiles": 8}, "--quantiles must be none with the network columns"),
        ({"game": "gym", "network": "tests.support.own_networks:Net", "noisy": True}, "--noisy must be off with the"),
        ({"game": "tetris", "munchausen": 0.9}, "--munchausen must be 0 if actions can be illegal"),
        ({"game": "snake", "munchausen": 0.9, "double_q": True}, "--munchausen must be 0 with --double-q"),
        ({"munchausen": 0.9, "advantage_learning": 0.5}, "--munchausen must be 0 with --advantage-learning"),
        ({"quantiles": 1}, "--quantiles must be none, or a whole number between 2 and 512, got 1"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_config(options)


def test_what_munchausen_does_without_follows() -> None:
    config = make_config({"munchausen": 0.9})
    assert (config.double_q, config.advantage_learning, config.final_advantage_learning) == (False, 0.0, None)
    lines = completed({"munchausen": 0.9}).lines()
    assert "--advantage-learning follows --munchausen 0.9: 0 instead of 0.5" in lines
    preset = {"game": "gym", "munchausen": 0.9, "quantiles": 8, "noisy": True}
    config = make_config({"double_q": True, "network": "tests.support.own_networks:Net"}, defaults=preset)
    assert (config.munchausen, config.quantiles, config.noisy, config.double_q) == (0.0, None, False, True)


@pytest.mark.parametrize("changes", [{"quantiles": 1}, {"quantiles": 10**6}, {"noisy": "yes"}])
def test_policy_files_from_elsewhere_say_possible_parts(changes: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a policy of mario-tui"):
        policy_metadata(altered("mario-1-1", tmp_path, **changes))
    with pytest.raises(CheckpointError, match="damaged"):
        load_policy(altered("mario-1-1", tmp_path, quantiles=4))
    with pytest.raises(CheckpointError, match="quantiles must be none with the network afterstates"):
        policy_metadata(altered("tetris-10x20", tmp_path, quantiles=4))


def test_the_memory_for_pairs_of_quantiles_is_counted() -> None:
    many, few = (estimate_bytes(make_config(options))[0] for options in ({"quantiles": 500}, {}))
    assert many - few == 256 * 24 * 500**2


def test_every_actor_has_noise_of_its_own() -> None:
    config = make_config({"game": "snake", "board": "4x4", "runner": "apex", "noisy": True, "parallel_envs": 2})
    found, weights = list[torch.Tensor](), list[np.ndarray]()
    for index in range(2):
        actor = ApexActor(config, Choices("cpu", "float32", 32, 1), index, 0, 0, 0.0, 1)
        weights.append(vector_of(actor.network))
        load_vector(actor.network, weights[0])
        obs = np.zeros((2, 1, 5, 4, 4), np.uint8)
        obs[:, :, 1, 0, 0] = 255  # a head
        found.append(torch.stack([actor._q_values(obs) for _ in range(2)]))
        actor.close()
    assert not torch.allclose(found[0][0], found[0][1])
    assert not torch.allclose(found[0][0], found[1][0])


def test_an_actor_gives_transitions_the_td_errors_of_munchausen_returns() -> None:
    munchausen, gamma = Munchausen(0.9, 0.5, 1.0), 0.9
    errors, random = TDErrors(1, 2, gamma, 0.0, munchausen), np.random.default_rng(0)
    q, actions = random.normal(size=(3, 1, 3)).astype(np.float32), np.array([[2], [0], [1]])
    rewards = np.array([[1.0], [2.0], [3.0]])
    no = np.zeros(1, np.bool_)
    found = [errors.step(q[step], actions[step], rewards[step], no, no) for step in range(3)][-1]
    values = torch.from_numpy(q)
    first = munchausen.reward(values[0], torch.from_numpy(actions[0])).item()
    soft = munchausen.state_values(values[2][..., None], values[2]).item()
    target = first + 1 + gamma * 2 + gamma**2 * soft
    assert found.td_errors.tolist() == pytest.approx([abs(target - q[0, 0, 2])], rel=1e-5)
