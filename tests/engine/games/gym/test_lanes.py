"""Lanes of Gymnasium environments: what their options do, and what happens when an environment fails."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray

from engine.config.fields import ConfigError
from engine.config.reading import completed, make_config
from engine.envs.episode import LARGEST_RETURN
from engine.envs.factory import make_lanes
from engine.envs.lanes import Lanes, VectorStep
from engine.errors import UserError
from engine.evaluation.policy import play_episodes
from engine.games.gym import workers as workers_module
from engine.games.gym.environment import check_unchanged, observed
from engine.games.gym.lane import fitted
from engine.games.gym.lanes import GymLanes
from engine.games.gym.observations import Observations
from engine.games.gym.options import FALLBACK_STEPS, View
from engine.games.gym.spaces import CARTPOLE, parsed
from engine.monitoring.alerts import MADE_ANEW
from engine.protocol.framing import HopelessError
from engine.protocol.messages import SCREEN_SHAPE
from tests.support.gym_envs import CORRIDOR, CRASHING, FAULTY, HERE, SIZE, SQUARES, Faulty
from tests.support.program import wait_until

pytestmark = pytest.mark.process


def lanes_of(game: str, lanes: int = 1, **options: Any) -> Lanes:
    made = make_lanes(make_config({"game": game, **options}), lanes, threads=1, seed=0)
    made.reset()
    return made


def steps(lanes: Lanes, action: int, count: int) -> list[VectorStep]:
    return [lanes.step(np.full(lanes.lanes, action)) for _ in range(count)]


def line_of(text: str) -> int:
    """The number of the line of the environments' file that has the text."""
    return next(number for number, line in enumerate(Path(HERE).read_text().split("\n"), 1) if text in line)


@pytest.fixture
def _fresh() -> Iterator[None]:
    """An environment that has not failed yet, as in a process of its own."""
    by_path = sys.modules.get("gym_envs")  # as lanes import the file
    for kind in (Faulty, *([by_path.Faulty] if by_path else [])):
        kind._steps, kind._left = 0, -1
    yield


@pytest.mark.parametrize(("env", "anew"), [(SQUARES, False), ("gym:MinAtar/Breakout-v1", True)])
def test_only_environments_that_keep_an_action_and_were_played_are_made_anew(env: str, anew: bool) -> None:
    lanes = make_lanes(make_config({"game": env}), 2, threads=1, seed=0)
    assert isinstance(lanes, GymLanes)
    made = [lane._env for lane in lanes._lanes]
    lanes.rewind()
    assert [lane._env for lane in lanes._lanes] == made
    first = lanes.reset()
    lanes.rewind()
    assert (not {*made} & {lane._env for lane in lanes._lanes}) == anew
    assert np.array_equal(lanes.reset(), first)


def test_an_evaluation_steps_no_lane_whose_episodes_are_over() -> None:
    """Failed episodes do not count, so their lanes play on."""
    lanes = make_lanes(make_config({"game": CRASHING}), 3, threads=1, seed=0, evaluation=True)
    assert isinstance(lanes, GymLanes)
    taken = [0, 0, 0]
    for number, lane in enumerate(lanes._lanes):
        lane.step = lambda action, number=number, step=lane.step: (  # type: ignore[method-assign, misc]
            taken.__setitem__(number, taken[number] + 1), step(action)
        )[1]  # fmt: skip
    told = list[int]()
    for _ in range(2):
        lanes.rewind()
        played = play_episodes(
            lanes, lambda obs, masks: np.zeros(len(obs), np.int64), 4, on_episode=lambda _, steps: told.append(steps)
        )
        assert sorted(episode.lane for episode in played) == [0, 0, 1, 2] and {each.length for each in played} == {6}
    assert taken[1] == taken[2] and taken[0] > taken[1] and told[-1] <= sum(taken)


def test_an_environment_without_a_limit_has_one_in_evaluations() -> None:
    assert lanes_of("gym:CliffWalking-v1")._lanes[0]._env.spec.max_episode_steps == FALLBACK_STEPS  # type: ignore
    for env, limit in (("CliffWalking-v1", 5_000), ("MinAtar/Breakout-v1", FALLBACK_STEPS), ("CartPole-v1", 500)):
        lanes = make_lanes(make_config({"game": f"gym:{env}"}), 1, threads=1, seed=0, evaluation=True)
        assert lanes._lanes[0]._env.spec.max_episode_steps == limit  # type: ignore[attr-defined]
    assert completed({"game": "gym:CliffWalking-v1"}).lines() == [
        "CliffWalking-v1 has no time limit: episodes end after 108,000 steps, in evaluations after 5,000; "
        "--max-episode-steps sets another limit"
    ]
    assert not completed({"game": "gym:CliffWalking-v1", "max_episode_steps": 200}).lines()


