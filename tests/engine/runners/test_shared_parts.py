"""The parts that processes of a run share: gradients, priorities, weights and the model; and what they are told."""

from __future__ import annotations

import fcntl
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed import FileStore

from engine.agents import DoubleDQN, DuelingQNetwork, allreduce_dqn
from engine.agents.allreduce_dqn import AllreduceDQN
from engine.agents.initial_priorities import TDErrors
from engine.agents.shared_dqn import ProcessLock, SharedDQN
from engine.agents.weights import SharedWeights, parameter_count
from engine.buffers import Batch, FrameStorage, PrioritizedSampler, SharedMemory
from engine.buffers.sampling import EPSILON
from engine.config.presets import PRESETS, preset
from engine.config.run_config import RunConfig, make_config
from engine.envs.episode import EpisodeRecord
from engine.envs.vec_env import PlayedStep
from engine.errors import UserError
from engine.monitoring.memory_budget import check_memory
from engine.protocol.messages import Failed, Log
from engine.runners.actor_learner import budget
from engine.runners.host_link import HostLink
from engine.runners.message_queue import ReportQueue
from engine.runners.rank import device_of_rank
from engine.runners.shared_state import SharedState
from engine.runners.worker_pool import WorkerPool
from engine.runtime import threads
from mario_tui import cli
from mario_tui.launch import make_plan
from tests.support.agent import BATCH, agent_of, batch_of
from tests.support.program import PATIENCE_S, child, run_program, wait_until

# ---------------------------------------------------------------------------------- ranks that average gradients

UPDATES = 10
MOMENTS = ("never", "_loss", "_on_gradient")


def half_of(number: int, rank: int) -> tuple[Batch, np.ndarray]:
    batch, weights = batch_of(number)
    half = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    arrays = (batch.obs, batch.actions, batch.returns, batch.next_obs, batch.discounts)
    return Batch(*(array[half] for array in arrays)), weights[half]


def learn(agent: DoubleDQN, batches: Callable[[int], tuple[Batch, np.ndarray]]) -> None:
    for number in range(UPDATES):
        agent.update(*batches(number))


class Short(AllreduceDQN):
    """Runs out of memory once, in the fourth update, where `moment` says."""

    moment = "never"

    def _loss(self, *arguments: Any) -> Any:
        self._run_short("_loss")
        return super()._loss(*arguments)

    def _on_gradient(self, parameter: Tensor) -> None:
        if len(self._reductions) == 1:  # in the middle of a backward pass, with gradients under way
            self._run_short("_on_gradient")
        super()._on_gradient(parameter)

    def _run_short(self, where: str) -> None:
        if self.moment == where and self.updates == 3:
            self.moment = "never"
            raise torch.OutOfMemoryError("out of memory")


def _rank(rank: int, folder: Path) -> None:
    """Learns from its halves, from the weights of rank 0, once for each of `MOMENTS`; leaves all it has become."""
    torch.set_num_threads(1)
    allreduce_dqn._BUCKET_BYTES = 1000  # several buckets for this small network
    dist.init_process_group("gloo", store=FileStore(str(folder / "meeting"), 2), rank=rank, world_size=2)
    for moment in MOMENTS:
        agent = agent_of(rank, Short)
        agent.broadcast()
        agent.moment = moment if rank == 1 else "never"
        learn(agent, lambda number: half_of(number, rank))
        found = [tensor.detach().numpy() for tensor in agent.tensors()]
        np.savez(folder / f"{moment}-{rank}.npz", *found, accumulate=agent.accumulate, updates=agent.updates)
    dist.barrier()
    dist.destroy_process_group()


def test_ranks_with_half_a_batch_each_equal_one_process_also_where_one_of_them_runs_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    alone = agent_of(0)
    with child(_rank, 0, tmp_path) as one, child(_rank, 1, tmp_path) as other:
        learn(alone, batch_of)
        for rank in (one, other):
            rank.join(PATIENCE_S * 2)
            assert rank.exitcode == 0
    expected = [tensor.detach().numpy() for tensor in alone.tensors()]
    for moment in MOMENTS:
        ranks = [np.load(tmp_path / f"{moment}-{rank}.npz") for rank in range(2)]
        for found in ranks:
            assert found["accumulate"] == (1 if moment == "never" else 2)
            assert found["updates"] == UPDATES
            for place, array in enumerate(expected):
                assert np.array_equal(found[f"arr_{place}"], ranks[0][f"arr_{place}"])
                assert np.allclose(found[f"arr_{place}"], array, rtol=1e-3, atol=2e-5), (moment, place)


