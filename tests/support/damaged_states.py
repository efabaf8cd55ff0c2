"""Damaged states: real ones of games and replays with something changed, as a foreign checkpoint may hold them.

Each must be refused, or be played and learned from without an error. `python -m tests.support.damaged_states COUNT`
prints how many were; in the mode that checks bounds (`MARIO_TUI_CHECKED=1`) no kernel may leave its arrays either.
"""

from __future__ import annotations

import copy
import json
import shutil
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.agents.values import values_of_actions
from engine.buffers import MappedMemory, PrioritizedReplayBuffer, Replay, ReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.reading import make_config
from engine.console.nes import STATE_WORDS
from engine.console.nes.console import _HEADER
from engine.envs.factory import make_lanes
from engine.envs.lanes import Frames, PlayedStep
from engine.errors import UserError
from engine.games.mario.lanes import MarioLanes
from engine.games.tetris.network import AfterstateQNetwork
from engine.games.tetris.rules import TetrisLanes
from engine.runners.actor import Actor
from engine.runs.replay_file import ReplayShape, replay_shape

Arrays = dict[str, NDArray[Any]]
REFUSALS = (KeyError, TypeError, ValueError, UserError)
"""What callers of `load_state` make one line of."""
SPECIAL = (-1, 0, 1, 2, 5, 28, 255, 256, 2**15 - 1, 2**31, 2**53, 2**62, -(2**40), -(2**63), 2**63 - 1)
SPECIAL_FLOATS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 1e-300, 1e-40, 1e30, 3e38, 1e300)
_LANES, _MOMENTS, _STEPS = 3, 4, 5
_CONSOLES = ("consoles", "start_states", "start_candidates")
GAMES: dict[str, dict[str, Any]] = {
    "snake": {"game": "snake", "board": "5x5", "late_starts": 0.3},
    "tetris": {"game": "tetris", "board": "5x8", "next_piece": True, "pieces": "bag"},
    "mario with start states": {"game": "mario", "start_states": 0.5, "sticky_actions": 0.2, "noop_max": 2},
    "mario on a way": {"game": "mario", "guide": 0.7, "noop_max": 2},
}


class Subject(Protocol):
    """Something with a state."""

    states: list[tuple[dict[str, Any], Arrays]]
    """Real states, of several moments: numbers as in JSON, and arrays."""

    def use(self, numbers: dict[str, Any], arrays: Arrays) -> bool:
        """Load a state and go on from it. Returns whether it was accepted; may instead raise one of `REFUSALS` in
        `load`, below."""


class _Refused(Exception):
    pass


def _load(load: Callable[[], object]) -> None:
    try:
        accepted = load()
    except REFUSALS as error:
        assert len(str(error)) < 1000
        raise _Refused from None
    if accepted is False:  # a replay of another shape
        raise _Refused