def test_actions_count_from_the_environments_first() -> None:
    frames = steps(lanes_of(SQUARES, observation="raw"), 1, 3)
    assert [frame.frames.shape for frame in frames] == [(1, 3, *SIZE)] * 3
    right = [int(step.frames[0, 0].any(0).argmax()) for step in frames if not step.terminated[0]]
    assert np.diff(right).tolist() == [8] * (len(right) - 1)


@pytest.mark.parametrize(
    ("observation", "shape"),
    [("auto", (84, 84)), ("40x30-color", (3, 30, 40)), ("raw", (3, 60, 80)), ("20x20", (20, 20))],
)
def test_images_are_seen_as_the_option_says(observation: str, shape: tuple[int, ...]) -> None:
    lanes = lanes_of(SQUARES, observation=observation)
    (step,) = steps(lanes, 0, 1)
    assert step.frames.shape == (1, *shape) and lanes.spec.stack == (1 if observation == "raw" else 4)
    seen = step.frames[0].max(0) if len(shape) == 3 else step.frames[0]
    bright = np.argwhere(seen > seen.min())
    height, width = bright.max(0) - bright.min(0) + 1
    assert abs(height - shape[-2] / 6) <= 2 and abs(width - shape[-1] / 8) <= 2  # the square has 10 of 60x80 pixels


def test_an_action_may_last_for_several_steps_of_the_environment() -> None:
    one, four = lanes_of("gym:MountainCar-v0"), lanes_of("gym:MountainCar-v0", frame_skip=4)
    slow, (fast,) = steps(one, 2, 4), steps(four, 2, 1)
    assert np.array_equal(slow[-1].frames, fast.frames)
    assert sum(step.rewards for step in slow) == fast.rewards == -4.0
    assert (fast.game_frames, fast.lengths[0]) == (4, 1)


def test_a_time_limit_is_a_truncation_and_an_end_is_not() -> None:
    cut = steps(lanes_of("gym:MountainCar-v0", max_episode_steps=5), 0, 5)[-1]
    assert cut.truncated[0] and not cut.terminated[0] and cut.lengths[0] == 5
    ended = next(step for step in steps(lanes_of("gym:CartPole-v1"), 0, 50) if step.terminated[0])
    assert not ended.truncated[0] and not np.array_equal(ended.frames, ended.final_frames)


def test_rewards_are_signs_or_scaled_for_the_agent_alone() -> None:
    of = {"sutton_barto_reward": False}
    plain = lanes_of("gym:CartPole-v1", env_args=json.dumps(of), reward_scale=0.5)
    (step,) = steps(plain, 0, 1)
    assert step.rewards[0] == 0.5 and step.returns[0] == 1.0
    (signed,) = steps(lanes_of("gym:MountainCar-v0", frame_skip=4, reward="sign"), 0, 1)
    assert signed.rewards[0] == -1.0 and signed.returns[0] == -4.0


def test_a_repeated_action_is_the_previous_one() -> None:
    """MountainCar pushed to one side moves there; with every second action repeated it lags behind."""
    free, sticky = lanes_of("gym:MountainCar-v0", 8), lanes_of("gym:MountainCar-v0", 8, sticky_actions=0.9)
    assert np.array_equal(steps(free, 0, 1)[0].frames[:, 1] < 0, [True] * 8)
    for lanes in (free, sticky):
        steps(lanes, 0, 10)
    speeds = [steps(lanes, 2, 3)[-1].frames[:, 1].mean() for lanes in (free, sticky)]
    assert speeds[1] < speeds[0]


def test_each_step_of_the_environment_may_repeat_the_previous_action() -> None:
    """As in the Arcade Learning Environment (Machado et al. 2018): an action that lasts for four steps is carried out
    from the first of them on that does not repeat, so that only 0.5**4 of the actions never are."""
    sticky = [lanes_of("gym:MountainCar-v0", 64, frame_skip=4, sticky_actions=0.5) for _ in range(2)]
    (idle,), (pushed,) = (steps(lanes, action, 1) for lanes, action in zip(sticky, (0, 2), strict=True))
    assert np.mean(np.all(idle.frames == pushed.frames, 1)) < 0.2