def test_a_rank_without_a_gradient_for_a_weight_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros in its place would leave the weight as it is on all ranks, without a word."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        agent_of(0, AllreduceDQN).update(*batch_of(0))
        networks = [DuelingQNetwork(1, (9, 9), 3, "grid", hidden=16) for _ in range(2)]
        for network in networks:
            network.register_parameter("unused", nn.Parameter(torch.zeros(7)))
        agent = AllreduceDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision="float32")
        with pytest.raises(RuntimeError, match=r"no gradient for a parameter of shape \(7,\)"):
            agent.update(*batch_of(0))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("runner", "expected"), [("parallel", (4, 2)), ("ddp", (1, 8))])
def test_a_rank_learns_in_one_thread_and_torch_has_its_cores(
    runner: str, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 32)  # 16 for each process
    config, before = make_config({"runner": runner, "batch_size": 256}), torch.get_num_threads()
    try:
        planned = budget(config, config.processes)
        assert (planned.learn_threads, planned.torch_threads) == expected
        assert torch.get_num_threads() == expected[1]
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------------------------------- priorities from actors

GAMMA = 0.9


def told_by_hand(steps: list[dict[str, Any]], n_step: int) -> dict[int, tuple[int, float]]:
    """For each step of one episode in one lane: after which step its priority is told, and which."""
    told = {}
    ended = steps[-1]["end"]
    for i, step in enumerate(steps):
        last = i + n_step
        if last < len(steps):
            rewards, bootstrap = steps[i:last], GAMMA**n_step * steps[last]["value"]
        elif ended:
            last, rewards = len(steps) - 1, steps[i:]
            bootstrap = 0.0 if ended == "terminated" else GAMMA ** len(rewards) * steps[-1]["value"]
        else:
            continue
        total = sum(GAMMA**k * each["reward"] for k, each in enumerate(rewards))
        told[i] = last, abs(total + bootstrap - step["taken"])
    return told


@settings(max_examples=40, deadline=None)
@given(lanes=st.integers(1, 3), n_step=st.integers(1, 5), steps=st.integers(1, 60), end_share=st.floats(0, 0.6),
       seed=st.integers(0, 10**6))  # fmt: skip
def test_every_entry_has_the_priority_that_its_actor_told_when_its_window_was_complete(
    lanes: int, n_step: int, steps: int, end_share: float, seed: int
) -> None:
    random, never = np.random.default_rng(seed), np.zeros((lanes, 1, 1), np.uint8)
    storage = FrameStorage(lanes, 30, (1, 1), stack=3, n_step=n_step, gamma=GAMMA, priorities=True)
    sampler = PrioritizedSampler(storage, alpha=1.0, beta=0.4, beta_annealing=0.0)
    errors = TDErrors(lanes, n_step, GAMMA)
    episodes: list[list[list[dict[str, Any]]]] = [[[]] for _ in range(lanes)]
    found: list[dict[tuple[int, int], float]] = []  # of each step: (lane, entry) and priority
    for _ in range(steps):
        q_values = random.normal(size=(lanes, 4)).astype(np.float32)
        q_values[:, 3] = -np.inf  # never legal
        actions, rewards = random.integers(0, 3, lanes), random.normal(size=lanes).astype(np.float32)
        ends = random.choice(["", "terminated", "truncated"], lanes, p=[1 - end_share, *[end_share / 2] * 2])
        entries = storage.written.copy()
        told = errors.step(q_values, actions, rewards, ends == "terminated", ends == "truncated")
        found.append({
            (lane, entries[lane] - age): error
            for lane, age, error in zip(told.lanes, told.ages, told.td_errors, strict=True)
        })  # fmt: skip
        assert len(found[-1]) == told.ages.size  # none twice
        storage.append(
            PlayedStep(never, actions, rewards, ends == "terminated", ends == "truncated", never), priorities=told
        )
        sampler.on_append()
        for lane in range(lanes):
            step = {"entry": entries[lane], "taken": q_values[lane, actions[lane]], "value": q_values[lane].max(),
                    "reward": rewards[lane], "end": str(ends[lane]), "number": len(found) - 1}  # fmt: skip
            episodes[lane][-1].append(step)
            if ends[lane]:
                episodes[lane].append([])
    expected: list[dict[tuple[int, int], float]] = [{} for _ in range(steps)]
    for lane in range(lanes):
        for episode in filter(None, episodes[lane]):
            for i, (last, error) in told_by_hand(episode, n_step).items():
                expected[episode[last]["number"]][lane, episode[i]["entry"]] = error
    priorities = {}
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
        priorities |= theirs
    in_tree = sampler.state()["priorities"]
    all_lanes, all_entries = (part.ravel() for part in np.indices((lanes, int(storage.written.max()) + 1)))
    possible = storage.sampleable(all_lanes, all_entries)
    for lane, entry in zip(all_lanes[possible], all_entries[possible], strict=True):
        assert in_tree[lane, entry % storage.capacity] == pytest.approx(priorities[lane, entry] + EPSILON, abs=1e-5)


