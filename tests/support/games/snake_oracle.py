"""Snake as a list of cells: one game, no tensors. The caller decides where fruit and new snakes appear."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
Cell = tuple[int, int]


class SnakeOracle:
    """A game; `body` lists the cells, starting with the head."""

    def __init__(
        self, height: int, width: int, *, time_limit: int, truncate: bool, stall_limit: int, death_penalty: float
    ) -> None:
        self.height, self.width, self.stall_limit = height, width, stall_limit
        self.time_limit, self.truncate, self.death_penalty = time_limit, truncate, death_penalty

    def begin(self, head: Cell, fruit: Cell) -> None:
        assert head != fruit
        self.body, self.fruit, self.steps, self.total = [head], fruit, 0, 0.0
        self.hungry = 0

    def target(self, action: int) -> Cell:
        return self.body[0][0] + MOVES[action][0], self.body[0][1] + MOVES[action][1]

    def inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.height and 0 <= cell[1] < self.width

    def mask(self) -> list[bool]:
        """Legal actions: inside the board and not onto the body, whose last cell moves away."""
        return [self.inside(self.target(a)) and self.target(a) not in self.body[:-1] for a in range(4)]

    def step(self, action: int, next_fruit: Cell) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated. `next_fruit` is where one appears if this step eats one."""
        crashed, target = not self.mask()[action], self.target(action)
        eaten = target == self.fruit
        self.body = [target if self.inside(target) else self.body[0], *self.body[: None if eaten else -1]]
        self.steps += 1
        self.hungry = 0 if eaten else self.hungry + 1
        full = len(self.body) == self.height * self.width
        if eaten:
            assert full or next_fruit not in self.body
            self.fruit = next_fruit
        reward = float(eaten) - self.death_penalty * crashed
        self.total += reward
        late = self.steps >= self.time_limit
        over = crashed or full or (late and not self.truncate)
        stalled = 0 < self.stall_limit <= self.hungry
        return reward, over, not over and (late or stalled)

    def planes(self) -> NDArray[np.uint8]:
        planes = np.zeros((5, self.height, self.width), np.uint8)
        length = len(self.body)
        for place, cell in enumerate(reversed(self.body), 1):
            planes[0][cell] = 255
            planes[4][cell] = -(-255 * place // length)
        planes[1][self.body[0]] = planes[2][self.body[-1]] = planes[3][self.fruit] = 255
        return planes
