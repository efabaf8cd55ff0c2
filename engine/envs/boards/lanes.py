"""Adapts the batched board games to the `Lanes` protocol of trainers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.envs.boards.game import TensorStep
from engine.envs.emulators.protocol import SCREEN_SHAPE
from engine.envs.vec_env import Frames, Spec, VectorStep


class Board(Protocol):
    """The common interface of `SnakeLanes` and `TetrisLanes`."""

    lanes: int
    actions: int
    frame_shape: tuple[int, int, int]
    device: torch.device

    @property
    def masks(self) -> Tensor: ...
    def reset(self) -> Tensor: ...
    def step(self, actions: Tensor) -> TensorStep: ...
    def board(self, lane: int, action: int = 0) -> NDArray[np.uint8]: ...
    def state(self) -> dict[str, Tensor]: ...
    def load_state(self, state: dict[str, Tensor]) -> None: ...


class BoardLanes:
    """A batched board game with the interface of `engine.envs.vec_env.Lanes`.

    Args:
        board: the games.
        masked: whether illegal actions are hidden from the agent. In Snake they are merely deadly, which it has to
            learn.
        reward_scale: factor by which rewards are multiplied for the agent.
        tensors: whether frames stay tensors on the board's device, for a replay on the same device.
        set_level: called with the level of a curriculum whenever it changes.
    """

    def __init__(
        self,
        board: Board,
        *,
        masked: bool,
        reward_scale: float,
        tensors: bool = False,
        set_level: Callable[[float], None] = lambda level: None,
    ) -> None:
        self.board = board
        self.lanes = board.lanes
        self.spec = Spec(board.frame_shape, board.actions, stack=1, hold=1, masked=masked)
        self._masked, self._scale, self._tensors = masked, reward_scale, tensors
        self._set_level, self._level = set_level, math.nan
        self._first = board.state()
        self._zeros = np.zeros(self.lanes, np.int64)
        self._nowhere = np.full(self.lanes, -1, np.int64)
        self._info = np.zeros((self.lanes, 0), np.int64)

    @property
    def masks(self) -> NDArray[np.bool_] | None:
        return self.board.masks.cpu().numpy() if self._masked else None

    def reset(self) -> Frames:
        return self._frames(self.board.reset())

    @torch.inference_mode()
    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        step = self.board.step(torch.from_numpy(actions).to(self.board.device))
        return VectorStep(
            frames=self._frames(step.frames),
            final_frames=self._frames(step.final_frames),
            rewards=(step.rewards * self._scale).cpu().numpy(),
            terminated=step.terminated.cpu().numpy(),
            truncated=step.truncated.cpu().numpy(),
            returns=step.returns.cpu().numpy(),
            lengths=step.lengths.cpu().numpy(),
            scores=step.score.cpu().numpy(),
            furthest=self._zeros,
            clears=self._zeros > 0,
            info=self._info,
            stages=self._nowhere,
            emulated=0,
            masks=step.masks.cpu().numpy() if self._masked else None,
            final_masks=step.final_masks.cpu().numpy() if self._masked else None,
        )

    def set_curriculum_level(self, level: float) -> None:
        if level != self._level:
            self._level = level
            self._set_level(level)

    def screen(self, lane: int, action: int = 0) -> NDArray[np.uint8]:
        """The board scaled to fit and centred, uint8 [240, 256, 3]; a piece is shown as `action` would place it."""
        picture = self.board.board(lane, action)
        height, width = picture.shape[:2]
        screen_height, screen_width, _ = SCREEN_SHAPE
        shrink = max(height / screen_height, width / screen_width)
        rows, columns = ((np.arange(int(side / shrink)) * shrink).astype(int) for side in (height, width))
        screen = np.zeros(SCREEN_SHAPE, np.uint8)
        top, left = (screen_height - rows.size) // 2, (screen_width - columns.size) // 2
        screen[top : top + rows.size, left : left + columns.size] = picture[rows[:, None], columns]
        return screen

    def spread_starts(self) -> None:
        pass  # all boards draw different random numbers anyway

    def rewind(self) -> None:
        self.board.load_state(self._first)

    def state(self) -> dict[str, NDArray[Any]]:
        return {name: tensor.cpu().numpy().copy() for name, tensor in self.board.state().items()}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        self.board.load_state({name: torch.from_numpy(array) for name, array in state.items()})

    def close(self) -> None: ...

    def _frames(self, frames: Tensor) -> Frames:
        return frames if self._tensors else frames.cpu().numpy()
