"""Chunks: what arrives is what was played, and nothing else is accepted."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import zlib
from typing import Any

import msgspec
import numpy as np
import pytest

from engine.buffers.memory import HostMemory
from engine.config.game import Spec
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.config.runners import Choices
from engine.extras.ray.chunks import Chunk, ChunkError, ChunkReader, ChunkWriter, Orders, encode_orders
from engine.extras.ray.remote_actor import RemoteActor
from engine.games.mario.actions import STAGES
from engine.games.mario.lanes import MarioLanes
from engine.protocol.messages import SCREEN_SHAPE, Thought
from engine.runners.apex_actor import ApexActor
from engine.runners.learning.factory import shared_replay
from engine.runtime.stopwatch import stopwatch
from tests.support.gym_envs import CRASHING

GAMES: dict[str, dict[str, Any]] = {
    "snake": {"game": "snake", "board": "5x5"},
    "tetris": {"game": "tetris", "board": "4x5"},  # with masks
    "mario": {"game": "mario", "frame_skip": 60, "sticky_actions": 0.25},
    "gym": {"game": "gym", "env": "CartPole-v1"},  # vectors
    "crashing": {"game": CRASHING},
}
CHOICES = Choices("cpu", "float32", 32, 1)


def config_of(game: str) -> RunConfig:
    return make_config({**GAMES[game], "runner": "apex", "num_actors": 1, "parallel_envs": 3, "n_step": 3})


def player(config: RunConfig) -> ApexActor:
    return ApexActor(config, CHOICES, index=0, restarts=0, begun_at=0, level=0.0, lane_threads=1)


def reader(config: RunConfig, spec: Spec) -> ChunkReader:
    return ChunkReader(spec, config.outcome, config.parallel_envs, config.n_step, len(stopwatch.row()))


def played(config: RunConfig, steps: int) -> tuple[Spec, bytes]:
    """A chunk of a new actor."""
    actor = player(config)
    spec = actor.actor.env.spec
    writer = ChunkWriter(spec, config.parallel_envs)
    for _ in range(steps):
        writer.add(actor.finish(actor.choose(0, None, None, 0.0)))
    actor.close()
    return spec, writer.finish(updates=7, times=stopwatch.row(), waited=0.0, seconds=0.1)


@pytest.mark.parametrize("game", ["snake", "tetris"])
def test_an_actor_takes_a_new_discount_factor(game: str) -> None:
    config = config_of(game)
    actor = player(config)
    assert actor._errors.gamma == config.gamma != 0.5
    actor.choose(0, None, 0.5, 0.0)
    assert actor._errors.gamma == 0.5
    if game == "tetris":
        assert actor.network.gamma == 0.5
    actor.close()


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.process
def test_a_replay_filled_by_chunks_equals_one_filled_step_by_step(game: str) -> None:
    config = config_of(game)
    actor = player(config)
    spec = actor.actor.env.spec
    direct, by_chunks = (shared_replay(config, spec, 1, HostMemory()) for _ in range(2))
    writer = ChunkWriter(spec, config.parallel_envs)
    episodes, received = [], []
    for length in (1, 60, 37):
        for _ in range(length):
            step = actor.finish(actor.choose(0, None, None, 0.0))
            direct.storage.append(step.played, step.priorities)
            episodes += step.episodes
            writer.add(step)
        checked = reader(config, spec).decode(
            writer.finish(updates=7, times=stopwatch.row(), waited=1.5, seconds=0.1), length
        )
        assert (checked.chunk.steps, checked.chunk.updates, checked.chunk.waited) == (length, 7, 1.5)
        for played_step, priorities in checked.steps():
            by_chunks.storage.append(played_step, priorities)
        received += checked.episodes
    actor.close()
    assert received == episodes and (episodes or game == "mario")
    ours, theirs = direct.storage.state(), by_chunks.storage.state()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert np.array_equal(array, theirs[name]), name
    assert direct.storage.priorities is not None and by_chunks.storage.priorities is not None
    assert np.array_equal(direct.storage.priorities, by_chunks.storage.priorities)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.process
def test_an_actor_plays_what_it_is_ordered_and_keeps_its_weights_until_newer_ones_come(game: str) -> None:
    config = dataclasses.replace(config_of(game), pull_every=1)
    actor = RemoteActor(config.options(), CHOICES.state(), 0, 0, 0, {}, 0.0)
    actor.build()
    example = player(config)
    spec, size = example.actor.env.spec, sum(parameter.numel() for parameter in example.network.parameters())
    zeros = np.zeros(size, np.float32)
    for steps, updates, screen in ((5, 3, True), (2, 3, False), (4, 9, False)):
        orders = Orders(
            steps=steps, seconds=60.0, env_steps=0, epsilon_scale=0.5, gamma=0.9, level=0.0, updates=updates,
            screen=screen,
        )  # fmt: skip
        checked = reader(config, spec).decode(actor.play(encode_orders(orders), zeros + updates), steps, screen)
        assert (checked.chunk.steps, checked.chunk.updates) == (steps, updates)
        assert (checked.screen is not None) == screen == (checked.chunk.thought is not None)
    late = msgspec.structs.replace(orders, steps=100, seconds=0.0)  # its time is over after the first step
    assert reader(config, spec).decode(actor.play(encode_orders(late), zeros), 100).chunk.steps == 1


def chunk_with(data: bytes, **changes: Any) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(msgspec.msgpack.decode(data, type=Chunk), **changes))


def test_what_is_no_chunk_of_the_run_is_refused() -> None:
    config = config_of("tetris")
    spec, data = played(config, 8)
    decode = functools.partial(reader(config, spec).decode, steps=8)
    good = decode(data).chunk
    floats = 8 * 3
    bad: dict[str, Any] = {
        "steps": 9,
        "frames": good.frames[:2],
        "final_frames": zlib.compress(b"x"),
        "actions": np.full(floats, spec.actions, "<i2").tobytes(),
        "rewards": np.full(floats, np.nan, "<f4").tobytes(),
        "ends": np.full(floats, 5, np.uint8).tobytes(),
        "masks": None,
        "final_masks": zlib.compress(b"\xff" * 1000),
        "priority_counts": np.full(8, 2**31, "<u4").tobytes(),
        "priority_lanes": np.full(len(good.priority_lanes) // 2, 3, "<u2").tobytes(),
        "priority_ages": np.full(len(good.priority_ages), 4, np.uint8).tobytes(),
        "td_errors": np.full(len(good.td_errors) // 4, -1, "<f4").tobytes(),
        "episodes": [(0.0,) * 3],
        "times": [0.0],
        "waited": float("nan"),
        "seconds": -1.0,
        "emulated": 2**53,
        "screen": zlib.compress(b"small"),
        "thought": Thought(q_values=[0.0] * 10_000, action=0, random=False, shape=(0, 0, 0, 0), seen=b""),
    }
    forced = {"final_frames": {"ends": np.full(floats, 2, np.uint8).tobytes()}}
    forced["final_masks"] = forced["final_frames"] | {"final_frames": zlib.compress(bytes(floats * 4 * 5))}
    for name, value in bad.items():
        with pytest.raises(ChunkError, match="not a chunk of this run"):
            decode(chunk_with(data, **forced.get(name, {}), **{name: value}), screen=True)
    picture = zlib.compress(bytes(math.prod(SCREEN_SHAPE)))
    assert decode(chunk_with(data, screen=picture), screen=True).screen is not None
    with pytest.raises(ChunkError, match="a picture that was not ordered"):
        decode(chunk_with(data, screen=picture))
    bomb = zlib.compress(bytes(2**28))  # 256 KiB that unpack to 256 MiB
    with pytest.raises(ChunkError, match="bytes instead of"):
        decode(chunk_with(data, frames=[bomb, *good.frames[1:]]))


@pytest.mark.long
def test_edited_bytes_are_refused_or_have_the_shapes_of_the_run() -> None:
    config = config_of("snake")
    spec, data = played(config, 8)
    decode, edits = reader(config, spec).decode, random.Random(0)
    refused = 0
    for _ in range(2000):
        edited = bytearray(data)
        for _ in range(edits.randint(1, 8)):
            edited[edits.randrange(len(edited))] = edits.randrange(256)
        storage = shared_replay(config, spec, 1, HostMemory()).storage
        try:
            for step, priorities in decode(bytes(edited), 8).steps():
                storage.append(step, priorities)
        except ChunkError:
            refused += 1
    assert refused > 500


def test_the_first_episodes_of_an_actor_belong_to_the_level_of_the_curriculum() -> None:
    stages = {"game": "mario", "stage": "1-1,1-2,1-3,1-4", "curriculum": True, "runner": "apex", "parallel_envs": 8}
    config = make_config(stages)
    for level, first in ((0.0, {"1-1"}), (1.0, {"1-1", "1-2"})):
        actor = ApexActor(config, CHOICES, index=0, restarts=0, begun_at=0, level=level, lane_threads=1)
        lanes = actor.actor.env
        assert isinstance(lanes, MarioLanes)
        assert {STAGES[stage] for stage in lanes.stages} == first
        actor.close()
