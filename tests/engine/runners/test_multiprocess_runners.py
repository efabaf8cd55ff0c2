"""Runners of several processes: what they compute, and what they make of commands."""

from __future__ import annotations

import fcntl
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from engine.host.client import HostClient
from engine.protocol.commands import Checkpoint, Pause, Render, Resume, Set, Stop
from engine.protocol.messages import Changed, Finished, Frame, Log, Members, Progress, Saved
from engine.runs.checkpoints import POLICY_FILE
from tests.support.program import (
    PATIENCE_S,
    headless,
    next_event,
    nobody_is_left,
    read_event,
    run_program,
    the_run,
    wait_until,
)
from tests.support.resealed import resealed
from tests.support.runners import ENDLESS, RAY, RUNNERS, SNAKE, train

pytestmark = pytest.mark.process


def checkpoint_of(events: list[dict[str, Any]]) -> Path:
    return Path(events[-1]["checkpoint"])


@pytest.mark.long
@pytest.mark.parametrize("runner", [*RUNNERS, "ray"])
def test_every_runner_learns_small_snake(runner: str, tmp_path: Path) -> None:
    """Random play reaches 0.6 fruits."""
    batch = "32" if runner == "ddp" else "64"  # of each rank
    events = train(
        tmp_path, *SNAKE, *RUNNERS.get(runner, RAY), "--parallel-envs", "16", "--batch-size", batch,
        "--learning-rate", "1e-3", "--epsilon-steps", "6000", "--tau", "0.02", "--policy-tau", "0",
        "--death-penalty", "1", "--replay-ratio", "4", "--seed", "1",
        "--steps", "14000", "--eval-every", "14000", "--eval-episodes", "200",
    )  # fmt: skip
    (evaluation,) = [event for event in events if event["event"] == "evaluation"]
    assert evaluation["mean_score"] > 2.5
    summary = events[-1]
    assert 14_000 <= summary["env_steps"] < 14_000 + 2 * 32
    learned = summary["updates"] * 64 / 4  # environment steps
    assert 10_500 < learned < 13_200  # Ape-X ends with its actors 2,000 ahead
    actors = {event["actor"] for event in events if event["event"] == "episode"}
    assert actors == {0, 1}
    nobody_is_left(tmp_path)


DROPS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, stack, frame_shape, actions):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(stack * frame_shape[0], 16), nn.Dropout(0.5), nn.Linear(16, actions))

    def forward(self, obs):
        if obs.any() and self.training != torch.is_grad_enabled():  # with zeros it is only checked
            raise RuntimeError(f"training is {self.training}")
        return self.layers(obs.flatten(1))
"""


@pytest.mark.parametrize(
    "runner", ["apex", *(pytest.param(name, marks=pytest.mark.long) for name in ("single", "parallel", "ddp", "ray"))]
)
def test_networks_play_and_value_in_evaluation_mode_and_learn_in_training_mode(runner: str, tmp_path: Path) -> None:
    (tmp_path / "drops.py").write_text(DROPS)
    options = {**RUNNERS, "single": (), "ray": RAY}[runner]
    events = train(
        tmp_path, "--game", "gym:CartPole-v1", "--network", "drops:Net", *options, "--parallel-envs", "4",
        "--burnin", "100", "--steps", "1000", "--replay-ratio", "1", "--eval-every", "500", "--eval-episodes", "4",
        "--restarts", "0",
    )  # fmt: skip
    assert events[-1]["event"] == "summary" and events[-1]["updates"] > 0
    assert any(event["event"] == "evaluation" for event in events)
    assert not any(event["event"] == "warning" for event in events)


BUFFERS = """
import os
from pathlib import Path
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, stack, frame_shape, actions):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(stack * frame_shape[0], 16), nn.BatchNorm1d(16), nn.Linear(16, actions))
        self.register_buffer("own", torch.rand(()))  # each process has another one at first

    def forward(self, obs):
        if obs.any() and not self.training:
            with Path(__file__).with_name(f"seen-{os.getpid()}").open("a") as file:
                print(self.own.item(), self.layers[1].num_batches_tracked.item(), file=file)
        return self.layers(obs.flatten(1))
