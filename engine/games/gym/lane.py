"""One environment, episode by episode: steps in frames, pictures for people, and what to do when it fails."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.config.fields import ConfigError
from engine.config.user_code import described_error
from engine.envs.episode import LARGEST_RETURN
from engine.envs.lanes import GROUND, Picture
from engine.errors import UserError
from engine.games.gym.environment import check_unchanged, legal_actions, named_action, reset_result, step_result
from engine.games.gym.observations import Observations
from engine.games.gym.options import GymOptions
from engine.games.gym.spaces import SUCCESS, Spaces, label
from engine.monitoring.alerts import MADE_ANEW
from engine.protocol.framing import HopelessError
from engine.protocol.messages import SCREEN_SHAPE
from engine.runtime.threads import user_calls

_COARSE = 64
"""Images with a shorter side have cells, which are to stay sharp."""
_BAR, _CENTRE = (96, 190, 240), (90, 96, 110)
_HUES = np.array(
    [(235, 60, 75), (96, 190, 240), (255, 220, 80), (120, 220, 110), (190, 120, 240), (255, 150, 60), (90, 220, 210)],
    np.float64,
)  # fmt: skip


def fitted(image: NDArray[np.generic]) -> Picture:
    """An RGB or gray image [height, width(, planes)] of any size, as large as it fits. Floats are shares of white, and
    truth values white. With several planes, the first three are red, green and blue; a missing one is black."""
    white = 255 if image.dtype.kind in "fb" else 1
    pixels = image if image.dtype == np.uint8 else (image.astype(np.float64) * white).clip(0, 255).astype(np.uint8)
    pixels = np.atleast_3d(pixels)
    height, width, planes = pixels.shape
    pixels = np.repeat(pixels, 3, axis=2) if planes == 1 else np.pad(pixels, ((0, 0), (0, 0), (0, max(0, 3 - planes))))
    scale = min(SCREEN_SHAPE[0] / height, SCREEN_SHAPE[1] / width)
    coarse = min(height, width) < _COARSE and scale >= 1
    scale = int(scale) if coarse else scale
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    how = Image.Resampling.NEAREST if coarse else Image.Resampling.BILINEAR if scale > 1 else Image.Resampling.BOX
    drawn = np.asarray(Image.fromarray(np.ascontiguousarray(pixels[:, :, :3])).resize(size, how))
    picture = np.zeros(SCREEN_SHAPE, np.uint8)
    top, left = (SCREEN_SHAPE[0] - size[1]) // 2, (SCREEN_SHAPE[1] - size[0]) // 2
    picture[top : top + size[1], left : left + size[0]] = drawn
    return picture


def of_planes(frame: NDArray[np.uint8]) -> Picture:
    """A board [planes, height, width]: each plane has a colour, and the last one that is set shows."""
    colours = np.broadcast_to(GROUND, (*frame.shape[1:], 3)).copy()
    for plane, cells in enumerate(frame):
        share = cells[:, :, None] / 255
        colours = colours * (1 - share) + _HUES[plane % len(_HUES)] * share
    return fitted(colours.astype(np.uint8))


def of_vector(numbers: NDArray[np.float32], largest: NDArray[np.float32]) -> Picture:
    """A bar for each number [n], from the centre to the left or right; as long as it is beside its `largest` [n]."""
    picture = np.empty(SCREEN_SHAPE, np.uint8)
    picture[:] = GROUND.astype(np.uint8)
    height, width, _ = SCREEN_SHAPE
    edges = np.linspace(0, height, len(numbers) + 1).astype(int)
    centre = width // 2
    for number, most, top, bottom in zip(numbers, largest, edges[:-1], edges[1:], strict=True):
        end = centre + round(float(number / most if most else 0) * (centre - 4))
        gap = (bottom - top) // 6
        picture[top + gap : max(top + gap + 1, bottom - gap), min(centre, end) : max(centre, end)] = _BAR
    picture[:, centre - 1 : centre + 1] = _CENTRE
    return picture


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
    """Whether the environment failed, so that the episode was cut off before this step and does not count."""
    success: bool = False
    """Whether the episode ended at its goal."""


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
        self.number, self._make, self._options, self._spaces = number, make, options, spaces
        self._name = label(options.env)
        self._observations, self._seed = observations, seed
        self._failures = 0
        self._draws = True
        self.episode = 0
        """Number of the episode, from 1; 0 before the first."""
        self.steps = 0
        """Own steps of the episode."""
        self.call, self.since = "", 0.0
        """What of the environment is called now, empty for a step, and since when (CLOCK_MONOTONIC); 0: nothing."""

    def make(self) -> None:
        """Make the environment. Called once, before anything else."""
        self._env = self._made()

    def _calls(self, call: str = "") -> None:
        self.call, self.since = call, time.monotonic()
        user_calls.begin(self.since)

    def begin(self) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Begin an episode. Returns its first frame and mask. Raises `HopelessError` if the environment fails again and
        again."""
        while True:
            self.episode += 1
            self.steps = 0
            seeds = np.random.SeedSequence((self._seed, self.number, self.episode))
            self._random = np.random.default_rng(seeds)
            self._previous, self._return = 0, 0.0
            try:
                self._calls("reset")
                observation, info = reset_result(self._env.reset(seed=int(seeds.generate_state(1)[0]) >> 1))
                raw = self._observations.checked(observation)
                idle = int(self._random.integers(self._options.noop_max + 1)) if self._options.noop_max else 0
                for _ in range(idle):
                    self._calls("no-op step")
                    observation, _, terminated, truncated, info = step_result(self._env.step(self._named(0)))
                    raw = self._observations.checked(observation)
                    if terminated or truncated:
                        self._calls("reset")
                        observation, info = reset_result(self._env.reset())
                        raw = self._observations.checked(observation)
                self.since = 0.0
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
                self._calls()
                given = step_result(self._env.step(self._named(self._previous)))
                observation, gained, terminated, cut, info = given
                own_steps += 1
                reward += gained
                truncated = cut and not terminated
                before, self._raw = self._raw, self._observations.checked(observation)
            self.since = 0.0
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
        seen = self._observations.brighter(before, self._raw) if options.max_of_two else self._raw
        self._frame, self._mask = self._observations.frame(seen), mask
        lost = before_lives is not None and lives is not None and lives < before_lives
        over = terminated or truncated
        success = over and self._spaces.succeeds and any(np.any(info.get(name, False)) for name in SUCCESS)
        return Moved(
            self._frame, mask, reward, terminated, truncated, own_steps, lost and not over, success=bool(success)
        )

    def _named(self, action: int) -> Any:
        return named_action(action, self._env.action_space, self._spaces)

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
        self.since = 0.0
        where = f"{self._name}: lane {self.number}, episode {self.episode:,}, step {self.steps:,}"
        said = f"{where}: {described_error(error)}"
        self._failures += 1
        if self._failures > _TRIES:
            raise HopelessError(f"{said}; it has been made anew {_TRIES} times") from error
        _LOG.warning("%s; %s", said, MADE_ANEW)
        try:
            self._make_anew()
        except ConfigError as failure:
            raise HopelessError(f"{said}; {failure.reason}") from error

    def rest(self) -> Moved:
        """Stay as it is, without a step of the environment."""
        return Moved(self._frame, self._mask, 0.0, False, False, 0)

    def rewind(self) -> None:
        """Begin with the first episode again. One that repeats actions by itself is made anew if it has been played:
        MinAtar keeps the last action from one episode to the next."""
        if self.episode and self._spaces.sticky_actions:
            self._make_anew()
        self.episode = 0

    def _make_anew(self) -> None:
        self.close()
        self.make()

    def _made(self) -> gymnasium.Env[Any, Any]:
        self._calls("make")
        try:
            env = self._make()
        finally:
            self.since = 0.0
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
            self._calls("render")
            try:
                drawn = self._env.render()
                if isinstance(drawn, np.ndarray) and drawn.ndim in (2, 3) and drawn.size:
                    return fitted(drawn)
            except _FAULTS as error:
                _LOG.warning("%s draws no pictures: %s", self._name, described_error(error))
            finally:
                self.since = 0.0
            self._draws = False
        if largest is not None:
            return of_vector(self._frame, largest)
        frame = self._observations.image(self._frame)
        if frame.ndim == 2:
            return fitted(frame)
        return of_planes(frame) if self._spaces.is_board else fitted(np.moveaxis(frame, 0, -1))

    def close(self) -> None:
        self._calls("close")
        try:
            self._env.close()
        except _FAULTS as error:
            _LOG.warning("%s can't be closed: %s", self._name, described_error(error))
        self.since = 0.0


def _lives_of(info: dict[str, Any]) -> float | None:
    """The lives that are left, where an environment tells them."""
    with contextlib.suppress(TypeError, ValueError):  # an array of several, say
        return float(info["lives"]) if "lives" in info else None
    return None
