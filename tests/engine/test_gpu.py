"""What only a GPU can show: recorded updates, precision, replay, memory, ranks, and what the dashboard is told."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import FileStore

from engine.agents import DoubleDQN, make_network
from engine.agents.allreduce_dqn import AllreduceDQN
from engine.buffers import PrioritizedReplayBuffer, SumTree
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.buffers.device.sum_tree import DeviceSumTree
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.envs.lanes import PlayedStep
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.network import CUDA_SEARCH, Arrivals
from engine.monitoring.machine import SystemSampler
from engine.runners.learning.updates import DeviceUpdate
from engine.runs.replay_file import ReplayShape
from engine.runtime.devices import Precision
from tests.engine.games.snake.test_arrivals import boards
from tests.support.agent import batch_of
from tests.support.program import PATIENCE_S, child, json_lines, run_program

GPU = torch.device("cuda", 0)
LANES, BATCH, STACK, SHAPE, ACTIONS = 4, 64, 4, (50, 60), 5
pytestmark = pytest.mark.gpu


def agent_on(device: torch.device, precision: Precision = "float32", **options: Any) -> DoubleDQN:
    torch.manual_seed(0)
    networks = [make_network("small", STACK, SHAPE, ACTIONS) for _ in range(2)]
    return DoubleDQN(*networks, device=device, learning_rate=1e-4, precision=precision, **options)


def steps(count: int, seed: int = 0) -> list[PlayedStep]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        frames, finals = random.integers(0, 256, (2, LANES, *SHAPE), np.uint8)
        terminated, truncated = random.random((2, LANES)) < 0.1
        actions, rewards = random.integers(0, ACTIONS, LANES), random.normal(size=LANES).astype(np.float32)
        found.append(PlayedStep(frames, actions, rewards, terminated, truncated, finals))
    return found


def filled_replay(device: torch.device, count: int = 40) -> DeviceReplayBuffer:
    replay = DeviceReplayBuffer(ReplayShape(LANES, 60, SHAPE, stack=STACK, n_step=3), device=device)
    for step in steps(count):
        replay.append(step)
    return replay


def weights_of(agent: DoubleDQN) -> list[Tensor]:
    return [parameter.detach().cpu() for parameter in agent.online.parameters()]


def test_a_recorded_update_computes_what_single_operations_do() -> None:
    found = []
    for recorded in (True, False):
        agent, replay = agent_on(GPU, sync_every=3, tau=0.5), filled_replay(GPU)
        generator = torch.Generator(GPU).manual_seed(1)
        update = DeviceUpdate(
            agent, replay, BATCH, random=np.random.default_rng(0), generator=generator, log=pytest.fail
        )
        for number in range(60):
            if number == 30:
                agent.learning_rate, replay.beta = 1e-5, 0.9
            replay.append(steps(1, seed=number)[0])
            if recorded:
                update()
            else:
                update._update(agent.moves_target)
                agent.updates += 1
                replay.count_update()
        if recorded:
            assert all(call.recorded for call in update._calls.values()) and len(update._calls) == 2
            assert replay._write.recorded
        found.append((weights_of(agent), replay.beta, replay.state()["sampler.priorities"][...]))
    (ours, beta, priorities), (theirs, expected_beta, expected) = found
    assert beta == expected_beta
    np.testing.assert_allclose(priorities, expected, rtol=1e-4)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "tf32", "tolerance"),
    [("float32", False, 1e-4), ("float32", True, 0.03), ("bfloat16", True, 0.08), ("float16", True, 0.04)],
)
def test_gradients_are_those_of_the_cpu(
    precision: Precision, tf32: bool, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relative distance of all gradients together. Convolutions in TF32 are PyTorch's default."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    gradients = []
    for device in (torch.device("cpu"), GPU):
        agent = agent_on(device, "float32" if device.type == "cpu" else precision)
        if agent.scaler_state():  # after the first updates, which overflow and lower it
            agent.load_scaler_state({**agent.scaler_state(), "scale": 1024.0})
        batch, sample = filled_replay(device).sample(BATCH, np.random.default_rng(0))
        found, _ = agent.gradients(batch, sample.weights)
        scale = float(agent.scaler_state().get("scale", 1.0))
        gradients.append(torch.cat([gradient.flatten().float().cpu() for gradient in found]) / scale)
    expected, ours = gradients
    assert float((ours - expected).norm() / expected.norm()) < tolerance


def test_replay_on_the_gpu_draws_what_replay_on_the_host_draws() -> None:
    host = PrioritizedReplayBuffer(ReplayShape(LANES, 60, SHAPE, stack=STACK, n_step=3))
    ours, randoms = filled_replay(GPU, 0), [np.random.default_rng(1) for _ in range(2)]
    for number, step in enumerate(steps(150)):
        host.append(step)
        ours.append(step)
        if number < 4:
            continue
        (batch, sample), (expected, drawn) = ours.sample(32, randoms[0]), host.sample(32, randoms[1])
        np.testing.assert_array_equal(sample.entries.cpu().numpy(), drawn.entries)
        np.testing.assert_array_equal(batch.obs.cpu().numpy(), expected.obs)
        np.testing.assert_array_equal(batch.next_obs.cpu().numpy(), expected.next_obs)
        np.testing.assert_allclose(sample.weights.cpu().numpy(), drawn.weights, rtol=1e-5)
        errors = (drawn.entries % 5 + drawn.lanes).astype(np.float32)
        host.update_priorities(drawn, errors)
        ours.update_priorities(sample, torch.from_numpy(errors).to(GPU))


@pytest.mark.parametrize("requests", [50, 3000, 40_000])
def test_the_sum_tree_on_the_gpu_is_that_on_the_host(requests: int) -> None:
    """Up to 16,384 leaves are set by a kernel of their own."""
    random, size = np.random.default_rng(0), 5000
    host, ours, above_zero = SumTree(size), DeviceSumTree(size, GPU), 0
    assert ours._cuda
    for _ in range(5):
        leaves, valid = random.integers(0, size, requests), random.random(requests) < 0.8
        priorities = random.random(requests) * random.integers(0, 2, requests)
        above_zero += host.set(leaves[valid], priorities[valid])
        ours.set(*(torch.from_numpy(each).to(GPU) for each in (leaves, priorities, valid)))
    np.testing.assert_array_equal(ours.leaves.cpu().numpy(), host.leaves)
    assert int(ours.count) == above_zero and float(ours.total) == pytest.approx(host.total)
    prefixes = random.random(1000) * host.total
    found = ours.find(torch.from_numpy(prefixes).to(GPU)).cpu().numpy()
    assert (host[found] > 0).all() and (found != host.find(prefixes)).mean() <= 0.01


@pytest.mark.parametrize(("height", "width"), [(5, 9), (12, 12), (30, 30)])
def test_arrivals_on_the_gpu_are_those_on_the_host(height: int, width: int) -> None:
    assert CUDA_SEARCH.runs_on(GPU)
    search, theirs = Arrivals(height, width).to(GPU), Arrivals(height, width)
    for steps in (3, 200):
        frames = boards(height, width, steps)
        assert torch.equal(search(frames.to(GPU)).cpu(), theirs(frames))


def test_recorded_acting_and_learning_from_the_host_compute_what_single_operations_do() -> None:
    agent, other = agent_on(GPU), agent_on(GPU)
    other._graphed = None
    host, random = (
        PrioritizedReplayBuffer(ReplayShape(LANES, 60, SHAPE, stack=STACK, n_step=3)),
        np.random.default_rng(0),
    )
    for step in steps(40):
        host.append(step)
    for _ in range(10):
        batch, sample = host.sample(BATCH, random)
        ours, theirs = (each.update(batch, sample.weights) for each in (agent, other))
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
        torch.testing.assert_close(ours.td_errors, theirs.td_errors, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(agent.q_values(batch.obs), other.q_values(batch.obs), rtol=1e-3, atol=1e-4)
    graphed = agent._graphed
    assert graphed is not None and graphed._act.recorded and graphed._learn is not None and graphed._learn.recorded
    for one, theirs_ in zip(weights_of(agent), weights_of(other), strict=True):
        torch.testing.assert_close(one, theirs_, rtol=1e-3, atol=1e-5)


def test_a_batch_that_does_not_fit_is_learned_in_parts() -> None:
    told: list[int] = []
    agent, replay = agent_on(GPU, on_out_of_memory=told.append), filled_replay(GPU)
    batch = 8192
    generator = torch.Generator(GPU).manual_seed(1)
    update = DeviceUpdate(agent, replay, batch, random=np.random.default_rng(0), generator=generator, log=pytest.fail)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(GPU).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(GPU) + 900 * 2**20) / total, GPU)
        for _ in range(6):
            update()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, GPU)
    losses = update.read()
    assert told and agent.accumulate == told[-1] and agent.updates == 6
    assert losses is not None and np.isfinite(losses.loss)


def _rank(rank: int, backend: str, folder: Path) -> None:
    device = torch.device("cuda", rank if backend == "nccl" else 0)
    torch.cuda.set_device(device)
    dist.init_process_group(backend, store=FileStore(str(folder / "meeting"), 2), rank=rank, world_size=2)
    torch.manual_seed(rank)
    networks = [make_network("grid", 1, (9, 9), 3) for _ in range(2)]
    agent = AllreduceDQN(*networks, device=device, learning_rate=1e-3, precision="float32")
    agent.broadcast()
    for number in range(5):
        agent.update(*batch_of(2 * number + rank))
    np.savez(folder / f"{rank}.npz", *(tensor.detach().cpu().numpy() for tensor in agent.tensors()))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_two_ranks_take_the_same_steps(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "nccl" and torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a GPU for each rank")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with child(_rank, 0, backend, tmp_path) as one, child(_rank, 1, backend, tmp_path) as other:
        for rank in (one, other):
            rank.join(PATIENCE_S)
            assert rank.exitcode == 0
    ours, theirs = (np.load(tmp_path / f"{rank}.npz") for rank in range(2))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours.files)


@pytest.mark.parametrize("game", ["snake", "tetris"])
def test_a_recorded_step_of_the_boards_is_the_step(game: str) -> None:
    config = make_config({"game": game, "parallel_envs": LANES})
    ours, theirs = (make_lanes(config, LANES, threads=1, seed=3, device=GPU) for _ in range(2))
    assert isinstance(ours, BoardLanes) and isinstance(theirs, BoardLanes)
    ours.reset()
    theirs.reset()
    random = np.random.default_rng(0)
    for _ in range(40):
        actions = random.integers(0, ours.spec.actions, LANES)
        step, expected = ours.step(actions), theirs.board.step(torch.from_numpy(actions).to(GPU))
        assert torch.equal(step.frames, expected.frames) and torch.equal(step.final_frames, expected.final_frames)
        np.testing.assert_array_equal(step.returns, expected.returns.cpu().numpy())
        np.testing.assert_array_equal(step.terminated, expected.terminated.cpu().numpy())
    assert ours._step_board.recorded


@pytest.mark.parametrize(
    "options",
    [
        ("--game", "snake", "--board", "5x5"),
        ("--game", "tetris", "--board", "5x8"),
        ("--stage", "1-1"),
        ("--game", "snake", "--board", "5x5", "--runner", "apex", "--num-actors", "2"),
        ("--game", "snake", "--board", "5x5", "--runner", "parallel", "--num-processes", "2"),
    ],
)
def test_a_run_learns_on_the_gpu(options: tuple[str, ...], tmp_path: Path) -> None:
    done = run_program(
        "--no-ui", "--log-format", "json", "--device", "cuda", *options, "--burnin", "500", "--steps", "4000",
        "--eval-every", "0", cwd=tmp_path,
    )  # fmt: skip
    events = json_lines(done.stdout)
    progress = [event for event in events if event["event"] == "progress"]
    assert done.returncode == 0 and "CUDA graphs can't be used" not in done.stderr
    assert progress[-1]["env_steps"] >= 4000 and any(np.isfinite(event["loss"] or np.nan) for event in progress)
    assert not any("CUDA graphs can't be used" in event.get("text", "") for event in events)


def test_the_machine_panel_is_told_about_the_gpu() -> None:
    held = torch.zeros(2**28, dtype=torch.uint8, device=GPU)
    sampler = SystemSampler()
    try:
        gpu = sampler.sample().gpus[0]
    finally:
        sampler.close()
    assert gpu.memory_used_bytes is None or gpu.memory_used_bytes >= held.nbytes
    names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    assert gpu.name in names.stdout
