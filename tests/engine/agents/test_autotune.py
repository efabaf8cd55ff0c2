"""Automatic choices: batch size and precision."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.agents import DoubleDQN, DuelingQNetwork
from engine.agents import autotune as probe
from engine.agents.autotune import choose, faster_precision, random_batch, remembered, tune_batch_size
from engine.buffers import Batch
from engine.config.game import Spec
from engine.config.reading import make_config
from engine.runtime.devices import Precision
from tests.support.agent import Table
from tests.support.learner import SPEC

SCREENS = Spec((50, 60), 3, stack=4, hold=8, masked=False)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clocks of `autotune`, which only move when a test advances them."""
    clock = Clock()
    monkeypatch.setattr(probe, "time", clock)
    return clock


class Clock:
    now = 0.0
    process_now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.process_now


def test_tuned_batch_size_fits_and_is_faster(clock: Clock) -> None:
    tables = [Table([[1.0, 2.0], [5.0, 4.0]]) for _ in range(2)]
    agent, most = DoubleDQN(*tables, device=torch.device("cpu"), learning_rate=1e-9, precision="float32"), 128

    def refuse(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[0] > most:
            raise RuntimeError("MPS backend out of memory")
        clock.now += 0.02  # what every update costs, however small: a batch of twice the size pays

    def wait(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        clock.now += 0.001 * inputs[0].shape[0]  # now every sample costs the same, and no larger batch pays

    def batch(size: int) -> Batch:
        pixels = np.zeros((size, 1, 1, 1), np.uint8)
        return Batch(pixels, np.zeros(size, np.int64), np.zeros(size, np.float32), pixels, np.zeros(size, np.float32))

    hook = agent.online.register_forward_pre_hook(refuse)
    assert tune_batch_size(agent, batch, 4096) == most
    assert [tune_batch_size(agent, batch, held) for held in (100, 20)] == [64, 20]
    hook.remove()
    agent.online.register_forward_pre_hook(wait)
    assert tune_batch_size(agent, batch, 4096) == 32


def test_tuned_batch_size_fits_the_replay_even_if_it_is_smaller_on_resume() -> None:
    tight = {"parallel_envs": 1, "num_processes": 5, "buffer_size": 100, "burnin": 40, "n_step": 2, "amp": False}
    config = make_config({**tight, "runner": "parallel", "batch_size": "auto"})
    chosen = choose(config, SPEC, torch.device("cpu"), 1, None, lambda text: None)
    assert chosen.batch_size == 20
    kept = {**chosen.state(), "batch_size": 4096}
    assert choose(config, SPEC, torch.device("cpu"), 1, kept, lambda text: None).batch_size == 20


def test_the_faster_precision_is_chosen(clock: Clock) -> None:
    slow: set[str] = set()

    throttled_after = 1000.0

    def took(seconds: float) -> None:
        clock.process_now += seconds * (10 if clock.process_now > throttled_after else 1)
        clock.now += 1 / seconds  # the longer it waits for other programs, the less it computes

    def build(precision: Precision) -> DoubleDQN:
        networks = [DuelingQNetwork(4, (50, 60), 3) for _ in range(2)]
        agent = DoubleDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision=precision)
        if precision in slow:
            agent.online.register_forward_pre_hook(lambda module, inputs: took(0.3))
        agent.online.register_forward_pre_hook(lambda module, inputs: took(0.1))
        return agent

    for slower, faster in (("float32", "bfloat16"), ("bfloat16", "float32")):
        slow = {slower}
        assert faster_precision(build, random_batch(8, SCREENS)) == faster
    slow, throttled_after = {"float32"}, clock.process_now + 3  # the processor slows down after three or four updates
    assert faster_precision(build, random_batch(8, SCREENS)) == "bfloat16"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mario-tui" / "precision"


def test_runs_with_equal_options_get_the_precision_that_was_measured_first(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(measured: Precision, **options: Any) -> Precision:
        monkeypatch.setattr(probe, "faster_precision", lambda build, batch: measured)
        config = make_config({"parallel_envs": 1, "batch_size": 8, **options})
        return choose(config, SPEC, torch.device("cpu"), 1, None, lambda text: None).precision

    assert chosen("bfloat16") == "bfloat16"
    assert chosen("float32") == "bfloat16"  # near the threshold, another measurement says otherwise
    assert chosen("float32", batch_size=16) == "float32"  # other shapes
    assert chosen("bfloat16", amp=False) == "float32"
    vectors = dataclasses.replace(SPEC, frame_dtype="float32")  # of 1000 and 1002, bfloat16 makes the same number
    assert choose(make_config({}), vectors, torch.device("cpu"), 1, None, lambda text: None).precision == "float32"
    assert len(list(cache.iterdir())) == 2
    for file in cache.iterdir():
        file.write_text('{"precision": "float8"}')
    assert chosen("float32") == "float32"
    assert json.loads(next(iter(cache.glob("*.json"))).read_text())["precision"] in ("float32", "float8")


def test_a_precision_that_can_not_be_remembered_is_measured(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    assert remembered({}, lambda: "bfloat16") == "bfloat16"
    assert remembered({}, lambda: "float32") == "float32"


def test_bfloat16_must_be_faster_by_more_than_noise(clock: Clock) -> None:
    def build(precision: Precision) -> DoubleDQN:
        networks = [DuelingQNetwork(4, (50, 60), 3) for _ in range(2)]
        agent = DoubleDQN(*networks, device=torch.device("cpu"), learning_rate=1e-3, precision=precision)
        seconds = {"float32": 1.0, "bfloat16": 0.95}[precision]

        def wait(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            clock.now += seconds

        agent.online.register_forward_pre_hook(wait)
        return agent

    assert faster_precision(build, random_batch(8, SCREENS)) == "float32"


@pytest.mark.parametrize(
    ("name", "is_mixed"),
    [
        ("Flat", False),
        ("FlatRounded", False),
        ("FlatDueling", False),
        ("FlatInFloat32", True),
        ("FlatOfZeros", True),
    ],
)
@pytest.mark.process
def test_mixed_precision_is_only_for_networks_whose_values_it_does_not_round(name: str, is_mixed: bool) -> None:
    env = {"game": "gym", "env": "tests.support.gym_envs:Squares-v0", "observation": "20x20-gray"}
    config = make_config({**env, "network": f"tests.support.own_networks:{name}", "batch_size": 8})
    said: list[str] = []
    chosen = choose(
        config, config.spec, torch.device("cpu"), 1, {"device": "cpu", "precision": "bfloat16"}, said.append
    )
    assert chosen.precision == ("bfloat16" if is_mixed else "float32")
    assert any("would round the Q-values" in text for text in said) != is_mixed