def test_masks_are_those_of_the_environment() -> None:
    lanes = lanes_of("gym:Taxi-v4", 4)
    plain = [gymnasium.make("Taxi-v4", disable_env_checker=True) for _ in range(4)]
    (step,) = steps(lanes, 0, 1)
    for environment, frame, mask in zip(plain, step.frames, step.masks, strict=True):  # type: ignore[arg-type]
        state = int(frame.argmax())
        assert np.array_equal(mask, environment.unwrapped.action_mask(state) != 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "game",
    [CORRIDOR, "gym:engine.games.gymnasium_api:mario_tui/Tetris-v0"],
    ids=["Corridor", "Tetris"],
)
@pytest.mark.parametrize("broken", ["no mask", "zero mask"])
def test_after_an_episode_there_need_be_no_legal_action(game: str, broken: str) -> None:
    lanes = lanes_of(game, 4, **({"env_args": json.dumps({"broken": broken})} if game == CORRIDOR else {}))
    ended = 0
    for _ in range(200):
        assert lanes.masks is not None
        step = lanes.step(lanes.masks.argmax(1))
        over = step.terminated | step.truncated
        assert step.from_start.all() and step.final_masks is not None and step.final_masks[over].all()
        ended += over.sum()
    assert ended >= 4


def test_small_differences_of_large_numbers_are_normalized_before_they_are_rounded() -> None:
    spaces = msgspec.structs.replace(parsed(CARTPOLE), shape=(1,), mean=(1.7e9,), deviation=(2.0,))
    seen = Observations(spaces, View((1,), "float32", 1))
    assert [seen.frame(seen.checked(np.array([1.7e9 + each])))[0] for each in (0, 1, 3)] == [0.0, 0.5, 1.5]


def test_numbered_observations_may_begin_anywhere() -> None:
    spaces = msgspec.structs.replace(parsed(CARTPOLE), kind="one-hot", shape=(3,), first_observation=-1)
    seen = Observations(spaces, View((3,), "float32", 1))
    assert [seen.checked(each)[0].argmax() for each in (-1, 0, 1)] == [0, 1, 2]
    with pytest.raises(UserError, match="an observation must be a whole number between -1 and 1, got 2"):
        seen.checked(2)
    with pytest.raises(UserError, match=r"got 0\.5"):
        seen.checked(0.5)


@pytest.mark.parametrize(
    ("high", "image", "said"),
    [
        (
            255,
            np.full((9, 9, 3), 0.5),
            "an image must have whole numbers from 0 to 255, as its space says, got float64",
        ),
        (255, np.full((9, 9, 3), 300), "an image must be between 0 and 255, got 300 to 300"),
        (255, np.full((9, 9, 3), -1), "an image must be between 0 and 255, got -1 to -1"),
        (1, np.full((9, 9, 3), 2, np.uint8), "an image must be between 0 and 1, got 2 to 2"),
        (1, np.full((9, 9, 3), 1.5), "an image must be between 0 and 1, got 1.5 to 1.5"),
        (200, np.ones((9, 9, 3)), "an image must have whole numbers from 0 to 200, as its space says, got float64"),
    ],
)
def test_an_image_is_as_bright_as_its_space_says(high: int, image: NDArray[Any], said: str) -> None:
    spaces = observed("", gymnasium.spaces.Box(0, high, (9, 9, 3), np.uint8))
    seen = Observations(spaces, View((3, 9, 9), "uint8", 1))
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        seen.checked(image)
    assert seen.frame(seen.checked(np.full((9, 9, 3), high))).max() == 255
    if high == 1:
        assert seen.frame(seen.checked(np.full((9, 9, 3), 1.0001))).max() == 255  # rounded


def test_numbers_of_actions_may_have_any_type() -> None:
    env: Any = CartPoleEnv()
    env.action_space = gymnasium.spaces.Discrete(2, dtype=np.int32)
    check_unchanged("CartPole-v1", env, parsed(CARTPOLE))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first_action": 1}, "its actions were Discrete(2, start=1), and are Discrete(2)"),
        ({"actions": ("a", "b", "c")}, "its actions were Discrete(3), and are Discrete(2)"),
        ({"shape": (5,)}, "its observations had the shape (5,), now (4,)"),
        ({"kind": "one-hot"}, "its observations had the kind one-hot, now vector"),
    ],
)
def test_an_environment_that_has_changed_since_is_refused(change: dict[str, Any], said: str) -> None:
    config = make_config({"game": "gym"})
    spaces = msgspec.structs.replace(parsed(CARTPOLE), keys={}, **change)
    with pytest.raises(ConfigError) as refused:
        make_lanes(config.changed(spaces=spaces.text()), 1, threads=1, seed=0)
    assert str(refused.value) == f"--env CartPole-v1 has changed: {said}"


