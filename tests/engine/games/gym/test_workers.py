"""Lanes may be stepped in one thread, in several, or in worker processes: what they play is the same."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from engine.config.fields import ConfigError
from engine.config.reading import make_config
from engine.games.gym.lanes import GymLanes
from engine.games.gym.options import GymOptions
from engine.games.gym.spaces import CARTPOLE, ask, parsed, speed_of
from engine.games.gym.workers import HERE, InProcess, Way, chosen_way
from engine.protocol.framing import HopelessError
from engine.runtime.threads import user_calls
from tests.support.gym_envs import CORRIDOR, CRASHING, DRAWING, SERVED, SLOW, SQUARES
from tests.support.program import json_lines, nobody_is_left, run_program, wait_until
from tests.support.runners import RUNNERS

pytestmark = pytest.mark.process
WAYS = [HERE, Way("threads", 3), Way("processes", 2)]


def lanes_in(way: Way, game: str, lanes: int = 5, **options: Any) -> GymLanes:
    config = make_config({"game": game, **options})
    return GymLanes(GymOptions.of(config), config.spec, lanes, seed=3, way=way)


def played(way: Way, game: str, **options: Any) -> list[Any]:
    """Everything that lanes show: steps, pictures, and the steps after a rest, a rewind and a resume."""
    lanes, random, shown = lanes_in(way, game, **options), np.random.default_rng(0), list[Any]()

    def steps(count: int) -> None:
        for _ in range(count):
            actions = random.integers(0, lanes.spec.actions, lanes.lanes)
            shown.append(lanes.step(actions if lanes.masks is None else lanes.masks.argmax(1)))

    shown.append(lanes.reset())
    steps(60)
    shown.append(lanes.screen(3))
    state = lanes.state()
    lanes.rest_after(np.array([True, False, True, False, True]))
    steps(40)
    lanes.rewind()
    shown.append(lanes.reset())
    steps(5)
    shown.append(lanes.load_state(state))
    steps(5)
    lanes.close()
    return [each if isinstance(each, np.ndarray) else list(vars(each).values()) for each in shown]


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("gym:CartPole-v1", {"sticky_actions": 0.2, "noop_max": 3}),
        (SQUARES, {}),
        (CORRIDOR, {}),
        (CRASHING, {"env_args": '{"whole": 1}'}),
        ("gym:MinAtar/Breakout-v1", {"frame_stack": 2}),
    ],
)
def test_bits_do_not_depend_on_where_lanes_are_stepped(game: str, options: dict[str, Any]) -> None:
    first, *others = (played(way, game, **options) for way in WAYS)
    for other in others:
        np.testing.assert_equal(other, first)


@pytest.mark.parametrize(
    ("speed", "cores", "way"),
    [
        ("{}", 8, HERE),
        ('{"step_s": 5e-6}', 8, HERE),
        ('{"step_s": 0.005}', 8, Way("processes", 8)),
        ('{"step_s": 0.005}', 1, HERE),
        ('{"step_s": 0.005, "waits": true, "threads": true}', 1, Way("threads", 16)),
        ('{"step_s": 0.005, "waits": true}', 2, Way("processes", 8)),
        ('{"step_s": 0.005, "draws": true}', 8, HERE),
    ],
)
def test_a_measured_start_chooses_the_way(speed: str, cores: int, way: Way) -> None:
    config = make_config({"game": "gym", "spaces": CARTPOLE, "env_speed": speed})
    assert chosen_way(GymOptions.of(config), 16, cores) == way
    for given, expected in (("none", HERE), ("threads", Way("threads", 16)), ("3", Way("processes", 3))):
        assert chosen_way(GymOptions.of(config.changed(env_workers=given)), 16, cores) == expected


def test_a_slow_environment_does_not_play_for_long_before_a_run_learns() -> None:
    for speed, burnin in (
        ("{}", 2_000),
        ('{"step_s": 0.1}', 1_000),
        ('{"step_s": 100.0}', 250),
        ('{"step_s": 0.1, "waits": true, "threads": true}', 2_000),  # 16 lanes wait at the same time
    ):
        asked = {"game": "gym", "spaces": CARTPOLE, "env_speed": speed}
        assert make_config(asked).burnin == burnin
        assert make_config({**asked, "burnin": 3_000}).burnin == 3_000


def test_environments_are_measured_before_the_run() -> None:
    def measured(env: str, **arguments: Any) -> Any:
        return speed_of(ask(((env.removeprefix("gym:"), json.dumps(arguments), "none", False), 60.0))[1])

    waiting = measured(SLOW, step=0.01)
    assert waiting.waits and waiting.threads and not waiting.draws and waiting.step_s >= 0.01
    forking = measured(SLOW, step=0.01, forks=True)
    assert forking.waits and not forking.threads
    assert measured(DRAWING).draws
    assert not measured(SQUARES).waits
    with pytest.raises(ConfigError, match="--env-workers must be auto, none, threads or a number from 1 to 256, got"):
        make_config({"game": "gym", "env_workers": "many"})


def test_what_goes_wrong_in_a_worker_is_told(caplog: pytest.LogCaptureFixture) -> None:
    lanes = lanes_in(Way("processes", 2), CRASHING, env_args='{"whole": 0}')
    lanes.reset()
    with caplog.at_level(logging.WARNING, "engine"), pytest.raises(HopelessError, match="made anew 3 times"):
        for _ in range(50):
            lanes.step(np.zeros(5, np.int64))
    assert "Crashing-v0: lane 1, episode 1, step 4: RuntimeError: the simulator is lost" in caplog.text
    lanes.close()


def test_a_call_that_hangs_in_a_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Exception): ...

    def fail(text: str) -> None:
        raise Told(text)

    monkeypatch.setattr(user_calls, "fail", fail)
    lanes = lanes_in(Way("processes", 2), SLOW, env_args='{"hang": "50"}', step_timeout=3.0)
    lanes.reset()
    with pytest.raises(Told, match=r"Slow-v0: lane [01], episode 5, step 10: no answer for"):
        for _ in range(50):
            lanes.step(np.zeros(5, np.int64))
    for place in lanes._places:
        assert isinstance(place, InProcess)
        place._process.kill()
        place._process.wait()


def test_a_worker_that_crashes_is_told() -> None:
    lanes = lanes_in(Way("processes", 2), "gym:CartPole-v1")
    lanes.reset()
    place = lanes._places[1]
    assert isinstance(place, InProcess)
    os.kill(place._process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"environment worker 1 was lost \(killed by SIGKILL\)"):
        lanes.step(np.zeros(5, np.int64))
    lanes._places[0].close()


def test_threads_wait_until_a_module_has_registered_its_environment(tmp_path: Path) -> None:
    made = tmp_path / "slow_to_import.py"
    made.write_text("""
