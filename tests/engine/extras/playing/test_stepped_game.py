"""Any game, step by step."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from engine.config.reading import make_config
from engine.envs.factory import describe_task
from engine.envs.lanes import Frames
from engine.extras.playing.stepped_game import PersonPlayer, SteppedGame
from tests.support.gym_envs import CRASHING

pytestmark = pytest.mark.process


class Observer(PersonPlayer):
    """Keeps what it sees."""

    seen: ClassVar[list[list[float]]] = []

    def observe(self, obs: Frames) -> None:
        self.seen.append(np.ravel(obs).tolist())

    def action(self) -> int:
        return 0


def test_the_episode_after_a_failed_one_is_watched_from_its_first_frame() -> None:
    options = {"game": CRASHING, "env_args": '{"whole": 0}', "frame_stack": 2}
    game = SteppedGame(describe_task(make_config(options)), Observer, steps_per_s=30)
    game.begin(1, 0, None)
    for _ in range(5):
        assert game.tick() is None
    game.close()
    assert Observer.seen == [[0, 0], [0, 1], [1, 2], [2, 3], [0, 0], [0, 1]]