def test_a_picture_that_does_not_come_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers_module, "_SLOW_S", 0.0)
    lanes = lanes_of(SQUARES)
    assert isinstance(lanes, GymLanes)
    come = threading.Event()
    monkeypatch.setattr(lanes._lanes[0]._env.unwrapped, "render", lambda: come.wait())
    with caplog.at_level(logging.WARNING, "engine"), ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(lanes.screen, 0)
        try:
            wait_until(lambda: "Squares-v0: lane 0, episode 1, render: no answer for" in caplog.text, "the warning")
        finally:
            come.set()
        assert drawn.result().shape == SCREEN_SHAPE


@pytest.mark.parametrize("way", ["at the end", "made anew"])
def test_a_close_that_hangs_is_told(
    way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers_module, "_SLOW_S", 0.0)
    lanes = lanes_of(CRASHING, 2, env_args='{"whole": 0}')
    assert isinstance(lanes, GymLanes)
    steps(lanes, 0, 3)
    closed = threading.Event()
    monkeypatch.setattr(lanes._lanes[1]._env.unwrapped, "close", lambda: closed.wait())
    with caplog.at_level(logging.WARNING, "engine"), ThreadPoolExecutor(1) as pool:
        done = pool.submit(lanes.close if way == "at the end" else lambda: steps(lanes, 0, 1))
        try:
            wait_until(lambda: "Crashing-v0: lane 1, episode 1, close: no answer for" in caplog.text, "the warning")
        finally:
            closed.set()
        done.result()


@pytest.mark.usefixtures("_fresh")
def test_an_environment_that_can_not_be_made_anew_ends_the_run_with_the_reason() -> None:
    lanes = lanes_of(FAULTY, env_args=json.dumps({"fault": "raise", "good": 1}))
    assert isinstance(lanes, GymLanes)

    def refuse() -> gymnasium.Env[Any, Any]:
        raise ConfigError("env", "can't be made: RuntimeError: port in use")

    lanes._lanes[0]._make = refuse
    with pytest.raises(HopelessError, match=r"lane 0, episode 1, step 2: .*the joint is broken .*port in use"):
        steps(lanes, 0, 2)


def test_frames_are_raw_where_the_network_normalizes() -> None:
    raw, normalized = (lanes_of("gym:CartPole-v1", 2, normalize=each) for each in (False, True))
    assert np.array_equal(raw.step(np.zeros(2, np.int64)).frames, normalized.step(np.zeros(2, np.int64)).frames)


@pytest.mark.usefixtures("_fresh")
def test_the_loss_of_a_life_ends_what_is_learned_but_not_the_episode() -> None:
    lanes = lanes_of(FAULTY, env_args='{"fault": "life", "good": 3}', life_ends=True)
    played = steps(lanes, 0, 4)
    (lost,) = (step for step in played if (step.terminated & ~step.from_start)[0])
    assert lost.returns[0] == lost.lengths[0] > 1
    assert np.array_equal(lost.frames, lost.final_frames)  # it goes on


