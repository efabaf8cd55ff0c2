"""Adapts the batched board games to the `Lanes` protocol of trainers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config.game import Spec
from engine.envs.lanes import Frames, Lanes, VectorStep
from engine.games.boards.tensor_lanes import TensorLanes
from engine.games.boards.viewers import Viewer, Viewers
from engine.protocol.messages import Thought
from engine.runtime.devices import GraphedCall


class BoardLanes(Lanes):
    """A batched board game with the interface of `engine.envs.lanes.Lanes`.

    Args:
        board: the games.
        masked: whether illegal actions are hidden from the agent. In Snake they are merely deadly, which it has to
            learn.
        reward_scale: factor by which rewards are multiplied for the agent.
        tensors: whether frames stay tensors on the board's device, for a replay on the same device.
        new_viewer: makes the viewer of a lane.
        set_level: called with the level of a curriculum whenever it changes.
        frame_size: height and width of the frames, if they are larger than the board, which only
            Snake's may be; see `in_frame`.
        step_penalty: subtracted from every reward for the agent.
        full_score: score of a game that fills the board, which counts as cleared; 0 if there is none.
    """

    def __init__(
        self,
        board: TensorLanes,
        *,
        masked: bool,
        reward_scale: float,
        new_viewer: Callable[[int], Viewer],
        tensors: bool = False,
        set_level: Callable[[float], None] = lambda level: None,
        frame_size: tuple[int, int] | None = None,
        full_score: int = 0,
        step_penalty: float = 0.0,
    ) -> None:
        self.board = board
        self.lanes = board.lanes
        self._frame_size = board.frame_shape[1:] if frame_size is None else frame_size
        self.spec = Spec((board.frame_shape[0], *self._frame_size), board.actions, stack=1, hold=1, masked=masked)
        self._masked, self._scale, self._tensors = masked, reward_scale, tensors
        self._full_score, self._step_penalty = full_score, step_penalty
        self._set_level, self._level = set_level, math.nan
        self._first = board.state()
        self._viewers = Viewers(new_viewer)
        self._actions = torch.zeros(self.lanes, dtype=torch.int64, device=board.device)
        self._step_board = self._new_call()
        self._no_task = np.full(self.lanes, -1, np.int64)

    @property
    def masks(self) -> NDArray[np.bool_] | None:  # type: ignore[override]  # found when it is asked for
        return self.board.masks.cpu().numpy() if self._masked else None

    def reset(self) -> Frames:
        self._viewers.clear()
        return self._frames(self.board.reset())

    @torch.inference_mode()
    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        self._actions.copy_(torch.from_numpy(actions))
        self._viewers.before_step(actions)
        self._step_board()
        numbers, masks = self._results()
        rewards, terminated, truncated, returns, lengths, scores, from_start = numbers
        self._viewers.after_step(terminated + truncated > 0)
        return VectorStep(
            frames=self._frames(self._taken.frames),
            final_frames=self._frames(self._taken.final_frames),
            rewards=rewards,
            terminated=terminated > 0,
            truncated=truncated > 0,
            returns=returns,
            lengths=lengths.astype(np.int64),
            results=scores.astype(np.float64)[:, None],
            success=(terminated > 0) & (scores == self._full_score) & (scores > 0),
            from_start=from_start > 0,
            tasks=self._no_task,
            game_frames=0,
            masks=masks[0] if self._masked else None,
            final_masks=masks[1] if self._masked else None,
        )

    def _new_call(self) -> GraphedCall:
        return GraphedCall(self._step, self.board.device, generators=self.board.generators)

    def _step(self) -> None:
        """Take a step, and pack the results that the host reads into one tensor of bytes."""
        step = self._taken = self.board.step(self._actions)
        found = (step.terminated, step.truncated, step.returns, step.lengths, step.score, step.from_start)
        numbers = (step.rewards * self._scale - self._step_penalty, *found)
        results = [torch.stack([each.float() for each in numbers]).view(torch.uint8).flatten()]  # exact below 2^24
        if self._masked:
            results += [masks.view(torch.uint8).flatten() for masks in (step.masks, step.final_masks)]
        self._packed = torch.cat(results)

    def _results(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The numbers [7, lanes] and masks [2, lanes, actions] of the step, by a single copy from the device."""
        packed = self._packed.cpu().numpy()
        size = 7 * 4 * self.lanes
        return packed[:size].view(np.float32).reshape(7, -1), packed[size:].view(np.bool_).reshape(2, self.lanes, -1)

    def set_curriculum_level(self, level: float) -> None:
        if level == self._level:
            return
        if math.isnan(self._level):  # the first one may add operations to the step; later ones change only tensors
            self._step_board = self._new_call()
        self._level = level
        self._set_level(level)

    def viewer(self, lane: int) -> Viewer:
        """The viewer of a lane, which follows it from the first call on."""
        return self._viewers[lane]

    def screen(self, lane: int, thought: Thought | None = None) -> NDArray[np.uint8]:
        return self._viewers[lane].draw(thought)

    def facts(self, lane: int) -> dict[str, int]:
        return self._viewers[lane].facts()

    def task_of(self, lane: int) -> str:
        """The board, as width x height."""
        _, height, width = self.board.frame_shape
        return f"{width}x{height}"

    def rewind(self) -> None:
        self._viewers.clear()
        self.board.load_state(self._first)

    def state(self) -> dict[str, NDArray[Any]]:
        return {name: tensor.cpu().numpy().copy() for name, tensor in self.board.state().items()}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        self._viewers.clear()
        self.board.load_state({name: torch.from_numpy(array) for name, array in state.items()})

    def _frames(self, frames: Tensor) -> Frames:
        if frames.shape[2:] != self._frame_size:
            frames = in_frame(frames, *self._frame_size)
        if not self._tensors:
            return frames.cpu().numpy()
        return frames.clone() if frames.device.type == "cuda" else frames  # a graph overwrites them in the next step


def in_frame(frames: Tensor, height: int, width: int) -> Tensor:
    """Frames uint8 [lanes, planes, ...] in the top left corner of larger ones: uint8 [lanes, planes, height, width].

    Cells outside the board are filled in the first plane, which shows what must not be moved into.
    """
    ours, larger = frames.shape[-2:], frames.new_zeros((*frames.shape[:2], height, width))
    larger[:, 0] = 255
    larger[..., : ours[0], : ours[1]] = frames
    return larger
