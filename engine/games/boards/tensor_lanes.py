"""Common parts of the batched board games: the result of a step, as tensors and as arrays that a kernel writes, and
state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.console.compiler.kernels import Array1, Array2, Array3
from engine.errors import UserError
from engine.runtime.stored_arrays import check_numbers, stored_array


class StepArrays(NamedTuple):
    """The fields of `engine.games.boards.tensor_lanes.TensorStep`, in its order. The cells of frames have one axis."""

    frames: Array3[np.uint8]  # [lanes, planes, cells]
    final_frames: Array3[np.uint8]
    rewards: Array1[np.float32]
    terminated: Array1[np.bool_]
    truncated: Array1[np.bool_]
    masks: Array2[np.bool_]
    final_masks: Array2[np.bool_]
    returns: Array1[np.float32]
    lengths: Array1[np.int64]
    score: Array1[np.int64]
    from_start: Array1[np.bool_]


def new_arrays(lanes: int, actions: int, frame_shape: tuple[int, int, int]) -> StepArrays:
    """Arrays for one step, of which the kernel has to write every element."""
    planes, height, width = frame_shape
    return StepArrays(
        frames=np.empty((lanes, planes, height * width), np.uint8),
        final_frames=np.empty((lanes, planes, height * width), np.uint8),
        rewards=np.empty(lanes, np.float32),
        terminated=np.empty(lanes, np.bool_),
        truncated=np.empty(lanes, np.bool_),
        masks=np.empty((lanes, actions), np.bool_),
        final_masks=np.empty((lanes, actions), np.bool_),
        returns=np.empty(lanes, np.float32),
        lengths=np.empty(lanes, np.int64),
        score=np.empty(lanes, np.int64),
        from_start=np.empty(lanes, np.bool_),
    )


@dataclass(frozen=True)
class TensorStep:
    """The result of one environment step of all lanes; later steps do not overwrite its tensors.

    If an episode ended, `frames` and `masks` are the first observation of the next episode, and `final_frames` and
    `final_masks` the last one of the ended episode; otherwise both are equal. All other fields refer to the episode
    that ended.
    """

    frames: Tensor  # uint8 [lanes, planes, height, width]
    final_frames: Tensor  # uint8 [lanes, planes, height, width]
    rewards: Tensor  # float32 [lanes], including shaping
    terminated: Tensor  # bool [lanes], the episode ended in a terminal state: no bootstrapping
    truncated: Tensor  # bool [lanes], the episode was cut off by a limit: bootstrap from `final_frames`
    masks: Tensor  # bool [lanes, actions], legal actions in `frames`
    final_masks: Tensor  # bool [lanes, actions], legal actions in `final_frames`
    returns: Tensor  # float32 [lanes], sum of the episode's rewards so far, before any shaping
    lengths: Tensor  # int64 [lanes], environment steps of the episode so far
    score: Tensor  # int64 [lanes], fruits or lines of the episode so far
    from_start: Tensor  # bool [lanes], the episode began at the start of the game, not late in one


class TensorLanes(ABC):
    """Base class of the batched board games: their steps, random numbers, and saving and loading of state.

    actions: number of actions.
    frame_shape: (planes, height, width) of an observation.
    draws: random numbers that each lane's step takes.
    compiled: whether steps are compiled; otherwise they are made of tensor operations. Both give the same bits.
    state_names: names, without the leading underscore, of the attributes on which the next steps depend. They are
    overwritten in place.
    state_ranges: the smallest and largest number that each of the state can hold, but for booleans.
    """

    actions: int
    frame_shape: tuple[int, int, int]
    draws: int
    state_names: tuple[str, ...]
    state_ranges: dict[str, tuple[float, float]]
    _masks: Tensor

    def __init__(self, lanes: int, device: torch.device | str, seed: int, compiled: bool | None) -> None:
        check_range("lanes", lanes, 1, 2**20)
        self.lanes, self.device = lanes, torch.device(device)
        self.compiled = self.device.type == "cpu" if compiled is None else compiled
        if self.compiled and self.device.type != "cpu":
            raise UserError(f"compiled must be None or False on device {self.device}, got True")
        self._random = torch.Generator(self.device).manual_seed(seed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Called for a copy, whose kernel has to work on the tensors of the copy."""
        vars(self).update(state)
        self._bind()

    @abstractmethod
    def _bind(self) -> None:
        """If steps are compiled, make the arguments of the kernel: options, and arrays in the memory of the state."""

    @abstractmethod
    def reset(self) -> Tensor:
        """Begin an episode in every lane; returns the first observations."""

    def step(self, actions: Tensor) -> TensorStep:
        """One step of all lanes with actions int64 [lanes]."""
        draw = self._draw(self.draws)
        return (self._step_compiled if self.compiled else self._step_tensors)(actions, draw)

    @abstractmethod
    def _step_compiled(self, actions: Tensor, draw: Tensor) -> TensorStep:
        """`step` by a kernel. draw: random numbers [lanes, draws]. Raises `IndexError` for an action out of range."""

    @abstractmethod
    def _step_tensors(self, actions: Tensor, draw: Tensor) -> TensorStep:
        """`step` in tensor form. draw: random numbers [lanes, draws]."""

    @property
    def masks(self) -> Tensor:
        """Legal actions in the latest observations, bool [lanes, actions]."""
        return self._masks.clone()

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The random generators that a step uses."""
        return (self._random,)

    def reseed(self, seed: int) -> None:
        """Seed all random decisions from now on."""
        self._random.manual_seed(seed)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next steps depend on."""
        return {name: getattr(self, f"_{name}").clone() for name in self.state_names} | {
            "random": self._random.get_state()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Load the `state()` of the same number of lanes with the same options.

        The state of the random numbers is loaded only if it is from the same kind of device; otherwise it is unchanged.

        Raises `ValueError`, before anything is changed, for what no game can have: compiled code indexes with these
        numbers unchecked.
        """
        arrays = {name: tensor.cpu().numpy() for name, tensor in state.items()}
        for name in self.state_names:
            own = getattr(self, f"_{name}")
            array = stored_array(arrays, name, tuple(own.shape), str(own.dtype).removeprefix("torch."))
            if name in self.state_ranges:
                check_numbers(name, array, *self.state_ranges[name])
        random = torch.from_numpy(stored_array(arrays, "random", (None,), np.uint8))
        if random.shape == self._random.get_state().shape:
            try:
                self._random.set_state(random)
            except RuntimeError as error:
                raise ValueError(f"random: {str(error).splitlines()[0]}") from None
        for name in self.state_names:
            getattr(self, f"_{name}").copy_(state[name])

    def _draw(self, numbers: int) -> Tensor:
        """Random float32 [lanes, numbers] in [0, 1)."""
        return torch.rand((self.lanes, numbers), generator=self._random, device=self.device)

    def _constant(self, values: Sequence[object], dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)


def as_step(arrays: StepArrays, frame_shape: tuple[int, int, int]) -> TensorStep:
    """The result of a compiled step; shares memory with its arrays."""
    frames, final_frames, *others = map(torch.from_numpy, arrays)
    return TensorStep(frames.view(-1, *frame_shape), final_frames.view(-1, *frame_shape), *others)


def check_range(option: str, value: int, low: int, high: int) -> None:
    """Raise `UserError` if an option is out of its range."""
    if not isinstance(value, int | np.integer) or not low <= value <= high:
        raise UserError(f"{option} must be an integer between {low} and {high}, got {value!r}")