@pytest.mark.usefixtures("_fresh")
def test_evaluations_do_not_end_at_a_lost_life() -> None:
    config = make_config({"game": FAULTY, "env_args": '{"fault": "life", "good": 3}', "life_ends": True})
    lanes = make_lanes(config, 1, threads=1, seed=0, evaluation=True)
    lanes.reset()
    assert not any(step.terminated[0] for step in steps(lanes, 0, 6))


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", f"RuntimeError: the joint is broken (gym_envs.py:{line_of('the joint is broken')})"),
        ("value", f"ValueError: no such joint (gym_envs.py:{line_of('no such joint')})"),
        ("nan", "an observation has NaN"),
        ("huge", "an observation has a number beyond 1e30"),
        ("shape", "an observation must have the shape (3,), got (5,)"),
        ("dtype", "an observation must have numbers, got <U1"),
        ("exit", f"SystemExit: window closed (gym_envs.py:{line_of('window closed')})"),
        ("info", "info must be a dict, got NoneType"),
        ("reward", "rewards and their sum must be numbers within 1e15, got nan"),
    ],
)
def test_a_fault_cuts_the_episode_off_and_the_environment_is_made_anew(
    fault: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    lanes = lanes_of(FAULTY, 2, env_args=json.dumps({"fault": fault, "good": 6, "times": 1}))
    with caplog.at_level(logging.WARNING, "engine"):
        played = steps(lanes, 0, 20)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("Faulty-v0: lane 0, episode ") and line.endswith(f": {said}; {MADE_ANEW}")
    (cut,) = (step for step in played if (step.truncated & ~step.from_start).any())
    assert cut.failed is not None and cut.failed.tolist() == [True, False]
    assert cut.rewards[0] == 0 and np.isfinite(cut.frames).all() and np.isfinite(cut.final_frames).all()


@pytest.mark.usefixtures("_fresh")
def test_rewards_may_not_add_up_to_more_than_a_return_may_be(caplog: pytest.LogCaptureFixture) -> None:
    lanes = lanes_of(FAULTY, env_args=json.dumps({"fault": "sum", "good": 0, "times": 5}))
    with caplog.at_level(logging.WARNING, "engine"):
        assert max(abs(step.returns[0]) for step in steps(lanes, 0, 40)) <= LARGEST_RETURN
    assert "rewards and their sum must be numbers within 1e15, got 2" in caplog.text


@pytest.mark.usefixtures("_fresh")
def test_faults_that_do_not_end_end_the_run() -> None:
    lanes = lanes_of(FAULTY, env_args=json.dumps({"fault": "raise", "good": 6, "times": 1000}))
    with pytest.raises(
        HopelessError, match=r"lane 0, episode .*the joint is broken \(gym_envs.*\); it has been made anew 3 times"
    ):
        steps(lanes, 0, 50)


@pytest.mark.parametrize(
    "shape", [(24, 300), (300, 24, 3), (40, 40, 2), (6000, 8, 1), (1, 5000, 3), (210, 160, 3), (10, 10, 7)]
)
def test_images_of_all_shapes_have_a_picture(shape: tuple[int, ...]) -> None:
    picture = fitted(np.full(shape, 255, np.uint8))
    assert picture.shape == SCREEN_SHAPE and picture.any()
    assert np.array_equal(fitted(np.full(shape, 255, np.int64)), picture)


@pytest.mark.parametrize(("env", "limit"), [("CartPole-v1", 500), ("MinAtar/Breakout-v1", FALLBACK_STEPS)])
def test_every_episode_ends(env: str, limit: int) -> None:
    lanes = lanes_of(f"gym:{env}")
    assert isinstance(lanes, GymLanes) and lanes._lanes[0]._env.spec is not None
    assert lanes._lanes[0]._env.spec.max_episode_steps == limit


SETTING = """
import gymnasium, numpy as np, torch

class Setting(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Discrete(2)
    def __init__(self):
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
    def reset(self, *, seed=None, options=None):
        torch.set_num_threads(7)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        torch.use_deterministic_algorithms(True)
        return np.zeros(2, np.float32), 1.0, True, False, {}

gymnasium.register("Setting-v0", Setting)
"""


def test_what_an_environment_sets_for_all_of_pytorch_is_undone_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def settings() -> tuple[Any, ...]:
        deterministic = torch.are_deterministic_algorithms_enabled()
        return torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(), deterministic

    path, before = tmp_path / "setting.py", settings()
    path.write_text(SETTING)
    with caplog.at_level(logging.WARNING, "engine"):
        lanes = lanes_of(f"gym:{path}:Setting-v0", 2)
        assert settings() == before
        steps(lanes, 0, 3)
        assert settings() == before
    said = [line.partition(":")[0] for line in caplog.messages if " calls " in line]
    calls = (
        "set_grad_enabled(False)",
        "set_default_dtype(torch.float64)",
        "set_num_threads(7)",
        "use_deterministic_algorithms(True)",
    )
    assert said == [f"Setting-v0 calls torch.{call}" for call in calls]  # each once


def test_random_actions_are_held_unless_observations_are_images_or_actions_masked() -> None:
    assert make_config({"game": "gym"}).spec.hold == 32
    assert make_config({"game": "gym", "random_hold": 64}).spec.hold == 64
    assert make_config({"game": SQUARES}).spec.hold == make_config({"game": CORRIDOR}).spec.hold == 1
