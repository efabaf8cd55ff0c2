"""What processes of a run share: priorities, weights and the model."""

from __future__ import annotations

import fcntl
import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.agents.networks import make_network
from engine.agents.shared_dqn import ProcessLock, SharedDQN
from engine.agents.weights import SharedWeights, vector_size
from engine.buffers import FrameStorage, PrioritizedSampler, SharedMemory
from engine.buffers.sampling import EPSILON
from engine.config.reading import make_config
from engine.config.runners import Choices
from engine.envs.lanes import PlayedStep
from engine.games.boards.lanes import BoardLanes
from engine.runners.apex_actor import ApexActor, TDErrors
from engine.runs.replay_file import ReplayShape
from tests.support.agent import agent_of, batch_of
from tests.support.program import PATIENCE_S, child, wait_until

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
        elif ended == "failed":
            last, rewards = len(steps) - 1, steps[i:-1]
            if not rewards:
                continue
            bootstrap = GAMMA ** len(rewards) * steps[-1]["value"]
        elif ended:
            last, rewards = len(steps) - 1, steps[i:]
            bootstrap = 0.0 if ended == "terminated" else GAMMA ** len(rewards) * steps[-1]["value"]
        else:
            continue
        total = sum(GAMMA**k * each["reward"] for k, each in enumerate(rewards))
        told[i] = last, abs(total + bootstrap - step["taken"])
    return told


@settings(max_examples=40)
@given(lanes=st.integers(1, 3), n_step=st.integers(1, 5), steps=st.integers(1, 60), end_share=st.floats(0, 0.6),
       gap_share=st.sampled_from((0.0, 0.5)), seed=st.integers(0, 10**6))  # fmt: skip
def test_every_entry_has_the_priority_that_its_actor_told_when_its_window_was_complete(
    lanes: int, n_step: int, steps: int, end_share: float, gap_share: float, seed: int
) -> None:
    random, never = np.random.default_rng(seed), np.zeros((lanes, 1, 1), np.uint8)
    storage = FrameStorage(ReplayShape(lanes, 30, (1, 1), stack=3, n_step=n_step), gamma=GAMMA, priorities=True)
    sampler = PrioritizedSampler(storage, alpha=1.0, beta=0.4, beta_annealing=0.0)
    errors = TDErrors(lanes, n_step, GAMMA, gap_share)
    episodes: list[list[list[dict[str, Any]]]] = [[[]] for _ in range(lanes)]
    found: list[dict[tuple[int, int], float]] = []  # of each step: (lane, entry) and priority
    for _ in range(steps):
        q_values = random.normal(size=(lanes, 4)).astype(np.float32)
        q_values[:, 3] = -np.inf  # never legal
        actions, rewards = random.integers(0, 3, lanes), random.normal(size=lanes).astype(np.float32)
        ends = random.choice(["", "terminated", "truncated", "failed"], lanes, p=[1 - end_share, *[end_share / 3] * 3])
        entries = storage.written.copy()
        terminated, truncated, failed = (ends == end for end in ("terminated", "truncated", "failed"))
        told = errors.step(q_values, actions, rewards, terminated, truncated | failed, failed)
        found.append({
            (lane, entries[lane] - age): error
            for lane, age, error in zip(told.lanes, told.ages, told.td_errors, strict=True)
        })  # fmt: skip
        assert len(found[-1]) == told.ages.size  # none twice
        storage.append(
            PlayedStep(never, actions, rewards, terminated, truncated, never, failed=failed), priorities=told
        )
        sampler.on_append()
        for lane in range(lanes):
            value, taken = q_values[lane].max(), q_values[lane, actions[lane]]
            step = {"entry": entries[lane], "taken": taken + gap_share * (value - taken), "value": value,
                    "reward": rewards[lane], "end": str(ends[lane]), "number": len(found) - 1}  # fmt: skip
            episodes[lane][-1].append(step)
            if ends[lane]:
                episodes[lane].append([])
    expected: list[dict[tuple[int, int], float]] = [{} for _ in range(steps)]
    for lane in range(lanes):
        for episode in filter(None, episodes[lane]):
            for i, (last, error) in told_by_hand(episode, n_step).items():
                expected[episode[last]["number"]][lane, episode[i]["entry"]] = error
    priorities: dict[tuple[int, int], float] = {}
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
        priorities |= theirs
    in_tree = sampler.state()["priorities"]
    all_lanes, all_entries = (part.ravel() for part in np.indices((lanes, int(storage.written.max()) + 1)))
    possible = storage.sampleable(all_lanes, all_entries)
    for lane, entry in zip(all_lanes[possible], all_entries[possible], strict=True):
        assert in_tree[lane, entry % storage.capacity] == pytest.approx(priorities[lane, entry] + EPSILON, abs=1e-5)


