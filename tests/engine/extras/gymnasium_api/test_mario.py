"""The Gymnasium environments: Gymnasium's own checks, episodes and their ends, seeds, and many games as one."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from textwrap import dedent
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode

from engine.errors import UserError
from engine.extras.gymnasium_api.mario import MarioEnv, MarioVectorEnv

FIRST_STAGE = "mario_tui/SuperMarioBros-1-1-v0"
NOOP, RUN = 0, 3  # of the action set right-only
INFO_TYPES = {
    "coins": int,
    "flag_get": bool,
    "life": int,
    "score": int,
    "stage": int,
    "status": str,
    "time": int,
    "world": int,
    "x_pos": int,
    "y_pos": int,
}


def run_to_the_end(env: MarioEnv) -> tuple[np.ndarray, bool, bool, dict[str, Any]]:
    """Run right until the episode ends: the last observation, terminated, truncated, info."""
    for _ in range(200):
        observation, _, terminated, truncated, info = env.step(RUN)
        if terminated or truncated:
            return observation, terminated, truncated, info
    raise AssertionError("the first enemy must have been met by now")


def area_means(screen: np.ndarray) -> np.ndarray:
    """The view 50x60-red of a screen, uint8 [240, 256, 3], while A is not held."""
    brightness = screen.astype(float)[32:232, 8:248] @ [0.7, 0.3, 0.0]
    means: np.ndarray = brightness.reshape(50, 4, 60, 4).mean(axis=(1, 3))
    means[:8, :8] = 0
    return means


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "options",
    [{}, {"observation": "rgb"}, {"view": "84x84", "actions": "complex", "sticky": 0.25}, {"emulator": "nes-py"}],
    ids=["stack", "rgb", "84x84", "nes-py"],
)
def test_gymnasiums_checks_give_no_warnings(options: dict[str, Any]) -> None:
    env = gymnasium.make(FIRST_STAGE, render_mode="rgb_array", **options)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.process
def test_ids_are_all_games_and_are_registered_without_torch() -> None:
    stages = {f"SuperMarioBros-{world}-{stage}" for world in range(1, 9) for stage in range(1, 5)}
    marios = {f"{name}-v0" for name in stages | {"SuperMarioBros", "SuperMarioBrosRandomStages"}}
    code = f"""
    import gymnasium, json, sys
    import engine.extras.gymnasium_api
    ids = [name for name in gymnasium.registry if name.startswith("mario_tui/")]
    heavy = [name for name in ("torch", "llvmlite") if name in sys.modules]
    shapes = [gymnasium.make(name).observation_space.shape for name in ("{FIRST_STAGE}", "mario_tui/Snake-v1")]
    print(json.dumps([ids, heavy, shapes]))
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    ids, heavy, shapes = json.loads(done.stdout)
    assert set(ids) == {f"mario_tui/{name}" for name in marios | {"Snake-v1", "Tetris-v0"}}
    assert heavy == []
    assert shapes == [[4, 50, 60], [5, 12, 12]]


@pytest.mark.process
def test_what_clients_import_does_not_import_gymnasium() -> None:
    code = "import engine.host, engine.host.client, mario_tui.cli, sys; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "world", "stage"), [("SuperMarioBros", 1, 1), ("SuperMarioBros-8-4", 8, 4), ("SuperMarioBros-1-2", 1, 2)]
)
def test_info_has_the_fields_of_the_package_and_the_stage(name: str, world: int, stage: int) -> None:
    env = gymnasium.make(f"mario_tui/{name}-v0")
    _, first = env.reset(seed=1)
    *_, later = env.step(RUN)
    for info in (first, later):
        assert {key: type(value) for key, value in info.items()} == INFO_TYPES
        assert (info["world"], info["stage"], info["life"], info["status"]) == (world, stage, 2, "small")
        assert 0 < info["time"] <= 400
    env.close()