# --------------------------------------------------------------------------------------- weights for the actors


def network_of(number: int) -> nn.Module:
    """Whose parameters all are `number`."""
    network = nn.Sequential(nn.Linear(100, 300), nn.Linear(300, 100))
    for parameter in network.parameters():
        nn.init.constant_(parameter, number)
    return network


def numbers_in(network: nn.Module) -> set[float]:
    return {float(number) for parameter in network.parameters() for number in parameter.detach().unique()}


def _publish(memory: SharedMemory) -> None:
    network = network_of(0)
    weights = SharedWeights(parameter_count(network), memory)
    for number in range(1, 2**24):  # as far as float32 counts
        for parameter in network.parameters():
            nn.init.constant_(parameter, number)
        weights.publish(network, number)


def test_weights_are_pulled_whole_and_a_killed_writer_leaves_the_last_ones() -> None:
    network, memory = network_of(0), SharedMemory()
    readers = [SharedWeights(parameter_count(network), memory) for _ in range(2)]
    seen = [0]
    with child(_publish, memory) as writer:

        def pull() -> bool:
            for reader in readers:
                updates = reader.pull(network)
                if updates is not None:
                    assert numbers_in(network) == {updates}
                    assert updates >= seen[-1]
                    seen.append(updates)
            return len(seen) > 500

        wait_until(pull, "500 versions")
        writer.kill()
        writer.join()
    pull()  # what was there at the end
    assert all(reader.pull(network) is None for reader in readers)
    late = SharedWeights(parameter_count(network), memory)
    assert late.pull(network) == seen[-1]
    assert numbers_in(network) == {seen[-1]}


class Stop(Exception):
    pass