@pytest.mark.parametrize("resumed", [False, True])
def test_the_last_steps_of_an_actor_that_is_replaced_have_the_largest_priority(resumed: bool) -> None:
    def storage_of() -> FrameStorage:
        return FrameStorage(ReplayShape(1, 30, (1, 1), stack=1, n_step=3), gamma=GAMMA, priorities=True)

    storage, random, none = storage_of(), np.random.default_rng(0), np.zeros(1, np.bool_)
    errors, frame = TDErrors(1, 3, GAMMA, 0.0), np.zeros((1, 1, 1), np.uint8)
    for _ in range(40):  # the ring has old priorities in all its places
        q_values, action = random.normal(size=(1, 4)).astype(np.float32), np.zeros(1, np.int64)
        told = errors.step(q_values, action, np.ones(1, np.float32), none, none)
        storage.append(PlayedStep(frame, action, np.ones(1, np.float32), none, none, frame), priorities=told)
    if resumed:
        state, storage = storage.state(), storage_of()
        storage.load_state(state)
    sampler = PrioritizedSampler(storage, alpha=1.0, beta=0.4, beta_annealing=0.0)
    sampler.on_append()
    known = sampler.state()["largest"][0]
    storage.end_episodes()  # as its replacement does
    sampler.on_append()
    written = int(storage.written[0])
    last = np.arange(written - 3, written - 1) % storage.capacity  # the newest is now a final frame
    assert (sampler.state()["priorities"][0, last] == known).all() and known >= 1


def test_actors_and_learner_have_random_numbers_of_their_own() -> None:
    config = make_config({"game": "snake", "board": "5x5", "runner": "apex", "num_actors": 2, "parallel_envs": 1})
    choices = Choices(device="cpu", precision="float32", threads=1, batch_size=8)
    seeds = [int(np.random.SeedSequence(config.seed).generate_state(1)[0])]  # the learner's
    for index, restarts, begun_at in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
        actor = ApexActor(config, choices, index, restarts, begun_at, 0.0, 1)
        assert isinstance(actor.actor.env, BoardLanes)
        seeds.append(actor.actor.env.board.generators[0].initial_seed())
        actor.close()
    assert len(set(seeds)) == 5


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
    weights = SharedWeights(vector_size(network), memory)
    for number in range(1, 2**24):  # as far as float32 counts
        for parameter in network.parameters():
            nn.init.constant_(parameter, number)
        weights.publish(network, number)


@pytest.mark.long
@pytest.mark.process
def test_weights_are_pulled_whole_and_a_killed_writer_leaves_the_last_ones() -> None:
    network, memory = network_of(0), SharedMemory()
    readers = [SharedWeights(vector_size(network), memory) for _ in range(2)]
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
    late = SharedWeights(vector_size(network), memory)
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
        SharedWeights(vector_size(network), memory).publish(network_of(number), number)
    dying = SharedWeights(vector_size(network), memory)
    dying._slots = dying._slots.view(Stopping)
    with pytest.raises(Stop):
        dying.publish(network_of(9), 9)
    reader = SharedWeights(vector_size(network), memory)
    assert reader.pull(network) == 8
    assert numbers_in(network) == {8}
    SharedWeights(vector_size(network), memory).publish(network_of(10), 10)
    assert reader.pull(network) == 10
    assert numbers_in(network) == {10}


