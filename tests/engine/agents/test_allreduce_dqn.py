"""Ranks that average their gradients take the steps of one process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import FileStore

from engine.agents import DoubleDQN, DuelingQNetwork, allreduce_dqn
from engine.agents.allreduce_dqn import AllreduceDQN
from engine.buffers import Batch
from engine.config.reading import make_config
from engine.runners.start import learning_threads
from engine.runtime import threads
from tests.support.agent import BATCH, agent_of, batch_of
from tests.support.program import PATIENCE_S, child

UPDATES = 10
MOMENTS = ("never", "_loss", "_on_gradient")


def half_of(number: int, rank: int) -> tuple[Batch, np.ndarray]:
    batch, weights = batch_of(number)
    half = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    arrays = {name: array[half] for name, array in vars(batch).items() if array is not None}
    return Batch(**arrays), weights[half]


def weighed_half_of(number: int, rank: int, agent: AllreduceDQN) -> tuple[Batch, Any]:
    """A half as its rank draws it, with weights relative to its own largest, and then as `agent` learns from it."""
    batch, weights = half_of(number, rank)
    return batch, agent.common_weights(weights / weights.max(), np.full(weights.size, weights.max(), np.float64))


def weighed_batch_of(number: int) -> tuple[Batch, np.ndarray]:
    batch, weights = batch_of(number)
    return batch, weights / weights.max()


def learn(agent: DoubleDQN, batches: Callable[[int], tuple[Batch, Any]]) -> None:
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
        learn(agent, functools.partial(weighed_half_of, rank=rank, agent=agent))
        found = [tensor.detach().numpy() for tensor in agent.tensors()]
        np.savez(folder / f"{moment}-{rank}.npz", *found, accumulate=agent.accumulate, updates=agent.updates)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.long
@pytest.mark.process
def test_ranks_with_half_a_batch_each_equal_one_process_also_where_one_of_them_runs_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    alone = agent_of(0)
    with child(_rank, 0, tmp_path) as one, child(_rank, 1, tmp_path) as other:
        learn(alone, weighed_batch_of)
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
        planned = learning_threads(config, config.processes)
        assert (planned.learn_threads, planned.torch_threads) == expected
        assert torch.get_num_threads() == expected[1]
    finally:
        torch.set_num_threads(before)