class Stopping(np.ndarray):
    """Stops when half of a slot is written."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((key, slice(value.size // 2)), value[: value.size // 2])
        raise Stop


def test_a_writer_that_ends_in_the_middle_leaves_the_last_whole_version() -> None:
    network, memory = network_of(7), SharedMemory()
    for number in (7, 8):
        SharedWeights(parameter_count(network), memory).publish(network_of(number), number)
    dying = SharedWeights(parameter_count(network), memory)
    dying._slots = dying._slots.view(Stopping)
    with pytest.raises(Stop):
        dying.publish(network_of(9), 9)
    reader = SharedWeights(parameter_count(network), memory)
    assert reader.pull(network) == 8
    assert numbers_in(network) == {8}
    SharedWeights(parameter_count(network), memory).publish(network_of(10), 10)
    assert reader.pull(network) == 10
    assert numbers_in(network) == {10}


# --------------------------------------------------------------------------------------------- the shared model


class Halting(SharedDQN):
    """Tells that it is in the middle of something, and stays there."""

    def halt(self) -> None:
        self.told.send(self.updates)
        signal.pause()

    told: Connection
    storing = False

    def _parts(self, slot: int) -> Iterator[tuple[Tensor, Tensor]]:
        parts = list(super()._parts(slot))
        for place, part in enumerate(parts):
            if self.storing and place == len(parts) // 2:
                self.halt()
            yield part


def _halt(memory: SharedMemory, lock: ProcessLock, told: Connection, moment: str) -> None:
    agent = agent_of(1, Halting, memory=memory, lock=lock)
    agent.told = told
    agent.pull()
    agent.update(*batch_of(0))  # the shared model's second
    step = agent.optimizer.step

    def step_and_halt() -> None:
        step()
        if moment == "apply":
            agent.halt()
        agent.storing = True

    agent.optimizer.step = step_and_halt  # type: ignore[method-assign]
    agent.update(*batch_of(1))


@pytest.mark.parametrize("moment", ["apply", "_store"])
def test_a_worker_killed_with_the_lock_leaves_the_model_as_it_was(moment: str) -> None:
    memory, lock = SharedMemory(), ProcessLock()
    agent, witness = (agent_of(seed, SharedDQN, memory=memory, lock=lock) for seed in (0, 2))
    agent.store_initial()
    agent.update(*batch_of(5))
    expected = agent_of(0)
    for number in (5, 0):
        expected.update(*batch_of(number))
    ours, theirs = multiprocessing.get_context("spawn").Pipe(duplex=False)
    with child(_halt, memory, lock, theirs, moment) as holder:
        assert ours.poll(PATIENCE_S)
        assert ours.recv() == (2 if moment == "apply" else 3)
        with pytest.raises(BlockingIOError):
            fcntl.lockf(lock._arena.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
        witness.pull()  # waits for the lock
    assert witness.updates == 2
    for found, wanted in zip(witness.tensors(), expected.tensors(), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-3, atol=2e-5)
    agent.pull()
    for number in (6, 7):
        agent.update(*batch_of(number))
        expected.update(*batch_of(number))
    witness.pull()
    assert witness.updates == agent.updates == 4
    for found, wanted in zip(witness.tensors(), expected.tensors(), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-3, atol=1e-4)


# -------------------------------------------------------------------------------------------------- the options


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_makes_a_run_and_gives_way_to_file_and_flags(name: str, tmp_path: Path) -> None:
    config = make_plan({}, preset_name=name).config
    for field, value in preset(name).items():
        assert getattr(config, field) == value
    file = tmp_path / "mine.toml"
    file.write_text(f'runner = "{config.runner}"\nbatch_size = 128\nsync_every = 77\n')
    config = make_plan({"sync_every": 78, "seed": 5}, config_file=file, preset_name=name).config
    assert (config.batch_size, config.sync_every, config.seed) == (128, 78, 5)
    assert config.save_every == PRESETS[name].get("save_every", RunConfig.save_every)


SINGLE, TWO, THREE = (" or ".join(f"--runner {name}" for name in names) for names in (
    ("single",), ("parallel", "ddp"), ("single", "parallel", "ddp"),
))  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--preset apex", "--preset must be one of parallel-classic, apex-classic, apex-paper, got 'apex'"),
        ("--num-actors 3", "--num-actors is not an option of single; it needs --runner apex"),
        ("--runner ddp --num-actors 3", "--num-actors is not an option of ddp; it needs --runner apex"),
        ("--num-processes 3", f"--num-processes is not an option of single; it needs {TWO}"),
        ("--runner parallel --checkpoint-replay",
         f"--checkpoint-replay is not an option of parallel; it needs {SINGLE}"),
        ("--runner apex --use-mmap-buffer", f"--replay-device is not an option of apex; it needs {THREE}"),
        ("--runner apex --no-async-envs", f"--async-envs is not an option of apex; it needs {THREE}"),
        ("--runner apex --num-actors 0", "--num-actors must be a whole number between 1 and 1,024, got 0"),
        ("--preset apex-paper --runner single", "--num-actors is not an option of single"),
        ("--runner dpp", "--runner must be one of single, parallel, ddp, apex, got 'dpp'"),
    ],
)  # fmt: skip
def test_options_of_another_runner_are_refused_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        cli.run(["--no-ui", *arguments.split()])
    assert str(refused.value).startswith(complaint)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("runner", "option", "many"), [("apex", "num_actors", 1024), ("parallel", "num_processes", 256)]
)
def test_what_all_processes_take_of_memory_is_checked_before_the_start(runner: str, option: str, many: int) -> None:
    options: dict[str, Any] = {"runner": runner, "parallel_envs": 1, "batch_size": 2048, "buffer_size": 600_000}
    picture = {"frame_shape": (50, 60), "stack": 4, "mask_actions": 0, "with_replay": True}
    check_memory(make_config({**options, option: 1}), **picture)
    with pytest.raises(UserError, match=r"GiB of memory are free; accepted: .* or fewer processes"):
        check_memory(make_config({**options, option: many}), **picture)  # 360 GiB and more


def test_an_unknown_preset_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = run_program("--no-ui", "--preset", "fastest", cwd=tmp_path, check=2)
    assert done.stdout == ""
    assert done.stderr.startswith("mario-tui: error: --preset must be one of parallel-classic")
    assert len(done.stderr.splitlines()) == 1


# ---------------------------------------------------------------------------------- the pool and its shared_state


def _speak_and_fail(link: HostLink, index: int, restarts: int, shared_state: SharedMemory) -> None:
    """Only the first process fails: who fails in vain again and again ends the leading process."""
    if restarts == 0:
        for number in range(20):
            link.log(f"word {number}")
        raise RuntimeError("no room")
    ours = SharedState(1, shared_state)
    ours.beat(0, PATIENCE_S)
    wait_until(lambda: ours.stopped, "the order to stop")


def _hang(link: HostLink, index: int, restarts: int) -> None:
    signal.pause()


def _lead_members_that_hang(reports: ReportQueue) -> None:
    reports.only_write()
    WorkerPool("rank", _hang, (), SharedState(1, SharedMemory()), HostLink(reports), start_s=0.1)
    signal.pause()


def test_a_member_that_never_starts_is_replaced_and_given_up_in_the_end() -> None:
    queue = ReportQueue()
    with child(_lead_members_that_hang, queue) as leader:
        queue.only_read()
        reports: list[Any] = []
        while not reports or not isinstance(reports[-1], Failed):
            assert queue.poll(PATIENCE_S)
            reports.append(queue.get())
        leader.join(PATIENCE_S)
    *replaced, failed = reports
    lost = "rank 0 was lost (it did not start within 0.1 s)"
    assert [log.text for log in replaced] == [f"{lost}; restarted"] * 2
    assert (failed.reason, failed.final) == (lost, True)


@pytest.mark.parametrize(
    ("asked", "resolved", "expected"),
    [
        ("auto", "cpu", ["auto", "auto"]),
        ("auto", "mps", ["cpu", "cpu"]),  # gloo has no MPS
        ("auto", "cuda", ["cuda:0", "cuda:1"]),
        ("cuda", "cuda", ["cuda:0", "cuda:1"]),
        ("cuda:2", "cuda:2", ["cuda:2", "cuda:3"]),
    ],
)
def test_every_rank_has_a_device_of_its_own(
    asked: str, resolved: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [device_of_rank(asked, torch.device(resolved), index, 2) for index in range(2)] == expected


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("mps", "--device: mps: PyTorch can't average gradients there; --runner ddp accepts: auto, cpu, cuda"),
        ("cuda:3", "--num-processes: 2 ranks need a GPU each, and this machine has 1 from cuda:3 on; accepted: 1 to 1"),
    ],
)
def test_ranks_without_a_device_are_refused(asked: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(UserError) as refused:
        device_of_rank(asked, torch.device(asked), 0, 2)
    assert str(refused.value).startswith(complaint)


def test_the_last_words_of_a_member_are_heard() -> None:
    memory = SharedMemory()
    shared_state = SharedState(1, memory)
    reports = ReportQueue()
    pool = WorkerPool("worker", _speak_and_fail, (memory,), shared_state, HostLink(reports))
    heard: list[str] = []
    while not heard or "restarted" not in heard[-1]:
        report = reports.get()
        assert isinstance(report, Log)
        heard.append(report.text)
    shared_state.stop()
    pool.close()
    assert heard[:-1] == [f"worker 0: word {number}" for number in range(20)]
    assert heard[-1] == "worker 0 was lost (RuntimeError: no room); restarted"


def test_no_episode_is_missed_where_many_end_between_two_looks() -> None:
    shared_state = SharedState(2)
    for number in range(5_000):
        shared_state.record(1, 1, 4, [EpisodeRecord(0, 0.0, number, 0, False, 0, -1, 0)])
    assert [(member, episode.length) for member, episode in shared_state.new_episodes()] == [
        (1, each) for each in range(5_000)
    ]
    assert list(shared_state.new_episodes()) == []