"""


@pytest.mark.parametrize(
    "runner", ["apex", *(pytest.param(name, marks=pytest.mark.long) for name in ("single", "parallel", "ddp", "ray"))]
)
def test_all_processes_have_the_buffers_of_one(runner: str, tmp_path: Path) -> None:
    (tmp_path / "buffers.py").write_text(BUFFERS)
    often = ("--pull-every", "50")
    options = {
        "single": (), "parallel": (*RUNNERS["parallel"], *often), "ddp": RUNNERS["ddp"],
        "apex": (*RUNNERS["apex"], *often), "ray": (*RAY, *often),
    }[runner]  # fmt: skip
    events = train(
        tmp_path, "--game", "gym:CartPole-v1", "--network", "buffers:Net", "--normalize", *options, "--eval-every", "0",
        "--parallel-envs", "4", "--burnin", "100", "--steps", "1000", "--replay-ratio", "1", "--restarts", "0",
        "--random-hold", "1",
    )  # fmt: skip
    policy = load_file(checkpoint_of(events) / POLICY_FILE)
    learner = policy["network.layers.1.num_batches_tracked"].item()
    assert 0 < learner <= events[-1]["updates"]
    assert policy["count"] > 0 and policy["deviation"].max() < 1.0 and policy["mean"].any()
    seen = [file.read_text().splitlines()[-1].split() for file in tmp_path.glob("seen-*")]
    playing = [float(own) for own, passes in seen if int(passes)]
    assert set(playing) == {float(policy["network.own"])} and (runner != "ddp" or len(playing) == 2)


@pytest.mark.long
def test_parallel_with_one_worker_equals_single(tmp_path: Path) -> None:
    options = (*SNAKE, "--parallel-envs", "8", "--steps", "2400", "--burnin", "300", "--sync-every", "7",
               "--eval-every", "0", "--seed", "4", "--replay-ratio", "4")  # fmt: skip
    folders = {}
    for runner, more in (("single", ()), ("parallel", ("--num-processes", "1"))):
        (tmp_path / runner).mkdir()
        folders[runner] = checkpoint_of(train(tmp_path / runner, *options, "--runner", runner, *more))
    for name in (POLICY_FILE, "target.safetensors", "optimizer.safetensors"):
        one, other = (load_file(folder / name) for folder in folders.values())
        assert one.keys() == other.keys()
        for key, array in one.items():
            assert np.array_equal(array, other[key]), f"{name}: {key}"
    one, other = (json.loads((folder / "state.json").read_text()) for folder in folders.values())
    assert one["updates"] == other["updates"] > 100
    assert one["random"] == other["random"]


@pytest.mark.long
@pytest.mark.parametrize(
    "before", ["apex", *(pytest.param(name, marks=pytest.mark.long) for name in ("parallel", "ddp"))]
)
@pytest.mark.usefixtures("executed")
def test_a_run_goes_on_under_another_runner(before: str, tmp_path: Path) -> None:
    after = {"parallel": "ddp", "ddp": "apex", "apex": "single"}[before]
    short = ("--eval-every", "0", "--burnin", "200", "--parallel-envs", "4")
    events = train(tmp_path, *SNAKE, *RUNNERS[before], *short, "--steps", "1000")
    first = json.loads((checkpoint_of(events) / "state.json").read_text())
    resume = ("--resume", "latest", "--runner", after, *RUNNERS.get(after, ())[2:], *short, "--steps", "2000")
    with headless(*resume, cwd=tmp_path) as process:
        run = the_run(tmp_path)
        wait_until(lambda: run.record().state == "starting", "a host", by=process)
        psutil.Process(run.record().pid).send_signal(signal.SIGINT)  # nothing is lost: nothing is played yet
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    events = train(tmp_path, *resume)
    second = json.loads((checkpoint_of(events) / "state.json").read_text())
    assert 2000 <= events[-1]["env_steps"] < 2040
    assert second["updates"] > first["updates"] > 0
    assert second["extra"]["counters"]["episodes"] > first["extra"]["counters"]["episodes"]


@pytest.mark.long
@pytest.mark.parametrize("runner", ["parallel", "ddp", "ray", "apex"])
def test_commands_mean_the_same_in_every_runner(runner: str, tmp_path: Path) -> None:
    with headless(*ENDLESS, *RUNNERS.get(runner, RAY), cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        with HostClient(the_run(tmp_path)) as client:
            next_event(client, Progress, lambda p: p.updates > 10)
            client.send(Render(on=True, fps=10))
            thought = next_event(client, Frame, lambda frame: frame.thought is not None).thought
            assert len(thought.q_values) == len(client.hello.actions) == 4
            assert thought.shape == (1, 5, 5, 5) and len(thought.seen) == 125
            client.send(Render(on=False))
            client.send(Pause())
            paused = next_event(client, Progress, lambda p: p.state == "paused")
            alike = 0
            while alike < 6:  # steps that were in progress end, of whoever was held up, too
                paused, before = next_event(client, Progress), paused.env_steps
                alike = alike + 1 if paused.env_steps == before else 0
            if runner != "ray":  # whose actors are not called in a pause
                client.send(Render(on=True, fps=10))
                next_event(client, Frame)
                client.send(Render(on=False))
            client.send(Checkpoint())
            saved = next_event(client, Saved)
            assert saved.env_steps == paused.env_steps
            client.send(Set(name="learning_rate", value=2.0))
            next_event(client, Log, lambda log: "learning_rate: must be between 1e-08 and 1, got 2" in log.text)
            client.send(Set(name="learning_rate", value=0.125))
            changed = next_event(client, Changed)
            assert (changed.before, changed.value) == (0.0005, 0.125)
            client.send(Resume())
            going = next_event(client, Progress, lambda p: p.env_steps > saved.env_steps + 100)
            assert going.learning_rate == 0.125
            members = next_event(client, Members).members
            assert [member.index for member in members] == [0, 1]
            assert members[0].epsilon_high > members[0].epsilon_low > members[1].epsilon_low
            client.send(Stop(reason="enough"))
            assert next_event(client, Finished).summary.reason == "enough"
        process.communicate(timeout=PATIENCE_S)  # nobody has read its lines
        assert process.returncode == 0
    nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
def test_every_runner_trains_mario(runner: str, tmp_path: Path) -> None:
    events = train(tmp_path, "--game", "mario", *RUNNERS[runner], "--steps", "20000", "--burnin", "2000",
                   "--batch-size", "64", "--start-states", "0.5", "--learning-rate", "1e-8",
                   "--learning-rate-schedule", "plateau", "--eval-every", "1600", "--eval-episodes", "1")  # fmt: skip
    (change, *_) = [event for event in events if event["event"] == "change"]  # nothing is learned: a plateau
    assert (change["name"], change["before"]) == ("learning_rate", 1e-8)
    rates = [event["learning_rate"] for event in events if event["event"] == "progress"]
    assert min(rates) < 1e-8
    assert events[-1]["event"] == "summary"
    assert events[-1]["env_steps"] >= 20_000
    assert events[-1]["updates"] > 300


@pytest.mark.long
def test_ape_x_never_waits_for_itself(tmp_path: Path) -> None:
    """An update needs 200 more steps than actors may be ahead, and the first one comes before most lanes have any."""
    events = train(
        tmp_path, *SNAKE, *RUNNERS["apex"], "--parallel-envs", "40", "--batch-size", "20", "--replay-ratio", "0.1",
        "--actors-ahead", "1", "--burnin", "1", "--eval-every", "0", "--steps", "2000",
    )  # fmt: skip
    assert (2000 - 80 * 4) * 0.1 / 20 - 2 < events[-1]["updates"] <= 2000 * 0.1 / 20


@pytest.mark.long
def test_ape_x_goes_on_with_fewer_samples_per_step(tmp_path: Path) -> None:
    """Its checkpoint owes more environment steps than its actors may be ahead, once each counts for fewer samples."""
    options = (*SNAKE, *RUNNERS["apex"], "--eval-every", "0", "--parallel-envs", "16")
    events = train(tmp_path, *options, "--replay-ratio", "16", "--steps", "6000")
    checkpoint = checkpoint_of(events)
    before = json.loads((checkpoint / "state.json").read_text())
    before["credit"] = 493.0  # as where the learner is the slower side: 1,972 steps
    (checkpoint / "state.json").write_text(json.dumps(before))
    resealed(checkpoint)
    events = train(tmp_path, "--resume", "latest", "--replay-ratio", "4", "--steps", "8000")
    after = json.loads((checkpoint_of(events) / "state.json").read_text())
    owed = before["credit"] * 4 / 16 + 2000 * 4 / 64  # a quarter of the updates; those of the burn-in are not due
    assert owed - 20 < after["updates"] - before["updates"] + after["credit"] <= owed


@pytest.mark.long
def test_workers_wait_for_evaluations_and_figures_are_of_the_run(tmp_path: Path) -> None:
    events = train(
        tmp_path, *SNAKE, *RUNNERS["parallel"], "--parallel-envs", "8", "--buffer-size", "8000",
        "--steps", "12000", "--eval-every", "1000", "--eval-episodes", "300",
    )  # fmt: skip
    evaluations = [event["env_steps"] for event in events if event["event"] == "evaluation"]
    assert [env_steps // 1000 for env_steps in evaluations] == list(range(1, 13))  # none was missed during another one
    progress = [event for event in events if event["event"] == "progress"]
    assert progress[0]["replay_capacity"] == 8000 == progress[-1]["replay_size"]


@pytest.mark.long
def test_a_member_that_refuses_what_is_asked_for_ends_the_run_with_status_2(tmp_path: Path) -> None:
    short = ("--eval-every", "0", "--burnin", "200", "--parallel-envs", "4", "--buffer-size", "4000")
    train(tmp_path, *SNAKE, *RUNNERS["parallel"], *short, "--use-mmap-buffer", "--steps", "600")
    replay = the_run(tmp_path).path / "replay-1"
    replay.mkdir(exist_ok=True)
    with (replay / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run_program("--no-ui", "--resume", "latest", "--steps", "100000000", cwd=tmp_path, check=2)
    assert f"{replay}: another process has this replay open" in done.stderr.splitlines()[-1]
    assert "restarting" not in the_run(tmp_path).log_path.read_text()
    nobody_is_left(tmp_path)
