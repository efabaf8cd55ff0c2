"""The learner: how often it updates, what it refuses, and what a checkpoint restores."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.agents.autotune import still_valid
from engine.buffers import Batch, NothingToSample, ReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.fields import AUTO
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.envs.lanes import PlayedStep
from engine.errors import UserError
from engine.games.tetris.factory import scaled_gains
from engine.games.tetris.network import AfterstateQNetwork
from engine.runners.coordination.stats import Counters
from engine.runners.learning.checkpoint import replay_arrays, write_checkpoint
from engine.runners.learning.learner import DivergedError
from engine.runners.learning.updates import HostUpdate
from engine.runs.checkpoint_state import KeptCounters
from engine.runs.checkpoints import POLICY_FILE
from engine.runs.run import read_config
from tests.support.learner import CONFIG, feed, make_learner

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("prioritized", [True, False])
def test_updates_keep_the_replay_ratio(prioritized: bool, where: str) -> None:
    learner = make_learner(dataclasses.replace(CONFIG, prioritized_replay=prioritized, replay_device=where))
    assert isinstance(learner.replay, DeviceReplayBuffer) == (where == "device")
    feed(learner, 120, seed=0)
    learning_steps = 2 * 120 - 40
    assert learner.updates == pytest.approx(learning_steps * 4 / 8, abs=8)


def test_learning_starts_when_the_rings_of_the_actors_that_play_are_full() -> None:
    learner = make_learner(dataclasses.replace(CONFIG, burnin=300))  # of 400 transitions, 200 for each lane
    assert isinstance(learner.replay, ReplayBuffer)
    frames, no = np.zeros((1, 50, 60), np.uint8), np.zeros(1, bool)
    step = PlayedStep(frames, np.zeros(1, np.int64), np.zeros(1, np.float32), no, no, frames)
    seen = []
    for lane, steps in ((0, 199), (0, 1), (1, 1)):
        for _ in range(steps):
            learner.replay.storage.part(lane, 1).append(step)
        learner.pace.count(steps)
        seen.append(learner.pace.burnin_left)
    assert seen == [1, 0, 0]


@pytest.mark.parametrize("where", ["host", "device"])
def test_the_burn_in_counts_environment_steps_and_not_final_frames(where: str) -> None:
    learner = make_learner(dataclasses.replace(CONFIG, replay_device=where, burnin=80))
    frames, cut = np.zeros((2, 50, 60), np.uint8), np.ones(2, bool)
    step = PlayedStep(frames, np.zeros(2, np.int64), np.zeros(2, np.float32), ~cut, cut, frames)
    for left in range(78, -2, -2):
        learner.insert(step)
        assert learner.pace.burnin_left == left


@pytest.mark.parametrize(
    ("steps", "checkpoint_replay", "burnin", "left"),
    [
        (10, True, 300, 280),
        (10, True, 200, 180),  # as it is given anew
        (10, False, 300, 300),  # nothing has been learned that could fill it
        (160, False, 300, 75),
    ],
)
def test_the_burn_in_of_a_resumed_run(
    steps: int, checkpoint_replay: bool, burnin: int, left: int, tmp_path: Path
) -> None:
    config = dataclasses.replace(CONFIG, burnin=300, checkpoint_replay=checkpoint_replay)
    learner = make_learner(config)
    feed(learner, steps, seed=0)
    assert (learner.updates > 0) == (steps == 160)
    write_checkpoint(learner, tmp_path / "c", 2 * steps, config, {}, {})
    resumed = make_learner(dataclasses.replace(config, burnin=burnin), resume_from=tmp_path / "c")
    assert resumed.pace.burnin_left == pytest.approx(left, abs=2)  # final frames count in part


def test_a_shorter_burn_in_after_one_without_a_replay(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, burnin=300)
    learner = make_learner(config)
    feed(learner, 160, seed=0)
    write_checkpoint(learner, tmp_path / "a", 320, config, {}, {})
    config = dataclasses.replace(config, checkpoint_replay=True)
    learner = make_learner(config, resume_from=tmp_path / "a")
    assert learner.pace.burnin_left == 75
    write_checkpoint(learner, tmp_path / "b", 320, config, {}, {})
    config = dataclasses.replace(config, burnin=200)
    learner = make_learner(config, resume_from=tmp_path / "b")
    assert learner.pace.burnin_left == 50
    write_checkpoint(learner, tmp_path / "c", 320, config, {}, {})
    assert make_learner(config, resume_from=tmp_path / "c").pace.burnin_left == 50


@pytest.mark.parametrize(("runner", "learners"), [("parallel", 4), ("ddp", 2), ("apex", 1), ("single", 1)])
def test_learners_of_a_resumed_run_divide_what_was_owed(runner: str, learners: int, tmp_path: Path) -> None:
    learner = make_learner()
    learner.pace.credit = 76.0
    write_checkpoint(learner, tmp_path / "c", 80, CONFIG, {}, {})
    own = {"num_processes": learners} if learners > 1 else {}
    config = CONFIG.changed(runner=runner, **own)
    resumed = make_learner(config, resume_from=tmp_path / "c", learners=learners)
    assert resumed.pace.credit == 76 / learners


def test_an_update_that_finds_nothing_to_sample_stays_due() -> None:
    learner = make_learner()
    feed(learner, 60, seed=0)
    learner.pace.count(100)
    due, update = learner.pace.due(), learner.update
    assert due > 0
    empty = make_learner().replay  # as a ring is that others overwrite faster than it is read
    learner.update = HostUpdate(learner.agent, empty, learner.config.batch_size, learner.random.host, prioritized=True)
    with pytest.raises(NothingToSample):
        learner.learn(1)
    learner.update = update
    assert learner.pace.due() == due


@pytest.mark.parametrize("where", ["host", "device"])  # which is the CPU, too
def test_a_replay_that_does_not_fit_in_memory_is_refused_in_one_line(where: str) -> None:
    with pytest.raises(UserError, match="--buffer-size: 1,000,000,000 transitions take"):
        make_learner(dataclasses.replace(CONFIG, replay_device=where, buffer_size=10**9))


@pytest.mark.parametrize(("runner", "times"), [("ddp", 1), ("parallel", 3)])
def test_beta_anneals_with_the_updates_of_the_whole_run(runner: str, times: int) -> None:
    config = dataclasses.replace(CONFIG, runner=runner, num_processes=3, beta_annealing=1e-3)
    learner = make_learner(config, learners=3)
    feed(learner, 30, seed=0)
    assert learner.updates > 10
    assert learner.replay.beta == pytest.approx(0.4 + times * 1e-3 * learner.updates)


def test_a_checkpoint_restores_weights_optimiser_counters_and_random_state(tmp_path: Path) -> None:
    learner = make_learner()
    feed(learner, 60, seed=0)
    config = make_config({"device": "auto"})  # the run's; a learner's may name a device of its own
    write_checkpoint(learner, tmp_path / "c", 120, config, {"who": "cares"}, {})
    assert read_config(tmp_path / "c" / "config.toml") == config
    again = make_learner(resume_from=tmp_path / "c")
    assert again.updates == learner.updates > 10
    assert again.replay.beta == learner.replay.beta
    for mine, theirs in ((learner.agent.online, again.agent.online), (learner.agent.target, again.agent.target)):
        for name, tensor in mine.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[name])
    same = np.zeros((8, 4, 50, 60), np.uint8)
    probe = Batch(same, np.arange(8) % 5, np.ones(8, np.float32), same, np.zeros(8, np.float32))
    for each in (learner, again):  # the same next step, moments of the optimiser included
        each.agent.update(probe, np.ones(8, np.float32))
    for name, tensor in learner.agent.online.state_dict().items():
        assert torch.equal(tensor, again.agent.online.state_dict()[name])
    assert learner.random.state() == again.random.state()


@pytest.mark.parametrize("begins_with", ["checkpoint", "policy"])
def test_a_run_that_begins_with_weights_of_another_reward_learns_its_own(tmp_path: Path, begins_with: str) -> None:
    before = make_config({"game": "tetris", "board": "6x10", "reward": "lines", "gamma": 0.9, "parallel_envs": 2})
    now = before.changed(reward="jumanji", gamma=0.8)
    spec = make_lanes(before, 1, threads=1, seed=0).spec
    first = make_learner(before, spec=spec)
    write_checkpoint(first, tmp_path / "c", 0, before, {}, {})
    if begins_with == "policy":
        policy = str(tmp_path / "c" / POLICY_FILE)
        learner = make_learner(dataclasses.replace(now, initial_policy=policy), spec=spec)
    else:
        learner = make_learner(now, spec=spec, resume_from=tmp_path / "c")
    agent = learner.agent
    for network in (agent.online, agent.target, agent.policy):
        assert isinstance(network, AfterstateQNetwork)
        assert network.gains.tolist() == pytest.approx(scaled_gains(now)) != pytest.approx(scaled_gains(before))
        assert float(network.gamma) == pytest.approx(0.8)
    loaded, written = agent.online.state_dict(), first.agent.online.state_dict()
    assert all(torch.equal(loaded[name], written[name]) for name in loaded if name not in ("gains", "gamma"))


def test_a_replay_in_files_with_a_checkpoint_of_its_own_is_learned_from_on_resume(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, replay_device="files", checkpoint_replay=True)
    learner = make_learner(config, run=tmp_path)
    feed(learner, 60, seed=0)
    write_checkpoint(learner, tmp_path / "c", 120, config, {}, {})
    feed(learner, 20, seed=1)  # what came after it is lost
    learner.close()
    again = make_learner(config, resume_from=tmp_path / "c", run=tmp_path)
    updates = again.updates
    feed(again, 20, seed=2)
    assert again.updates == pytest.approx(updates + 20 * 2 * 4 / 8, abs=1)
    again.close()


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    learner = make_learner()
    with pytest.raises(DivergedError, match="try a lower --learning-rate"):
        feed(learner, 60, seed=0, reward=float("nan"))


def test_counters_resume() -> None:
    counters = Counters()
    counters.env_steps, counters.frames = 800, 3200
    counters.record_episode(250.0)
    again = Counters(KeptCounters(**counters.state()))
    assert (again.env_steps, again.frames, again.episodes, again.mean_return) == (800, 3200, 1, 250.0)
    assert again.wall_s >= counters.state()["wall_s"] - 1e-3
    again.stop_clock()
    held = again.wall_s
    assert again.wall_s == held


def test_options_on_resume_override_the_choices_of_the_checkpoint(tmp_path: Path) -> None:
    before = dataclasses.replace(CONFIG, amp=False)
    learner = make_learner(before)
    learner.agent.accumulate = 2  # memory had run out
    write_checkpoint(learner, tmp_path / "c", 0, before, {}, {})
    assert make_learner(before, resume_from=tmp_path / "c").agent.accumulate == 2
    assert make_learner(dataclasses.replace(before, accumulate=4), resume_from=tmp_path / "c").agent.accumulate == 4
    chosen = {"device": "cpu", "precision": "bfloat16", "batch_size": 64, "threads": 2}
    automatic = dataclasses.replace(CONFIG, batch_size=AUTO)
    for old, new, given in (
        (automatic, automatic, set()),
        (before, CONFIG, {"precision", "batch_size"}),
        (CONFIG, automatic, {"batch_size"}),
        (automatic, dataclasses.replace(automatic, runner="ddp"), {"threads"}),
    ):
        assert chosen.keys() - still_valid(chosen, old, new).keys() == given


def test_a_longer_window_on_resume_leaves_no_entry_whose_window_is_not_complete(tmp_path: Path) -> None:
    before = dataclasses.replace(CONFIG, checkpoint_replay=True, buffer_size=100)
    learner = make_learner(before)
    feed(learner, 140, seed=0)
    write_checkpoint(learner, tmp_path / "c", 280, before, {}, {})
    again = make_learner(dataclasses.replace(before, n_step=9), resume_from=tmp_path / "c")
    assert isinstance(again.replay, ReplayBuffer)
    random = np.random.default_rng(0)
    for _ in range(40):
        sample = again.replay.sample(32, random)[1]
        assert again.replay.storage.sampleable(sample.lanes, sample.entries).all()


def test_a_learner_that_ran_far_ahead_is_resumed(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, checkpoint_replay=True)
    learner = make_learner(config)
    feed(learner, 40, seed=0)
    for credit in (1e6, -1e6):
        learner.pace.credit = credit
        write_checkpoint(learner, tmp_path / "c", 80, config, {}, {})
        make_learner(config, resume_from=tmp_path / "c").close()


@pytest.mark.parametrize("changed", [{"prioritized_replay": False}, {"alpha": 0.3}, {"n_step": 3}])
def test_priorities_of_other_options_are_not_resumed(changed: dict[str, Any], tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, checkpoint_replay=True)
    learner = make_learner(config)
    feed(learner, 100, seed=0)
    write_checkpoint(learner, tmp_path / "c", 200, config, {}, {})
    for options, kept in (({}, True), (changed, False)):
        arrays = replay_arrays(dataclasses.replace(config, **options), tmp_path / "c")
        assert any(name.startswith("sampler.") for name in arrays) == kept