def with_buffers(number: int) -> nn.Module:
    """Whose running mean and number of passes are `number`."""
    network = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2))
    for buffer in network.buffers():
        buffer.fill_(number)
    return network


def test_buffers_travel_with_the_weights() -> None:
    memory, network = SharedMemory(), with_buffers(0)
    SharedWeights(vector_size(network), memory).publish(with_buffers(3), 1)
    assert SharedWeights(vector_size(network), memory).pull(network) == 1
    assert [float(number) for buffer in network.buffers() for number in buffer.flatten()] == [3.0] * 5


# --------------------------------------------------------------------------------------------- the shared model


def test_every_worker_has_the_buffers_of_the_owner() -> None:
    memory, lock = SharedMemory(), ProcessLock()

    def worker(number: int) -> SharedDQN:
        options: Any = {"device": torch.device("cpu"), "learning_rate": 1e-3, "precision": "float32"}
        networks = [nn.Sequential(nn.Linear(81, 3), nn.BatchNorm1d(3)) for _ in range(2)]
        for network in networks:
            for buffer in network.buffers():
                buffer.fill_(number)
        return SharedDQN(*networks, memory=memory, lock=lock, owner=number == 1, **options)

    owner, other = worker(1), worker(2)
    owner.store()
    other.pull()
    assert [each.tolist() for each in other.buffers] == [each.tolist() for each in owner.buffers]
    for network in (owner.online, owner.target):
        for buffer in network.buffers():
            buffer.add_(7)
    other.apply([torch.ones_like(each) for each in other.online.parameters()])
    owner.apply([torch.ones_like(each) for each in owner.online.parameters()])  # a model that the other has stored
    other.pull()
    assert owner.updates == other.updates == 2
    assert [each.tolist() for each in other.buffers] == [each.tolist() for each in owner.buffers]
    assert float(other.buffers[0][0]) == 8


def test_all_workers_have_the_target_that_any_of_them_has_moved() -> None:
    memory, lock = SharedMemory(), ProcessLock()
    agents = []
    for number in range(2):
        torch.manual_seed(0)
        networks = [make_network("impala-wide", 1, (8, 8), 3) for _ in range(2)]
        options: Any = {"device": torch.device("cpu"), "learning_rate": 1e-3, "precision": "float32"}
        options |= {"memory": memory, "lock": lock, "owner": number == 0, "sync_every": 2, "tau": 1.0}
        agents.append(SharedDQN(*networks, **options))
    owner, other = agents
    owner.store()
    for agent in (owner, other) * 2:  # the other one's updates move the target
        agent.pull()
        agent.apply([torch.randn_like(each) for each in agent.online.parameters()])
    owner.pull()
    assert all(map(torch.equal, owner.tensors(), other.tensors()))
    assert all(map(torch.equal, owner.target.state_dict().values(), owner.online.state_dict().values()))


class Halting(SharedDQN):
    """Tells that it is in the middle of something, and stays there."""

    def halt(self) -> None:
        self.told.send(self.updates)
        signal.pause()

    told: Connection
    storing = False

    def _write(self, slot: Tensor, parts: list[Tensor]) -> None:
        if self.storing:
            half = len(slot) // 2
            slot[:half] = torch.cat(parts)[:half]
            self.halt()
        super()._write(slot, parts)


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

    agent.optimizer.step = step_and_halt
    agent.update(*batch_of(1))


@pytest.mark.parametrize("moment", ["apply", "_store"])
@pytest.mark.process
def test_a_worker_killed_with_the_lock_leaves_the_model_as_it_was(moment: str) -> None:
    memory, lock = SharedMemory(), ProcessLock()
    agent, witness = (agent_of(seed, SharedDQN, memory=memory, lock=lock) for seed in (0, 2))
    agent.store()
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