import gymnasium
total = 0
for number in range(2_000_000):  # Python switches to another thread a hundred times meanwhile
    total += number
gymnasium.register("Late-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=10)
""")
    lanes = lanes_in(Way("threads", 5), f"gym:{made}:Late-v0")
    assert len(lanes.reset()) == 5
    lanes.close()


@pytest.mark.parametrize("workers", ["2", "threads"])
def test_a_run_steps_its_lanes_with_workers_and_leaves_none(workers: str, tmp_path: Path) -> None:
    options = ("--game", SERVED, "--env-args", '{"method": "session", "closes": false}', "--env-workers", workers)
    done = run_program(
        "--no-ui", *options, "--steps", "300", "--burnin", "50", "--parallel-envs", "4", "--eval-episodes", "2",
        "--eval-every", "150", "--log-format", "json", cwd=tmp_path,
    )  # fmt: skip
    assert json_lines(done.stdout)[-1]["env_steps"] == 300
    nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
def test_workers_of_each_runner_end_with_it(runner: str, tmp_path: Path) -> None:
    options = ("--game", SLOW, "--env-args", '{"step": 0.01}', "--env-workers", "2", "--steps", "400")
    run_program("--no-ui", *options, *RUNNERS[runner], "--burnin", "50", "--parallel-envs", "4", cwd=tmp_path)
    nobody_is_left(tmp_path)


def test_a_worker_ends_with_the_process_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "plays.py"
    program.write_text(f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[4])!r})
from tests.engine.games.gym.test_workers import Way, lanes_in
lanes = lanes_in(Way("processes", 2), "gym:CartPole-v1")
lanes.reset()
print("ready", flush=True)
input()
""")
    with psutil.Popen([sys.executable, str(program)], stdin=-1, stdout=-1) as playing:
        assert playing.stdout.readline() == b"ready\n"
        workers = playing.children()
        assert len(workers) == 2
        playing.kill()
    wait_until(lambda: not any(each.is_running() for each in workers), "the end of the workers")


def test_a_run_keeps_what_was_measured() -> None:
    asked = {"game": SLOW, "env_args": '{"step": 0.003}'}
    first = make_config(asked)
    assert GymOptions.of(make_config(first.options())).env_speed == GymOptions.of(first).env_speed != "{}"
    assert parsed(GymOptions.of(first).spaces).shape == (1,)
