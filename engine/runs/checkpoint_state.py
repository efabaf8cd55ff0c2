"""What a checkpoint may say, checked before a run is resumed from it. Does not import torch.

The files may be foreign. Checksums tell that they are as somebody wrote them, not that a run did: whoever edits a file
can make the manifest anew. So every field of `state.json` has a type and a range, so that nothing that is read back can
stop a run, or make its figures infinite. What only the runner knows, such as the shapes of its network and the states
of its games, it checks when it loads them.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from engine.config.run_config import HEAD_OPTIONS, TUNABLE_BOUNDS, RunConfig
from engine.config.runners import Choices
from engine.protocol.outcome import MAX_RESULTS, MAX_TASKS
from engine.protocol.results import Score
from engine.runs.checkpoints import POLICY_FILE, CheckpointError, Manifest, check_policy, reading
from engine.runs.replay_file import check_replay
from engine.runs.run import CONFIG_FILE, read_config
from engine.runtime.files import read_bounded
from engine.runtime.formats import TensorEntry, uncollected
from engine.runtime.stored_arrays import (
    LARGEST_COUNT,
    LARGEST_OBSERVATION,
    LARGEST_REWARD,
    LARGEST_WEIGHT,
    check_tensors,
)

STATE_FILE, ARRAYS_FILE, REPLAY_FILE = "state.json", "lanes.safetensors", "replay.safetensors"
ONLINE_FILE, TARGET_FILE, OPTIMIZER_FILE = "online.safetensors", "target.safetensors", "optimizer.safetensors"
_MAX_STATE_BYTES = 2**28
LARGEST_CREDIT = 1e4
"""Updates that a learner may be behind or ahead when it is resumed."""
MEAN_OVER, SHOWN_RETURNS, RECENT = 100, 20, 100
"""How many of the newest returns, of a lane's, and of a stage's episodes are kept."""
_TORCH_STATE_BYTES, _WORDS = 5056, 624
"""Of PyTorch's generator on the CPU (Mersenne Twister): bytes, and words in its state."""

Total = Annotated[int, msgspec.Meta(ge=0, le=2**52)]
"""A count that a resumed run adds to. A run's record holds numbers up to 2**53."""
_Best = Annotated[float, msgspec.Meta(le=1e15)]
"""The best return; -inf before the first episode."""
KeptTunable = Literal["learning_rate", "epsilon_scale", "replay_ratio", "gamma"]
"""Settings changed while running that a checkpoint keeps; beta, which anneals, has a field of its own."""
_Factor = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
_Word = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class GeneratorWords(msgspec.Struct):
    """Both are less than 2**128."""

    state: int
    inc: int

    def __post_init__(self) -> None:
        if not (0 <= self.state < 2**128 and 0 <= self.inc < 2**128):
            raise ValueError("the state of a random generator must be less than 2^128")


class Generator(msgspec.Struct):
    """The state of one of NumPy's generators (`BitGenerator.state`)."""

    bit_generator: Literal["PCG64"]
    state: GeneratorWords
    has_uint32: Annotated[int, msgspec.Meta(ge=0, le=1)]
    uinteger: _Word


class Scaler(msgspec.Struct, omit_defaults=True):
    """The state of PyTorch's gradient scaler; empty if there is none."""

    scale: _Factor | None = None
    growth_factor: Annotated[float, msgspec.Meta(gt=1, le=1e3)] | None = None
    backoff_factor: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    growth_interval: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    growth_tracker: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = msgspec.field(
        name="_growth_tracker", default=None
    )

    def __post_init__(self) -> None:
        if len({getattr(self, name) is None for name in self.__struct_fields__}) > 1:
            raise ValueError("a gradient scaler has either all of its fields or none")


class KeptCounters(msgspec.Struct):
    """Totals of the run."""

    env_steps: Total = 0
    frames: Total = 0
    episodes: Total = 0
    returns: Annotated[list[Score], msgspec.Meta(max_length=MEAN_OVER)] = []
    best_return: _Best = float("-inf")
    wall_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0


class KeptLane(msgspec.Struct):
    """Statistics of a lane."""

    episodes: Total
    best: _Best
    clears: Total
    returns: Annotated[list[Score], msgspec.Meta(max_length=SHOWN_RETURNS)]
    best_results: Annotated[dict[str, Score], msgspec.Meta(max_length=MAX_RESULTS)] = {}