class Games:
    """Lanes with the actor that plays them."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        config = make_config({**options, "parallel_envs": _LANES})
        env = make_lanes(config, _LANES, threads=1, seed=1)
        self._actor = Actor(env, ladder=np.full(_LANES, 0.4), epsilon_steps=1, seed=2, noise=0.1)
        if options.get("guide"):
            from engine.extras.distillation.mario.ways import states_along

            assert isinstance(env, MarioLanes)
            env.begin_on_ways(states_along(np.full(40, 3), env.task, noops=0))
        self._random = torch.Generator().manual_seed(3)
        self._network = AfterstateQNetwork(env.spec.frame_shape) if config.game == "tetris" else None
        spec = env.spec
        self._replay = ReplayBuffer(replay_shape(spec, _LANES, 30, n_step=1))
        self.states = []
        for _ in range(_MOMENTS):
            self._play(25)
            self.states.append(self._actor.state())

    def use(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        _load(lambda: self._actor.load_state(numbers, arrays))
        self._actor.show(0)
        self._play(_STEPS)
        self._actor.show(_LANES - 1)
        self._actor.state()

    @torch.inference_mode()
    def _values(self, obs: Frames) -> torch.Tensor:
        if self._network is None:
            return torch.rand(_LANES, self._actor.env.spec.actions, generator=self._random)
        return self._network(torch.as_tensor(obs))

    def _play(self, steps: int) -> None:
        actor = self._actor
        for _ in range(steps):
            frames, masks = actor.frames, actor.masks
            actions = actor.choose(self._values, 10)
            step, _ = actor.finish(actor.begin(actions))
            self._replay.append(step.played(frames, actions, masks))
            assert np.isfinite(step.rewards).all() and np.isfinite(step.returns).all()


def _steps(board: TetrisLanes, steps: int) -> list[PlayedStep]:
    """Steps of Tetris with random legal actions."""
    played, frames, random = [], board.reset(), torch.Generator().manual_seed(0)
    for _ in range(steps):
        masks = board.masks
        actions = torch.multinomial(masks.float(), 1, generator=random)[:, 0]
        step = board.step(actions)
        taken = (frames, actions, step.rewards, step.terminated, step.truncated, step.final_frames, masks)
        played.append(PlayedStep(*(tensor.numpy().copy() for tensor in (*taken, step.final_masks))))
        frames = step.frames
    return played


class _Learns:
    """A learner of Tetris, with what a replay needs."""

    options: dict[str, Any]

    def __init__(self) -> None:
        board = TetrisLanes(_LANES, height=8, width=5, time_limit=9, truncate=True, seed=1)
        self.shape = ReplayShape(_LANES, 40, board.frame_shape, 1, 3, board.actions, board.actions)
        self.played = _steps(board, 100)
        self._network = AfterstateQNetwork(board.frame_shape)

    def learn(self, replay: Replay) -> None:
        """Sample, learn, update and append; then what happens at a resume and in a checkpoint."""
        random = np.random.default_rng(0)
        for step in self.played[:_STEPS]:
            batch, sample = replay.sample(16, random)
            obs, actions, returns, weights = (
                torch.as_tensor(part) for part in (batch.obs, batch.actions, batch.returns, sample.weights)
            )
            values, _ = values_of_actions(self._network, obs, actions)
            for numbers in (values, returns, weights):
                assert numbers.isfinite().all()
            self._network(torch.as_tensor(batch.next_obs))
            replay.update_priorities(sample, (1 + returns.abs()).numpy())
            replay.append(step)
        replay.survey()
        replay.end_episodes()
        for column in replay.state().values():
            column[...]


class Replays(_Learns):
    """Replays that a checkpoint holds."""

    def __init__(self, make: Callable[..., Replay]) -> None:
        super().__init__()
        self._make = partial(make, self.shape)
        replay, random = self._make(), np.random.default_rng(1)
        self.states: list[tuple[dict[str, Any], Arrays]] = []
        for number, step in enumerate(self.played):
            replay.append(step)
            if number > 10:
                _, sample = replay.sample(16, random)
                replay.update_priorities(sample, np.full(16, 2.0, np.float32))
            if number % 25 == 20:
                self.states.append(({}, {name: column[...].copy() for name, column in replay.state().items()}))

    @torch.inference_mode()
    def use(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        replay = self._make()
        try:
            _load(lambda: replay.load_state(arrays))
            self.learn(replay)
        finally:
            replay.close()


class Files(_Learns):
    """Replays in memory-mapped files: the arrays are those of the files."""

    def __init__(self, make: Callable[..., ReplayBuffer], folder: Path) -> None:
        super().__init__()
        self._folder, self._make = folder, partial(make, self.shape)
        self.states: list[tuple[dict[str, Any], Arrays]] = []
        for steps in (30, 100):
            replay = self._make(memory=MappedMemory(folder))
            for step in self.played[:steps]:
                replay.append(step)
            replay.close()
            self.states.append(
                ({}, {path.stem: np.fromfile(path, _FILES.get(path.stem, np.uint8)) for path in folder.glob("*.bin")})
            )

    @torch.inference_mode()
    def use(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        for name, array in arrays.items():
            np.ascontiguousarray(array).tofile(self._folder / f"{name}.bin")
        lines: list[str] = []
        replay = self._make(memory=MappedMemory(self._folder, lines.append))
        try:
            if lines:
                assert replay.size == 0
                for step in self.played[:30]:
                    replay.append(step)
            self.learn(replay)
        finally:
            replay.close()
        if lines:
            raise _Refused


_RECORD = np.dtype([("start", "<i8"), ("reward", "<f4"), ("action", "<i2"), ("end", "u1"), ("none", "u1")])
_FILES = {name: np.dtype(np.int64) for name in ("claimed", "written", "ended", "open_start")} | {"records": _RECORD}


def _changed_numbers(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """One, some or all numbers replaced."""
    array = array.copy()
    view = array
    if array.dtype.names:
        view = array[array.dtype.names[random.integers(len(array.dtype.names))]]
    count = int(random.choice([1, 1, 3, view.size]))
    places = random.integers(0, max(view.size, 1), count) if view.size else np.empty(0, np.int64)
    kind = view.dtype.kind
    if kind == "b":
        view = view.view(np.uint8)
    if kind == "f":
        with np.errstate(over="ignore"):
            values = np.array([random.choice(SPECIAL_FLOATS)]).astype(view.dtype)
    else:
        values = np.array([int(random.choice(SPECIAL))], np.int64).astype(view.dtype)
    if random.random() < 0.2:
        values = np.frombuffer(random.bytes(view.dtype.itemsize), view.dtype)
    view.flat[places] = values[0]
    return array


def _resealed(states: NDArray[Any], size: int, random: np.random.Generator) -> NDArray[Any]:
    """Saved games of the console, `size` bytes each, one with other words or memory and a checksum that fits."""
    states = states.copy()
    saved = states.reshape(-1, size)[random.integers(states.size // size)]
    words, memory = _HEADER.size, _HEADER.size + 8 * STATE_WORDS
    if random.random() < 0.5:
        at = words + 8 * int(random.integers(STATE_WORDS))
        value = int(random.choice((*SPECIAL, *random.integers(0, 300, 20))))
        saved[at : at + 8] = np.frombuffer(struct.pack("<q", value), np.uint8)
    else:
        at, length = memory + int(random.integers(4000)), int(random.choice([1, 10, 384]))
        saved[at : at + length] = np.frombuffer(random.bytes(length), np.uint8)
    saved[12:16] = np.frombuffer(struct.pack("<I", zlib.crc32(saved[_HEADER.size :].tobytes())), np.uint8)
    return states


def damaged(arrays: Arrays, random: np.random.Generator) -> Arrays:
    """The arrays with something changed."""
    arrays = dict(arrays)
    name = str(random.choice(sorted(arrays)))
    array = arrays[name]
    where = random.random()
    if name.split(".")[-1] in _CONSOLES and array.size and where < 0.8:
        size = int(arrays["env.console_ends"][0])
        arrays[name] = _resealed(array, size, random)
    elif where < 0.75 or array.dtype.names:
        arrays[name] = _changed_numbers(array, random)
    elif where < 0.82:
        arrays[name] = array.astype(random.choice(["i1", "u1", "i8", "f4", "f8", "?", "u8", "i4"]))
    elif where < 0.94:
        shapes: list[Callable[[], NDArray[Any]]] = [
            lambda: array[:0], lambda: array[:1], lambda: array[None], lambda: array.reshape(-1),
            lambda: np.concatenate((array, array)), lambda: array[..., :1], lambda: array.T, lambda: array[:-1],
            lambda: array.reshape(-1)[:1].reshape(()) if array.size else array,
        ]  # fmt: skip
        arrays[name] = np.ascontiguousarray(shapes[random.integers(len(shapes))]()) if array.ndim else array[None]
    elif where < 0.97:
        del arrays[name]
    else:
        other = str(random.choice(sorted(arrays)))
        arrays[name], arrays[other] = arrays[other], array
    return arrays


def _damaged_numbers(numbers: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Numbers of JSON with one of a generator's changed."""
    numbers = copy.deepcopy(numbers)
    generator = numbers[str(random.choice(sorted(numbers)))]
    values: list[Any] = [-1, 2**200, "1", None, 1.5, [], {}, True, 3]
    within = generator if random.random() < 0.5 else generator["state"]
    within[str(random.choice(sorted(within)))] = values[random.integers(len(values))]
    return numbers


