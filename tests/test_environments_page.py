"""The code of docs/environments.md runs, and its tables say what there is."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Dict
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray

from engine.config.game import own_options
from engine.config.reading import config_of_policy
from engine.evaluation.policy import greedy_act, load_policy
from engine.games.gym.observations import Observations
from engine.games.gym.options import GymOptions, view_of
from engine.games.gym.spaces import parsed
from engine.runs.checkpoints import POLICY_FILE, policy_metadata
from tests.support.gym_envs import ROOM, Room
from tests.support.program import json_lines, run_program

PAGE = (Path(__file__).parent.parent / "docs" / "environments.md").read_text("utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.M | re.S))
SHORT = ("--burnin", "200", "--batch-size", "16", "--replay-ratio", "1", "--steps", "600", "--eval-every", "600")


@pytest.mark.process
def test_the_environment_and_the_network_of_the_page_are_trained(tmp_path: Path) -> None:
    assert FILES.keys() == {"my_env.py", "my_net.py"}
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    command = next(line for line in PAGE.splitlines() if line.startswith("mario-tui") and "--network" in line)
    options = command.split()[1:]
    done = run_program("--no-ui", "--log-format", "json", *options, *SHORT, cwd=tmp_path)
    events = json_lines(done.stdout)
    assert any(event["event"] == "evaluation" for event in events)
    assert any(event["event"] == "episode" and event["episode_return"] == 1 for event in events)


ELSEWHERE = "".join(re.findall(r"^```py\n(.*?)^```", PAGE, re.M | re.S))


@pytest.fixture
def policy(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy of MountainCar, or the game of the parameter, with normalised numbers, in the current folder."""
    game = getattr(request, "param", "gym:MountainCar-v0")
    done = run_program("--no-ui", "--log-format", "json", "--game", game, "--normalize", *SHORT, cwd=tmp_path)
    policy = Path(json_lines(done.stdout)[-1]["checkpoint"]) / POLICY_FILE
    monkeypatch.chdir(tmp_path)
    shutil.copy(policy, tmp_path / "policy.safetensors")
    return tmp_path / "policy.safetensors"


def raw_observations() -> NDArray[np.float32]:
    env = gymnasium.make("MountainCar-v0")
    env.action_space.seed(0)
    seen = [env.reset(seed=0)[0]]
    while len(seen) < 1000:
        observation, _, _, truncated, _ = env.step(env.action_space.sample())
        seen.append(env.reset()[0] if truncated else observation)
    return np.stack(seen)


@pytest.mark.process
def test_the_plain_code_of_the_page_acts_as_the_policy_on_raw_observations(policy: Path) -> None:
    names: dict[str, Any] = {}
    exec(ELSEWHERE, names)
    obs = raw_observations()
    expected = greedy_act(load_policy(policy))(obs[:, None], None)
    assert np.array_equal(names["q_values"](torch.from_numpy(obs)).argmax(1).numpy(), expected)
    assert len({*expected.tolist()}) > 1
    traced = torch.jit.trace(load_policy(policy), torch.from_numpy(obs[:2, None]))
    assert np.array_equal(greedy_act(traced)(obs[:, None], None), expected)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="ONNX is missing: pip install -e '.[onnx]'")
def test_an_exported_model_acts_as_the_policy_on_raw_observations(policy: Path) -> None:
    from onnxruntime import InferenceSession

    run_program("export", "policy.safetensors", "--format", "onnx", cwd=policy.parent)
    obs = raw_observations()[:, None]
    (q,) = InferenceSession("policy.onnx", providers=["CPUExecutionProvider"]).run(None, {"observations": obs})
    assert np.array_equal(q.argmax(1), greedy_act(load_policy(policy))(obs, None))


def play_room(policy: Path) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """1,000 observations as the environment gives them, and the actions of the lanes' policy in them."""
    config = config_of_policy(policy_metadata(policy))
    options = GymOptions.of(config)
    reader = Observations(parsed(options.spaces), view_of(options))
    Room.observation_space.seed(0)
    raw = [
        Room.observation_space.sample() | {"joints": np.random.default_rng(i).normal(1000, 1, 2)} for i in range(1000)
    ]
    frames = np.stack([reader.frame(reader.checked(each)) for each in raw])
    return raw, greedy_act(load_policy(policy))(frames[:, None], None)


@pytest.mark.process
@pytest.mark.parametrize("policy", [ROOM], indirect=True)
def test_the_plain_code_of_the_page_acts_as_a_policy_of_images_and_numbers(policy: Path) -> None:
    names: dict[str, Any] = {}
    exec(ELSEWHERE, names)
    raw, expected = play_room(policy)
    found = [int(names["q_values_of_dict"](each, Room.observation_space, "camera").argmax()) for each in raw]
    assert found == expected.tolist() and len({*found}) > 1


@pytest.mark.long
@pytest.mark.process
@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="ONNX is missing: pip install -e '.[onnx]'")
@pytest.mark.parametrize("policy", [ROOM], indirect=True)
def test_an_exported_model_of_images_and_numbers_acts_as_the_policy(policy: Path) -> None:
    from onnxruntime import InferenceSession

    run_program("export", "policy.safetensors", "--env", ROOM[4:], "--format", "onnx", cwd=policy.parent)
    raw, expected = play_room(policy)
    rest = Dict({name: part for name, part in Room.observation_space.items() if name != "camera"})
    numbers = np.stack([np.asarray(flatten(rest, {name: each[name] for name in rest})) for each in raw])
    images = np.stack([each["camera"].transpose(2, 0, 1) for each in raw])
    given = {"images": images[:, None], "numbers": numbers.astype(np.float32)[:, None]}
    (q,) = InferenceSession("policy.onnx", providers=["CPUExecutionProvider"]).run(None, given)
    assert np.array_equal(q.argmax(1), expected)


def test_the_page_names_every_option() -> None:
    named = set(re.findall(r"--([a-z-]+)", PAGE))
    own = {name.replace("_", "-") for name, spec in own_options("gym").items() if not spec.metadata["hidden"]}
    assert own <= named