class KeptTask(msgspec.Struct):
    """Statistics of a task, such as a stage; `first_clear` in environment steps of the run."""

    episodes: Total
    clears: Total
    first_clear: Total | None
    recent: Annotated[list[bool], msgspec.Meta(max_length=RECENT)]


class KeptCurriculum(msgspec.Struct, omit_defaults=True):
    """Of a curriculum of stages `joined` and `recent` (whether the newest episodes at each reached the goal); of one of
    rewards `begin`, in environment steps."""

    begin: Total | None = None
    joined: Annotated[list[str], msgspec.Meta(max_length=MAX_TASKS)] | None = None
    recent: dict[str, Annotated[list[bool], msgspec.Meta(max_length=2**20)]] | None = None


class KeptSchedule(msgspec.Struct, omit_defaults=True):
    """Of the learning rate's schedule `decay` its `begin`; of `plateau` the `best` score, and evaluations since."""

    begin: Total | None = None
    best: Annotated[list[Score], msgspec.Meta(min_length=1, max_length=2)] | None = None
    since_best: Total | None = None


class KeptPlay(msgspec.Struct, omit_defaults=True):
    """Random generator of exploration; none if games are not resumed."""

    explore: Generator | None = None


class Extra(msgspec.Struct):
    """State of the runner."""

    counters: KeptCounters = msgspec.field(default_factory=KeptCounters)
    records: Annotated[list[KeptLane], msgspec.Meta(max_length=2**20)] = []
    """Of all lanes; the options allow 1,024 actors with 1,024 each."""
    tasks: Annotated[dict[str, KeptTask], msgspec.Meta(max_length=MAX_TASKS)] = msgspec.field(
        name="stages", default_factory=dict
    )
    play: KeptPlay = msgspec.field(default_factory=KeptPlay)
    tuned: dict[KeptTunable, float] = {}
    evaluation_due: bool = False
    schedule: KeptSchedule | None = None
    """None if it had ended."""
    curriculum: KeptCurriculum | None = None

    def __post_init__(self) -> None:
        for name, value in self.tuned.items():
            low, high = TUNABLE_BOUNDS[name]
            low = 0.0 if name == "learning_rate" else low  # a schedule lowers it below what a user may set
            if not low <= value <= high:
                raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value!r}")


class CheckpointState(msgspec.Struct):
    """Contents of `state.json`. A learner that owed a trillion updates would never return: those due have a bound."""

    updates: Total
    credit: Annotated[float, msgspec.Meta(ge=-LARGEST_CREDIT, le=LARGEST_CREDIT)]
    beta: Annotated[float, msgspec.Meta(ge=0, le=1)]
    random: Generator
    choices: Choices
    accumulate: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    fill: Total
    torch_random: Annotated[str, msgspec.Meta(max_length=2 * _TORCH_STATE_BYTES)]
    """Hexadecimal, as is `device_random`."""
    scaler: Scaler
    extra: Extra
    gap_share: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """None in the checkpoints of earlier versions."""
    device_random: Annotated[str, msgspec.Meta(max_length=2**12)] | None = None
    """Of the generator that draws batches on a GPU."""

    def __post_init__(self) -> None:
        check_torch_state(bytes.fromhex(self.torch_random))
        bytes.fromhex(self.device_random or "")


def check_torch_state(state: bytes) -> None:
    """Raise `ValueError` unless PyTorch's generator on the CPU can have this state. PyTorch itself does not check that
    the next word lies within its state."""
    if len(state) != _TORCH_STATE_BYTES:
        raise ValueError(f"the state of a random generator must have {_TORCH_STATE_BYTES:,} bytes, got {len(state):,}")
    left, seeded, following = struct.unpack_from("<iiQ", state, 8)
    fresh = (left, following) == (1, 0)
    if not (seeded == 1 and 1 <= left <= _WORDS and (fresh or left + following == _WORDS + 1)):
        raise ValueError("the state of a random generator is damaged")


def read_state(folder: Path) -> CheckpointState:
    """Reads `state.json` of a checkpoint. Raises `CheckpointError` if it is missing or damaged."""
    path = folder / STATE_FILE
    with reading(path):  # msgspec's own decoder doesn't read -Infinity, the best return of no episode
        content = read_bounded(path, _MAX_STATE_BYTES)
        with uncollected():
            found = json.loads(content)
        return msgspec.convert(found, CheckpointState)


