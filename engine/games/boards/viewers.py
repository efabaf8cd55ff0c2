"""Viewers: each follows one game of the batched board games, to draw it for people, RGB uint8 `SCREEN_SHAPE`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.envs.lanes import GROUND, Picture
from engine.protocol.messages import Thought

Colours = NDArray[np.float64]


def paint(picture: Picture, colours: Colours, side: int, top: int, left: int) -> None:
    """Paint cells [height, width, 3] as squares, those that are not ground with a dark edge on two sides."""
    cells = colours.astype(np.uint8)
    ground = (cells == GROUND).all(2)
    pixels, filled = (each.repeat(side, axis=0).repeat(side, axis=1) for each in (cells, ~ground))
    rows, columns = (np.arange(length) % side == 0 for length in filled.shape)
    pixels[filled & (rows[:, None] | columns)] //= 2
    picture[top : top + len(pixels), left : left + pixels.shape[1]] = pixels


_MOST_STEPS = 1000
"""Steps after the last picture in which a viewer still follows its lane."""


class Viewer(Protocol):
    """Follows one lane from the moment that it is made."""

    steps: int
    """Environment steps since the last picture."""

    def before_step(self, action: int) -> None:
        """The lane is about to take this action."""

    def new_episode(self) -> None:
        """The lane has begun an episode in its last step."""

    def draw(self, thought: Thought | None = None, fallen: float = 0.0) -> Picture:
        """A picture of the lane, RGB uint8 [240, 256, 3], with the agent's decision, if it is known.

        fallen: the part of its way down that the piece of Tetris has fallen.
        """

    def facts(self) -> dict[str, int]:
        """Values of the game to show beside the picture."""


class Viewers:
    """The viewers of the lanes that somebody watches. A lane that nobody looks at for long loses its viewer.

    Args:
        new_viewer: makes the viewer of a lane.
    """

    def __init__(self, new_viewer: Callable[[int], Viewer]) -> None:
        self._new_viewer = new_viewer
        self._of: dict[int, Viewer] = {}

    def __getitem__(self, lane: int) -> Viewer:
        if lane not in self._of:
            self._of[lane] = self._new_viewer(lane)
        return self._of[lane]

    def before_step(self, actions: NDArray[np.int64]) -> None:
        """All lanes are about to take these actions [lanes]."""
        for lane, viewer in list(self._of.items()):
            viewer.before_step(int(actions[lane]))
            if viewer.steps > _MOST_STEPS:
                del self._of[lane]

    def after_step(self, ended: NDArray[np.bool_]) -> None:
        """Episodes have `ended` in these lanes, bool [lanes]."""
        for lane, viewer in self._of.items():
            if ended[lane]:
                viewer.new_episode()

    def clear(self) -> None:
        """The games have changed in another way than by steps."""
        self._of.clear()
