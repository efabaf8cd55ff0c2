"""The public modules of the library, as a stranger's program uses them: checked by mypy from outside, and run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mario_tui
from engine.errors import UserError
from mario_tui import environments, policies

SCRIPT = """
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from mario_tui import Reporter
from mario_tui.environments import GameOptions, MarioEnv, MarioVectorEnv, SnakeEnv, TetrisVectorEnv
from mario_tui.policies import Policy, load, names


def train(run: Reporter) -> bool:
    run.progress(env_steps=1, loss=np.float32(0.5), approx_kl=0.01)
    run.episode(1.0, length=3, results={"score": 1})
    run.progress(loss="low")  # type: ignore[arg-type]
    run.wait()  # type: ignore[attr-defined]
    return run.stop_requested


options: GameOptions = {"stage": "1-1", "view": "50x60", "noop_max": 0}
GameOptions(stage=1)  # type: ignore[typeddict-item]
env = MarioEnv(**options)
obs, info = env.reset(seed=0)
assert_type(obs, NDArray[np.uint8])
policy = load(names()[0])
assert_type(policy, Policy)
assert_type(policy.act(obs[None]), NDArray[np.int64])
assert_type(policy.q_values(obs[None]), NDArray[np.float32])
action: int = int(policy.act(obs[None])[0])
assert_type(SnakeEnv().reset()[0], NDArray[np.uint8])
flags: NDArray[np.bool_] = TetrisVectorEnv(2).step(np.zeros(2, np.int64))[2]
many: tuple[NDArray[np.uint8], ...] | None = MarioVectorEnv(num_envs=2).render()
with Reporter("typed", results=["score"], total_steps=10) as run:
    train(run)
"""


@pytest.mark.process
def test_mypy_sees_the_types_of_the_library_from_outside(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "mypy.ini").write_text("[mypy-torch.*]\nfollow_imports = skip\n")  # it takes a minute
    cache = Path(__file__).parents[2] / ".mypy_cache" / "outside"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "script.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr


@pytest.mark.parametrize("module", [mario_tui, environments, policies], ids=lambda module: module.__name__)
def test_what_a_module_offers_is_there_and_described(module: object) -> None:
    page = (Path(__file__).parents[2] / "docs" / "library.md").read_text("utf-8")
    for name in module.__all__:  # type: ignore[attr-defined]
        assert getattr(module, name).__doc__ and re.search(rf"\b{name}\b", page), name
    assert not hasattr(module, "Nothing")


def test_an_included_policy_plays_to_the_flag_in_its_environment() -> None:
    policy = policies.load("mario-1-1")
    said = policy.metadata
    env = environments.MarioEnv(stage=said["stage"], actions=",".join(policy.actions), view=said["observation"])
    obs, info = env.reset(seed=0)
    over = False
    while not over:
        (action,) = policy.act(obs[None])
        assert policy.q_values(obs[None]).argmax() == action
        obs, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    assert info["flag_get"] and policy.name == "mario-1-1" and "mario-1-1" in policies.names()
    env.close()


def test_a_policy_leaves_illegal_actions_out_and_a_wrong_name_is_refused() -> None:
    policy = policies.load("snake-12x12")
    obs, _ = environments.SnakeEnv(height=12, width=12).reset(seed=0)
    best = int(policy.q_values(obs[None, None]).argmax())
    masks = np.ones((1, 4), np.bool_)
    masks[0, best] = False
    assert policy.act(obs[None, None], masks)[0] != best
    with pytest.raises(UserError, match="nothing: no such checkpoint; accepted: a policy file"):
        policies.load("nothing")