_SLOTS = ("step", "exp_avg", "exp_avg_sq")
"""Tensors of the optimiser for each parameter, `<index>.<slot>`."""
_UPPER = {"step": LARGEST_COUNT, "exp_avg_sq": LARGEST_WEIGHT}
"""Upper bounds of tensors that are never negative, by the last part of their names."""


def check_contents(checkpoint: Path, manifest: Manifest) -> None:
    """Raises `CheckpointError`, or `UserError` for the options, that names the file and what is wrong with it."""
    config, state = read_config(checkpoint / CONFIG_FILE), read_state(checkpoint)
    for name, found, wanted in (
        ("updates", state.updates, manifest.updates),
        ("env_steps", state.extra.counters.env_steps, manifest.env_steps),
    ):
        if found != wanted:
            raise _damaged(checkpoint, f"{name} must be {wanted:,}, as in its manifest, got {found:,}")
    _check_policy(checkpoint / POLICY_FILE, config)
    online = _tensors(checkpoint / ONLINE_FILE)
    for name in (TARGET_FILE, POLICY_FILE):
        if _layout(_tensors(checkpoint / name)) != _layout(online):
            raise _damaged(checkpoint / name, f"its tensors must have the shapes and dtypes of those in {ONLINE_FILE}")
    _check_optimizer(checkpoint / OPTIMIZER_FILE, online)
    if (checkpoint / REPLAY_FILE).exists():
        with reading(checkpoint / REPLAY_FILE):
            check_replay(checkpoint / REPLAY_FILE, config.spec, config.n_step)
    _tensors(checkpoint / ARRAYS_FILE, LARGEST_REWARD)


def _check_policy(path: Path, config: RunConfig) -> None:
    said = check_policy(path)
    wanted = {
        "game": config.game,
        "network": config.network_name,
        **{name: config.value(name) for name in HEAD_OPTIONS},
        "frame_shape": list(config.spec.frame_shape),
        "stack": config.spec.stack,
    }
    for name, value in wanted.items():
        if said[name] != value:
            raise _damaged(path, f"{name} must be {value}, as its options say, got {said[name]}")


def _check_optimizer(path: Path, online: dict[str, TensorEntry]) -> None:
    """Its tensors belong to the network's parameters; those that are no parameters have none."""
    held = _tensors(path)
    by_index: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in held.items():
        index, _, slot = name.partition(".")
        by_index.setdefault(index, {})[slot] = entry
    if by_index.keys() != {str(index) for index in range(len(by_index))}:
        raise _damaged(path, "its tensors must be numbered from 0")
    moments = Counter[tuple[int, ...]]()
    for index, slots in by_index.items():
        if slots.keys() != set(_SLOTS) or any(entry.dtype != "F32" for entry in slots.values()):
            raise _damaged(path, f"{index} must have {', '.join(_SLOTS)}, all F32")
        step, *shapes = (slots[name].shape for name in _SLOTS)
        if step or shapes[0] != shapes[1]:
            raise _damaged(path, f"{index} must have a number and two tensors of one shape")
        moments[tuple(shapes[0])] += 1
    if moments - Counter(tuple(entry.shape) for entry in online.values()):
        raise _damaged(path, f"its tensors must have the shapes of those in {ONLINE_FILE}")


_OF_OBSERVATIONS = ("mean", "deviation", "running_mean", "running_var")
"""Numbers of networks that are as large as what they see."""


def _tensors(path: Path, largest: float = LARGEST_WEIGHT) -> dict[str, TensorEntry]:
    def bounds(name: str) -> tuple[float, float]:
        last = name.rpartition(".")[2]
        most = LARGEST_OBSERVATION if last in _OF_OBSERVATIONS else largest
        return (0.0, _UPPER[last]) if last in _UPPER else (-most, most)

    with reading(path):
        return check_tensors(path, bounds)


def _layout(tensors: dict[str, TensorEntry]) -> dict[str, tuple[str, list[int]]]:
    return {name: (entry.dtype, entry.shape) for name, entry in tensors.items()}


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path}: damaged ({reason})")