def subjects(folder: Path) -> dict[str, Callable[[], Any]]:
    """What has states, by name."""
    return {
        **{name: partial(Games, options) for name, options in GAMES.items()},
        "uniform replay": lambda: Replays(ReplayBuffer),
        "prioritized replay": lambda: Replays(PrioritizedReplayBuffer),
        "replay on a device": lambda: Replays(partial(DeviceReplayBuffer, device=torch.device("cpu"))),
        "prefetched replay": lambda: Replays(partial(_in_new_files, folder / "prefetched")),
        "replay in files": lambda: Files(PrioritizedReplayBuffer, folder / "files"),
    }


def _in_new_files(folder: Path, shape: ReplayShape) -> ReplayBuffer:
    shutil.rmtree(folder, ignore_errors=True)
    return PrioritizedReplayBuffer(shape, memory=MappedMemory(folder))


def try_damaged(name: str, make: Callable[[], Any], count: int, seed: int = 0) -> Counter[str]:
    """Use real states, then `count` damaged ones: how many were refused and how many were played."""
    subject, random, outcomes = make(), np.random.default_rng([seed, zlib.crc32(name.encode())]), Counter[str]()
    for numbers, arrays in subject.states:
        subject.use(copy.deepcopy(numbers), {name: array.copy() for name, array in arrays.items()})
    for number in range(count):
        numbers, arrays = subject.states[random.integers(len(subject.states))]
        if numbers and random.random() < 0.05:
            numbers = _damaged_numbers(numbers, random)
        else:
            arrays = damaged(arrays, random)
        try:
            subject.use(copy.deepcopy(numbers), {name: array.copy() for name, array in arrays.items()})
        except _Refused:
            outcomes["refused"] += 1
        except Exception as error:
            error.add_note(f"after damage {number} of {name}")
            raise
        else:
            outcomes["played"] += 1
    return outcomes


def main(count: int, seed: int = 0) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        every = subjects(Path(folder))
        for name, make in every.items():
            outcomes = try_damaged(name, make, -(-count // len(every)), seed)
            print(json.dumps({"what": name, **outcomes}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