def test_death_terminates_and_standing_still_truncates() -> None:
    env = MarioEnv(noop_max=0, stall_steps=20)
    env.reset(seed=0)
    _, terminated, truncated, info = run_to_the_end(env)
    assert (terminated, truncated, info["flag_get"]) == (True, False, False)
    env.reset()
    ends = [env.step(NOOP)[2:4] for _ in range(20)]
    assert ends == [(False, False)] * 19 + [(False, True)]
    with pytest.raises(ResetNeeded):
        env.step(NOOP)
    env.close()


def test_whole_game_ends_with_the_last_life() -> None:
    env = MarioEnv(stage="game", noop_max=0, stall_steps=0)
    env.reset(seed=0)
    lives, terminated = [], False
    while not terminated:
        _, _, terminated, truncated, info = env.step(RUN)
        assert not truncated
        lives.append(info["life"])
    assert list(dict.fromkeys(lives)) == [2, 1, 0, 255]  # 255: the console's way to say that none is left
    env.close()


def test_last_observation_shows_the_last_screen_and_reset_starts_a_new_episode() -> None:
    env = MarioEnv(noop_max=0, render_mode="rgb_array")
    first, _ = env.reset(seed=0)
    last, *_, info = run_to_the_end(env)
    screen = env.render()
    assert screen is not None
    assert np.abs(last[-1] - area_means(screen)).max() <= 0.5 + 1e-6
    assert info["x_pos"] > 200
    assert not np.array_equal(last[-1], first[-1])
    again, info = env.reset()
    assert np.array_equal(again, first)
    assert info["x_pos"] == 40
    env.close()


def test_rgb_observations_are_the_screen() -> None:
    env = MarioEnv(noop_max=0, observation="rgb", render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    assert observation.shape == (240, 256, 3)
    last, *_ = run_to_the_end(env)
    picture = env.render()
    assert picture is not None and np.array_equal(last, picture)
    assert not np.array_equal(last, observation)
    env.close()


def play(env: MarioEnv, seed: int | None) -> list[Any]:
    """All results of a reset and some steps."""
    return [env.reset(seed=seed), *(env.step(action) for action in (RUN, RUN, 4, NOOP) * 4)]


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_seeds_make_episodes_reproducible(emulator: str) -> None:
    one, other = (MarioEnv(sticky=0.25, emulator=emulator) for _ in range(2))
    first, second = play(one, 7), play(one, None)
    assert not data_equivalence(first, second, exact=True)
    other.reset(seed=3)
    other.step(RUN)  # what was played before makes no difference
    assert data_equivalence(play(other, 7), first, exact=True)
    assert data_equivalence(play(other, None), second, exact=True)
    assert not data_equivalence(play(other, 8), first, exact=True)
    one.close()
    other.close()


def test_both_emulators_play_the_same_game() -> None:
    ours, theirs = (MarioEnv(emulator=emulator, sticky=0.25) for emulator in ("native", "nes-py"))
    assert data_equivalence(play(ours, 5), play(theirs, 5), exact=True)
    ours.close()
    theirs.close()


def test_an_environment_without_a_seed_chooses_one_that_can_be_read() -> None:
    one, other = MarioEnv(sticky=0.25), MarioEnv(sticky=0.25)
    played = play(one, None)
    assert one.np_random_seed != other.np_random_seed
    assert data_equivalence(play(other, one.np_random_seed), played, exact=True)
    one.close()
    other.close()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"threads": 2}, id="stack"),
        pytest.param({"observation": "rgb"}, id="rgb"),
        pytest.param({"emulator": "nes-py"}, id="nes-py", marks=pytest.mark.long),
        pytest.param({"reward": "classic", "stage": "4-2"}, id="classic"),
    ],
)
def test_many_games_equal_as_many_single_ones(options: dict[str, Any]) -> None:
    options = {"sticky": 0.25, "stall_steps": 12, **options}
    ours = gymnasium.make_vec(FIRST_STAGE, num_envs=3, vectorization_mode="vector_entry_point", **options)
    single = gymnasium.make_vec(
        FIRST_STAGE,
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        **options,
    )
    assert (ours.observation_space, ours.action_space) == (single.observation_space, single.action_space)
    random = np.random.default_rng(0)
    assert data_equivalence(ours.reset(seed=11), single.reset(seed=11), exact=True)
    ended = 0
    for _ in range(60):
        actions = random.choice([NOOP, RUN], size=3, p=[0.9, 0.1])
        step = ours.step(actions)
        assert data_equivalence(step, single.step(actions), exact=True)
        ended += int((step[2] | step[3]).sum())
    assert ended >= 3
    ours.close()
    single.close()


