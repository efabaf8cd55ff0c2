"""Environments may take any time, as long as each call returns within the limit: nothing else waits for seconds."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.config.fields import ConfigError
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.games.gym.spaces import ask
from engine.runtime.threads import user_calls
from tests.support.gym_envs import SLOW
from tests.support.program import (
    headless,
    json_lines,
    nobody_is_left,
    processes_of,
    read_event,
    rest_of,
    run_program,
)
from tests.support.runners import RAY, RUNNERS

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("hang", "said"),
    [
        ("39", "Slow-v0: lane 0, episode 13, step 3: no answer for "),
        ("reset 14", "Slow-v0: lane 0, episode 14, reset: no answer for "),
    ],
)
def test_a_call_beyond_the_limit_is_named(hang: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config({"game": SLOW, "env_args": json.dumps({"hang": hang, "length": 3}), "step_timeout": 2.0})
    lanes = make_lanes(config, 2, threads=1, seed=0)
    let_go, told = sys.modules["gym_envs"].LET_GO, list[str]()  # as lanes import the file

    def fail(text: str) -> None:
        told.append(text)
        let_go.set()

    monkeypatch.setattr(user_calls, "fail", fail)
    try:
        lanes.reset()
        for _ in range(39):
            lanes.step(np.zeros(2, np.int64))
    finally:
        let_go.clear()
        lanes.close()
    assert told[0].startswith(said) and told[0].endswith(" s (--step-timeout 2)")


@pytest.mark.parametrize(("hang", "call"), [("make", "make"), ("reset 1", "reset"), ("1", "step")])
def test_an_environment_that_hangs_before_the_run_is_refused(hang: str, call: str) -> None:
    env = SLOW.removeprefix("gym:")
    with pytest.raises(ConfigError) as refused:
        ask(((env, json.dumps({"hang": hang}), "none", False), 4.0))
    assert str(refused.value) == f"--env {env}: {call}: no answer for 4 s (--step-timeout)"


def slow(folder: Path, *options: str, status: int | None = 0, **arguments: Any) -> str:
    """What a run says."""
    done = run_program(
        "--no-ui", "--game", SLOW, "--env-args", json.dumps(arguments), "--burnin", "20", *options, cwd=folder,
        check=status,
    )  # fmt: skip
    nobody_is_left(folder)
    return str(done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "failed: Slow-v0: lane 1, episode 5, step 10: no answer for "),
        pytest.param(
            RUNNERS["parallel"], "Slow-v0: lane 1, episode 5, step 10: no answer for ", marks=pytest.mark.long
        ),
        pytest.param(RUNNERS["ddp"], "Slow-v0: lane 1, episode 5, step 10: no answer", marks=pytest.mark.long),
        pytest.param(RUNNERS["apex"], "was lost (Slow-v0: lane 1, episode 5, step 10: ", marks=pytest.mark.long),
        pytest.param(RAY, "was lost (Slow-v0: lane 1, episode 5, step 10: ", marks=pytest.mark.long),
    ],
)
def test_a_run_names_the_call_that_hangs(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    text = slow(
        tmp_path, *options, "--parallel-envs", "2", "--step-timeout", "4", "--restarts", "0", "--eval-every", "0",
        "--steps", "300", hang="50", status=None,  # actors are replaced, and play on
    )  # fmt: skip
    assert said in text.replace("lane 0", "lane 1")  # whichever comes first


def test_a_close_that_hangs_does_not_cost_the_run_its_result(tmp_path: Path) -> None:
    options = ("--parallel-envs", "2", "--step-timeout", "4", "--eval-every", "0", "--steps", "60")
    text = slow(tmp_path, *options, hang="close")
    assert "close: no answer for" in text and "done (60 environment steps are done)" in text


@pytest.mark.parametrize("workers", ["none", pytest.param("2", marks=pytest.mark.long)])
def test_a_program_that_stands_still_for_longer_than_the_limit_goes_on(workers: str, tmp_path: Path) -> None:
    """One that is suspended, say: its calls have had no time either."""
    options = ("--game", SLOW, "--env-args", '{"step": 1.0}', "--env-workers", workers, "--step-timeout", "3")
    with headless(*options, "--burnin", "2", "--steps", "4", "--eval-every", "0", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        stopped = processes_of(tmp_path)
        for each in stopped:
            each.suspend()
        time.sleep(5)  # the standstill itself: longer than the limit
        for each in stopped:
            each.resume()
        assert not [event for event in rest_of(process) if "no answer" in str(event) or "restart" in str(event)]
    assert process.returncode == 0


def test_a_policy_is_judged_within_the_limit(tmp_path: Path) -> None:
    slow(tmp_path, "--parallel-envs", "2", "--eval-every", "0", "--steps", "60")
    asked = ("eval", "latest", "--episodes", "2", "--step-timeout", "4", "--env", SLOW.removeprefix("gym:"))
    run_program(*asked, cwd=tmp_path)
    failed = run_program(*asked, "--env-args", '{"hang": "7"}', cwd=tmp_path, check=1)
    assert "Slow-v0: lane 0, episode 1, step 7: no answer for " in failed.stderr


@pytest.mark.long
@pytest.mark.parametrize("runner", ["single", *RUNNERS, "ray"])
@pytest.mark.parametrize("arguments", [{"step": 10.0, "length": 3}, {"reset": 30.0, "make": 5.0}])
def test_slow_steps_and_resets_lose_no_process(arguments: dict[str, Any], runner: str, tmp_path: Path) -> None:
    kind = RAY if runner == "ray" else RUNNERS.get(runner, ())
    options = (*kind, "--parallel-envs", "2", "--steps", "24", "--eval-every", "0", "--log-format", "json")
    said = slow(tmp_path, *options, **arguments)
    lines = json_lines("\n".join(line for line in said.splitlines() if line.startswith("{")))
    assert lines[-1]["event"] == "summary"
    assert not [line for line in lines if "lost" in str(line) or "hung" in str(line) or "restart" in str(line)]
