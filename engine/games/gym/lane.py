"""One environment, episode by episode: steps in frames, and what to do when it fails."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from engine.config.fields import ConfigError
from engine.config.user_code import described_error
from engine.envs.episode import LARGEST_RETURN
from engine.errors import UserError
from engine.games.gym.contract import check_unchanged, legal_actions, reset_result, step_result
from engine.games.gym.observations import Observations
from engine.games.gym.options import GymOptions
from engine.games.gym.pictures import fitted, of_planes, of_vector
from engine.games.gym.spaces import Spaces, label
from engine.protocol.failures import HopelessError

_LOG = logging.getLogger(__name__)
_TRIES = 3
"""Times that an environment is made anew without a whole episode in between."""
_FAULTS = (Exception, SystemExit)
"""What an environment may raise; games with a window exit if it is closed."""


class Moved(NamedTuple):
    """The result of a step."""

    frame: NDArray[Any]
    """The last frame of the episode if it ended."""
    mask: NDArray[np.bool_] | None
    reward: float
    """As the environment gives it, of all its own steps together."""
    terminated: bool
    truncated: bool
    own_steps: int
    life_lost: bool = False
    failed: bool = False
    """Whether the environment failed, so that the episode was cut off and does not count."""


class Lane:
    """A lane. Episodes of the same seed and number are alike, if the environment depends on its seed alone.

    Args:
        number: of the lane, for people.
        make: makes the environment.
        seed: of the run's lanes.
    """

    def __init__(
        self,
        number: int,
        make: Callable[[], gymnasium.Env[Any, Any]],
        options: GymOptions,
        spaces: Spaces,
        observations: Observations,
        seed: int,
    ) -> None:
        self._number, self._make, self._options, self._spaces = number, make, options, spaces
        self._name = label(options.env)
        self._observations, self._seed = observations, seed
        self._env = self._made()
        self._failures = 0
        self._draws = True
        self.episode = 0
        """Number of the episode, from 1; 0 before the first."""
        self.steps = 0
        """Own steps of the episode."""

    def begin(self) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Begin an episode. Returns its first frame and mask. Raises `HopelessError` if the environment fails again and
        again."""
        while True:
            self.episode += 1
            self.steps = 0
            seeds = np.random.SeedSequence((self._seed, self._number, self.episode))
            self._random = np.random.default_rng(seeds)
            self._previous, self._return = 0, 0.0
            try:
                observation, info = reset_result(self._env.reset(seed=int(seeds.generate_state(1)[0]) >> 1))
                raw = self._observations.checked(observation)
                idle = int(self._random.integers(self._options.noop_max + 1)) if self._options.noop_max else 0
                for _ in range(idle):
                    observation, _, terminated, truncated, info = step_result(self._env.step(self._named(0)))
                    raw = self._observations.checked(observation)
                    if terminated or truncated:
                        observation, info = reset_result(self._env.reset())
                        raw = self._observations.checked(observation)
                self._lives, self._mask = _lives_of(info), self._mask_of(info)
            except _FAULTS as error:
                self._fail(error)
                continue
            self._raw, self._frame = raw, self._observations.frame(raw)
            return self._frame, self._mask

    def step(self, action: int) -> Moved:
        """Take a step with an action, an index. Raises `HopelessError` as `begin`."""
        options, reward, own_steps, before = self._options, 0.0, 0, self._raw
        terminated = truncated = False
        try:
            while own_steps < options.frame_skip and not (terminated or truncated):
                if not (options.sticky_actions and self._random.random() < options.sticky_actions):
                    self._previous = action
                given = step_result(self._env.step(self._named(self._previous)))
                observation, gained, terminated, cut, info = given
                own_steps += 1
                reward += gained
                truncated = cut and not terminated
                before, self._raw = self._raw, self._observations.checked(observation)
            if not abs(self._return + reward) <= LARGEST_RETURN:
                raise UserError(f"rewards and their sum must be numbers within 1e15, got {self._return + reward}")
            lives, mask = _lives_of(info), self._mask_of(info, at_end=terminated or truncated)
        except _FAULTS as error:
            self.steps += own_steps + 1
            self._fail(error)
            return Moved(self._frame, self._mask, 0.0, False, True, own_steps, failed=True)
        self.steps += own_steps
        self._return += reward
        if terminated or truncated:
            self._failures = 0
        before_lives, self._lives = self._lives, lives
        seen = np.maximum(before, self._raw) if options.max_of_two and self._spaces.kind == "image" else self._raw
        self._frame, self._mask = self._observations.frame(seen), mask
        lost = before_lives is not None and lives is not None and lives < before_lives
        return Moved(
            self._frame, mask, reward, terminated, truncated, own_steps, lost and not (terminated or truncated)
        )

    def _named(self, action: int) -> np.int64:
        """An action as the environment names it, of the type of its own samples."""
        return np.int64(action + self._spaces.first_action)

    def _mask_of(self, info: dict[str, Any], *, at_end: bool = False) -> NDArray[np.bool_] | None:
        """The legal actions. After an episode an environment may have none: then they count as legal, for the value of
        the state in which it was cut off."""
        if not self._spaces.masked:
            return None
        count = len(self._spaces.actions)
        try:
            return legal_actions(info, count)
        except UserError:
            if at_end:
                return np.ones(count, np.bool_)
            raise

    def _fail(self, error: BaseException) -> None:
        """Make the environment anew. Raises `HopelessError` if that has been done `_TRIES` times and no episode was
        whole."""
        where = f"{self._name}: lane {self._number}, episode {self.episode:,}, step {self.steps:,}"
        said = f"{where}: {described_error(error)}"
        self._failures += 1
        if self._failures > _TRIES:
            raise HopelessError(f"{said}; it has been made anew {_TRIES} times") from error
        _LOG.warning("%s; it is made anew", said)
        try:
            self._make_anew()
        except ConfigError as failure:
            raise HopelessError(f"{said}; {failure.reason}") from error

    def rewind(self) -> None:
        """Begin with the first episode again. Environments may keep something from one episode to the next, such as
        MinAtar's last action, so one that has been played is made anew."""
        if self.episode:
            self.episode = 0
            self._make_anew()

    def _make_anew(self) -> None:
        self.close()
        self._env = self._made()

    def _made(self) -> gymnasium.Env[Any, Any]:
        env = self._make()
        try:
            check_unchanged(self._options.env, env, self._spaces)
        except ConfigError:
            with contextlib.suppress(*_FAULTS):
                env.close()
            raise
        return env

    def picture(self, largest: NDArray[np.float32] | None) -> NDArray[np.uint8]:
        """The environment's own picture, else its observation; a vector's bars are beside its `largest` numbers."""
        if self._spaces.renders and self._draws:
            try:
                drawn = self._env.render()
                if isinstance(drawn, np.ndarray) and drawn.ndim in (2, 3) and drawn.size:
                    return fitted(drawn)
            except _FAULTS as error:
                _LOG.warning("%s draws no pictures: %s", self._name, described_error(error))
            self._draws = False
        frame = self._frame
        if largest is not None:
            return of_vector(frame, largest)
        if frame.ndim == 2:
            return fitted(frame)
        return of_planes(frame) if self._spaces.is_board else fitted(np.moveaxis(frame, 0, -1))

    def close(self) -> None:
        try:
            self._env.close()
        except _FAULTS as error:
            _LOG.warning("%s can't be closed: %s", self._name, described_error(error))


def _lives_of(info: dict[str, Any]) -> float | None:
    """The lives that are left, where an environment tells them."""
    with contextlib.suppress(TypeError, ValueError):  # an array of several, say
        return float(info["lives"]) if "lives" in info else None
    return None