def test_episodes_end_and_begin_in_the_same_step() -> None:
    env = MarioVectorEnv(2, noop_max=0, stall_steps=5)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    first, _ = env.reset(seed=0)
    for _ in range(4):
        before, *_, infos = env.step(np.array([NOOP, RUN]))
        assert "final_obs" not in infos
    observations, _, terminations, truncations, infos = env.step(np.array([NOOP, RUN]))
    assert (terminations.tolist(), truncations.tolist()) == ([False, False], [True, False])
    assert np.array_equal(observations[0], first[0])
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [True, False]
    assert infos["final_obs"][1] is None
    assert np.array_equal(infos["final_obs"][0][:3], before[0, 1:])
    assert infos["final_info"]["x_pos"][0] == 40
    assert infos["final_info"]["_x_pos"].tolist() == [True, False]
    assert infos["x_pos"][1] > 40
    env.close()


def test_games_can_be_seeded_one_by_one() -> None:
    env = MarioVectorEnv(3, stage="random")
    first, _ = env.reset(seed=[4, 4, 9])
    assert np.array_equal(first[0], first[1])
    again, _ = env.reset(seed=[None, 4, None])
    assert np.array_equal(again[1], first[1])
    drawn: Any = np.int64(3)
    counted, _ = env.reset(seed=drawn)
    assert np.array_equal(counted[1], first[1])
    with pytest.raises(ValueError, match="one element for each of 3 games"):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.array([True, False, False])})
    env.close()


def test_returned_arrays_are_not_overwritten() -> None:
    env = MarioVectorEnv(2, noop_max=0)
    first, _ = env.reset(seed=0)
    first[:] = 0
    later, *_ = env.step(np.array([NOOP, NOOP]))
    assert later[:, 0].any()
    env.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [MarioEnv, MarioVectorEnv])
@pytest.mark.parametrize(
    "wrong",
    [
        {"view": "10x10"},
        {"observation": "ram"},
        {"emulator": "fceux"},
        {"threads": 0},
        {"render_mode": "human"},
        {"stage": "9-1"},
        {"actions": "fly"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_options_that_are_not_accepted_are_named(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(wrong.values()))}|threads"):
        kind(**wrong)


@pytest.mark.parametrize(
    "options",
    [{}, {"threads": 2}, pytest.param({"emulator": "nes-py"}, marks=pytest.mark.long)],
    ids=["native", "threads", "nes-py"],
)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=("copy", "pickle"))
def test_a_copy_plays_on_as_the_original_would_and_leaves_it_alone(copied: Any, options: dict[str, Any]) -> None:
    env = MarioVectorEnv(3, **options)
    env.reset(seed=4)
    for _ in range(20):
        env.step(np.array([NOOP, RUN, RUN]))
    twin = copied(env)
    before = env._games._lanes.emulator.ram.copy()
    actions = np.random.default_rng(0).integers(0, 5, (30, 3))
    played = [twin.step(chosen) for chosen in actions]
    assert np.array_equal(env._games._lanes.emulator.ram, before)
    assert data_equivalence(played, [env.step(chosen) for chosen in actions], exact=True)
    twin.close()
    env.close()


def test_misuse_is_refused() -> None:
    env, many = MarioEnv(render_mode="rgb_array"), MarioVectorEnv(2)
    with pytest.raises(ResetNeeded):
        many.step(np.array([NOOP, NOOP]))
    env.reset()
    many.reset()
    for action in (-1, 5):
        with pytest.raises(ValueError, match="between 0 and 4"):
            env.step(action)
    with pytest.raises(ValueError, match="2 integers between 0 and 4"):
        many.step(np.array([NOOP]))
    env.close()
    env.close()
    many.close()
    with pytest.raises(ClosedEnvironmentError):
        env.render()
