"""Updates from a replay on the device that learns: they equal those of other replays, and never wait for the device."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.agents import DoubleDQN
from engine.agents.double_dqn import Share
from engine.agents.dueling import Head
from engine.agents.munchausen import Munchausen
from engine.agents.networks import NETWORKS, make_network
from engine.agents.optimisers import Adam, RMSProp
from engine.buffers import NothingToSample, ReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.game import game_of, games
from engine.envs.lanes import PlayedStep
from engine.runners.learning.factory import make_learner
from engine.runners.learning.updates import DeviceUpdate
from engine.runners.start import Start
from engine.runs.replay_file import ReplayShape
from engine.runtime.devices import Precision
from tests.support.devices import META, NoWaiting, only_on_meta
from tests.support.learner import CONFIG, SPEC, feed

CPU = torch.device("cpu")
LANES, BATCH = 3, 16
SHAPES: dict[str, tuple[int, tuple[int, ...], int]] = {
    "nature": (4, (50, 60), 0),
    "small": (4, (50, 60), 0),
    "grid": (1, (5, 9, 9), 0),
    "minatar": (1, (4, 10, 10), 0),
    "impala": (2, (3, 12, 10), 0),
    "impala-wide": (2, (3, 12, 10), 0),
    "grid with every part": (1, (5, 9, 9), 0),
    "paths with every part": (1, (5, 9, 9), 0),
    "columns": (1, (5, 8, 5), 20),
    "afterstates": (1, (4, 8, 5), 20),
    "paths": (1, (5, 9, 9), 0),
}
"""Stack, shape of a frame, and number of actions in masks."""
OWN = {name: place for game in games() for name, place in game_of(game).own_networks.items()}
NEVER_WAITING = [network for network in SHAPES if network != "afterstates"]
"""On CPUs, where these tests run, afterstates are computed for legal placements only, whose number has to be known."""


def build(
    network: str, device: torch.device = CPU, precision: Precision = "float32", **options: Any
) -> tuple[DoubleDQN, DeviceReplayBuffer]:
    stack, shape, masked = SHAPES[network]
    torch.manual_seed(0)
    name, _, parts = network.partition(" with ")
    head = Head(5, noisy=True) if parts else Head()
    networks = [make_network(name, stack, shape, masked or 4, own=OWN, head=head) for _ in range(2)]
    if parts:
        options |= {"munchausen": Munchausen(0.9, 0.03, 1.0), "double_q": False}
    optimizer = RMSProp if network == "minatar" else Adam
    agent = DoubleDQN(*networks, device=device, learning_rate=1e-3, precision=precision, optimizer=optimizer, **options)
    replay = DeviceReplayBuffer(
        ReplayShape(LANES, 40, shape, stack=stack, n_step=3, mask_actions=masked), beta_annealing=0.01, device=device
    )
    return agent, replay


def play(network: str, replay: DeviceReplayBuffer, steps: int, seed: int = 0) -> None:
    _, shape, masked = SHAPES[network]
    random = np.random.default_rng(seed)
    for _ in range(steps):
        frames, finals = random.integers(0, 256, (2, LANES, *shape), np.uint8)
        terminated, truncated = random.random((2, LANES)) < 0.1
        masks, final_masks = random.random((2, LANES, masked)) < 0.8
        if masked:
            masks[:, 0] = final_masks[:, 0] = True
        actions = random.integers(0, masked or 4, LANES)
        rewards = random.normal(size=LANES).astype(np.float32)
        replay.append(PlayedStep(frames, actions, rewards, terminated, truncated, finals, masks, final_masks))


def updates_of(agent: DoubleDQN, replay: DeviceReplayBuffer) -> DeviceUpdate:
    random = np.random.default_rng(7)
    return DeviceUpdate(agent, replay, BATCH, random=random, generator=None, log=pytest.fail)


def contents(agent: DoubleDQN, replay: DeviceReplayBuffer) -> dict[str, Tensor]:
    stored = {name: torch.from_numpy(np.array(column[...])) for name, column in replay.state().items()}
    return stored | {str(place): tensor.detach() for place, tensor in enumerate(agent.tensors())}


@pytest.mark.long
def test_hundreds_of_updates_give_the_bits_of_separate_calls() -> None:
    """Draw, update and new priorities, each by the method that other replays have as well."""
    options: dict[str, Any] = {"sync_every": 7, "tau": 0.5, "accumulate": 2}
    one, other = build("grid", **options), build("grid", **options)
    random = np.random.default_rng(7)
    update = updates_of(*one)
    for number in range(200):
        for _, replay in (one, other):
            play("grid", replay, 6 if number == 0 else number % 4 == 0, seed=number)
        if number == 100:
            for agent, replay in (one, other):
                agent.learning_rate, replay.beta = 1e-4, 0.2
        update()
        agent, replay = other
        batch, sample = replay.sample(BATCH, random)
        expected = agent.update(batch, sample.weights)
        replay.update_priorities(sample, expected.td_errors)
        found = update.read()
        assert found is not None and (found.loss, found.q_mean) == pytest.approx((expected.loss, expected.q_mean))
    assert one[0].updates == other[0].updates == 200
    assert one[1].beta == other[1].beta == 1.0
    theirs = contents(*other)
    for name, tensor in contents(*one).items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize(("network", "precision"), itertools.product(NEVER_WAITING, ("float32", "bfloat16")))
def test_nothing_waits_for_the_device(network: str, precision: Precision) -> None:
    agent, replay = build(network, precision=precision, accumulate=2)
    update = updates_of(agent, replay)
    play(network, replay, 6)
    with NoWaiting():
        update()
        play(network, replay, 2)
        update()


@pytest.mark.parametrize("network", SHAPES)
def test_no_device_is_mixed(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, replay = build(network, META, accumulate=2)
    update = updates_of(agent, replay)
    play(network, replay, 6)
    with only_on_meta(monkeypatch):
        update._update(agent.moves_target)
        replay._write_step()  # inserts what was loaded last
        replay.end_episodes()
        agent.learning_rate, replay.beta = 1e-4, 0.2
        update._update(agent.moves_target)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda loss, found: float(loss.detach()),
        lambda loss, found: found.tolist(),
        lambda loss, found: found.cpu(),
        lambda loss, found: found[found > 0],
        lambda loss, found: found[:, torch.arange(2)],
        lambda loss, found: found * torch.ones(3, 1),
    ],
)
def test_a_look_at_the_device_or_a_tensor_of_the_cpu_is_found(
    spoil: Callable[[Tensor, Tensor], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, replay = build("grid", META)
    loss_of = agent._loss

    def spoiled(*arguments: Any) -> Any:
        loss, found = loss_of(*arguments)
        spoil(loss, found)
        return loss, found

    monkeypatch.setattr(agent, "_loss", spoiled)
    play("grid", replay, 6)
    update = updates_of(agent, replay)
    with pytest.raises((AssertionError, RuntimeError)), only_on_meta(monkeypatch):
        update._update(agent.moves_target)


def test_an_empty_replay_takes_no_update() -> None:
    agent, replay = build("grid")
    update = updates_of(agent, replay)
    with pytest.raises(NothingToSample):
        update()
    assert agent.updates == 0 and update.read() is None


def test_an_update_is_repeated_in_smaller_parts_if_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    agent, replay = build("grid", on_out_of_memory=told.append)
    expected, same_replay = build("grid", accumulate=4)
    for each in (replay, same_replay):
        play("grid", each, 6)
    gradients_of = agent._share_gradients

    def with_little_memory(batch: Any, weights: Any, share: Share) -> Any:
        samples, _ = share
        if samples.stop - samples.start > BATCH / 4:
            raise torch.OutOfMemoryError
        return gradients_of(batch, weights, share)

    monkeypatch.setattr(agent, "_share_gradients", with_little_memory)
    updates_of(agent, replay)()
    updates_of(expected, same_replay)()
    assert told == [2, 4] and agent.updates == 1
    theirs = contents(expected, same_replay)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in contents(agent, replay).items())


def test_a_nan_is_kept_until_the_losses_are_read() -> None:
    agent, replay = build("grid")
    update = updates_of(agent, replay)
    play("grid", replay, 6)
    with contextlib.suppress(StopIteration), torch.no_grad():
        next(iter(agent.online.parameters()))[0] = torch.nan
    update()
    update()
    losses = update.read()
    assert losses is not None and np.isnan(losses.loss)
    assert update.read() is None


@pytest.mark.parametrize(("where", "expected"), [("auto", ReplayBuffer), ("device", None)])
def test_a_replay_that_does_not_fit_on_the_gpu_after_all_is_stored_on_the_host(
    where: str, expected: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU and its lack of room are simulated; what is built instead is real."""
    told: list[str] = []
    config = dataclasses.replace(CONFIG, replay_device=where, device="cpu")
    monkeypatch.setattr("engine.runners.learning.factory.belongs_on_device", lambda *_: True)

    class Full(DeviceReplayBuffer):
        def __init__(self, *_: Any, **__: Any) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("engine.runners.learning.factory.DeviceReplayBuffer", Full)
    if expected is None:
        with pytest.raises(torch.OutOfMemoryError):
            make_learner(Start(Path(), config), SPEC, seed=0, log=told.append)
        return
    learner = make_learner(Start(Path(), config), SPEC, seed=0, log=told.append)
    assert isinstance(learner.replay, expected)
    assert "the replay does not fit on the GPU, so it is stored on the host" in told
    feed(learner, 40, seed=0)
    assert learner.updates > 0
    learner.close()


def test_every_network_is_tried_here() -> None:
    tried = {name.partition(" with ")[0] for name in SHAPES}
    assert tried == (NETWORKS.keys() | OWN.keys()) - {"mlp", "mlp-128"}  # which have float frames
