"""Tetris played by a policy, for people: in each step its piece falls to where it will be placed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.evaluation.stepped_game import PolicyPlayer
from engine.games.boards.lanes import BoardLanes

_FALL = 0.4, 0.9
"""The part of a step in which the piece falls."""


class FallingPolicy(PolicyPlayer):
    """See `engine.evaluation.stepped_game.Player`."""

    def picture(self, progress: float) -> NDArray[np.uint8]:
        assert isinstance(self._lanes, BoardLanes)
        begins, ends = _FALL
        return self._lanes.viewer(0).draw(self._thought, min(max(0.0, (progress - begins) / (ends - begins)), 1.0))
