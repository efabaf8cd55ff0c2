"""What a checkpoint's `state.json` may say. The file may be foreign: every field has a type and a range, so that
nothing that is read back can stop a run, or make its figures infinite. Does not import torch.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from engine.config.common_options import TUNABLE_BOUNDS
from engine.protocol.outcome import MAX_RESULTS, MAX_TASKS
from engine.runs.checkpoints import reading
from engine.runs.run import Score
from engine.runtime.files import read_bounded

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


@dataclass(frozen=True)
class Choices:
    """What was chosen by timing updates when a run began; `device` is the device type that it was chosen on."""

    device: Annotated[str, msgspec.Meta(max_length=16)]
    precision: Literal["float32", "bfloat16", "float16"]
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=2**16)]
    threads: Annotated[int, msgspec.Meta(ge=1, le=2**12)]

    def state(self) -> dict[str, Any]:
        return asdict(self)


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
    best_x: Total = 0
    """This and the next one: in checkpoints of versions in which games did not declare their results."""
    best_score: Total = 0

    def fields(self) -> dict[str, Any]:
        """The fields of this version."""
        earlier = {"x_pos": float(self.best_x), "score": float(self.best_score)}
        best = self.best_results or {name: value for name, value in earlier.items() if value}
        return {"episodes": self.episodes, "best": self.best, "clears": self.clears, "best_results": best}


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
    """Random generators of exploration and, with `--guide`, of guided episodes; empty if games are not resumed."""

    explore: Generator | None = None
    guide: Generator | None = None


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
    schedule: KeptSchedule | msgspec.UnsetType | None = msgspec.UNSET
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
        return msgspec.convert(json.loads(read_bounded(path, _MAX_STATE_BYTES)), CheckpointState)
