"""Super Mario Bros for Gymnasium: a single environment, and a vector environment in one process.

Both use `MarioLanes` that wait after the end of an episode, so that its last screen can still be rendered.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from engine.console.protocol import FRAMES_PER_S
from engine.console.view import VIEWS
from engine.errors import UserError
from engine.extras.gymnasium_api.common import RENDER_MODES, Flags, Observation, check_actions, checked
from engine.games.mario import rules
from engine.games.mario.actions import STACK
from engine.games.mario.lanes import EMULATORS, MarioLanes, MarioStep
from engine.games.mario.task import MarioTask
from engine.protocol.messages import SCREEN_SHAPE

OBSERVATIONS = ("stack", "rgb")


class GameOptions(TypedDict, total=False):
    """Keyword arguments of both environments; all have defaults."""

    stage: str
    reward: str
    actions: str
    frame_skip: int
    swim_strokes: bool
    sticky: float
    noop_max: int
    random_phase: bool
    halfway_starts: float
    stall_steps: int
    view: str  # a name from `VIEWS`: the frames of the stack
    observation: str  # stack: the last four frames in shades of gray; rgb: the full screen
    emulator: str  # native or nes-py
    threads: int  # number of threads that step the games; a single game uses one
    rom: str | Path | None  # cartridge file; None for the one in gym-super-mario-bros


class MarioEnv(gymnasium.Env[Observation, np.int64]):
    """One game of Super Mario Bros.

    Observations are uint8 [4, height, width], newest last, or with `observation="rgb"` uint8 [240, 256, 3]. An episode
    terminates with death or flag (in the whole game, with the loss of the last life), and is truncated after
    `stall_steps` steps without progress. `info` has the keys of gym-super-mario-bros 7.4, also after `reset`; its
    numbers are Python numbers.

    After `reset(seed=...)` everything that follows is reproducible. Without a seed the environment starts with a random
    one. `reset` has no options.

    Args:
        render_mode: None or `rgb_array`: `render` returns the screen, uint8 [240, 256, 3].
        options: see `GameOptions`, and `MarioTask` for the defaults.

    Raises `UserError` naming the option that is not accepted.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 15}

    def __init__(self, *, render_mode: str | None = None, **options: Unpack[GameOptions]) -> None:
        self.render_mode = checked("render_mode", render_mode, (None, *RENDER_MODES))
        self._games = _Games(1, options)
        self.metadata = {**self.metadata, "render_fps": self._games.steps_per_second}
        self.observation_space = self._games.observation_space
        self.action_space = self._games.action_space
        self._seeded = False
        self._playing = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; returns its first observation and info."""
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self._games.reseed(0, self.np_random)
            self._seeded = True
        self._games.begin(np.array([True]))
        self._playing = True
        return self._games.observations[0].copy(), self._games.info(0)

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Hold an action's buttons for `frame_skip` frames.

        Returns observation, reward, terminated, truncated and info. Raises `ResetNeeded` if no episode is in progress,
        `ValueError` for an invalid action.
        """
        if not self._playing:
            raise ResetNeeded("step() was called before the episode began or after it ended; call reset() first")
        step = self._games.step(np.array([action], np.int64))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._playing = not (terminated or truncated)
        info = _info(step.info[0])
        return self._games.observations[0].copy(), float(step.rewards[0]), terminated, truncated, info

    def render(self) -> Observation | None:
        """The screen after the last step, uint8 [240, 256, 3]; None without a render mode."""
        return None if self.render_mode is None else self._games.screen(0)

    def close(self) -> None:
        """Release the console."""
        self._games.close()


class MarioVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """Many games of Super Mario Bros, stepped together in compiled code; see `MarioEnv` for a single game.

    Equivalent to a `SyncVectorEnv` of `MarioEnv`s with autoreset in the same step: when an episode ends, observation
    and info are the first of the next episode, and `infos` has the last ones of the ended episode as `final_obs` (an
    object array) and `final_info`. Game i after `reset(seed=s)` equals a `MarioEnv` after `reset(seed=s + i)`.

    Gymnasium's wrapper `RecordEpisodeStatistics` supports autoreset in the same step from version 1.4 on; older ones
    count every episode except the first one step short.

    Args:
        num_envs: number of games, at least 1.
        render_mode: None or `rgb_array`: `render` returns a tuple of all screens, uint8 [240, 256, 3].
        options: see `GameOptions`, and `MarioTask` for the defaults.

    Raises `UserError` naming the option that is not accepted.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 15, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int = 1, *, render_mode: str | None = None, **options: Unpack[GameOptions]) -> None:
        self.closed = True  # nothing to release yet, if the following fails
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1, got {num_envs}")
        self.render_mode = checked("render_mode", render_mode, (None, *RENDER_MODES))
        self._games = _Games(num_envs, options)
        self.metadata = {**self.metadata, "render_fps": self._games.steps_per_second}
        self.num_envs = num_envs
        self.single_observation_space = self._games.observation_space
        self.single_action_space = self._games.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False
        self.closed = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode in every game; returns the first observations and infos.

        seed: None; or the seed of the first game, from which those of the others count up; or a sequence with a seed
        for each game, where None continues its random numbers.

        Raises `ValueError` for a wrong number of seeds, and for `options["reset_mask"]`, because games reset
        automatically.
        """
        if options is not None and "reset_mask" in options:
            raise ValueError("reset_mask is not supported: this environment resets games automatically")
        if isinstance(seed, int | np.integer):
            seed = int(seed)
            super().reset(seed=seed)
            seed = range(seed, seed + self.num_envs)
        seeds: Sequence[int | None] = [None] * self.num_envs if seed is None else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must have one element for each of {self.num_envs} games, got {len(seeds)}")
        for game, own in enumerate(seeds):
            if own is not None:
                self._games.reseed(game, seeding.np_random(own)[0])
            elif not self._seeded:
                self._games.reseed(game, self.np_random)
        self._seeded = True
        self._games.begin(np.ones(self.num_envs, np.bool_))
        return self._games.observations.copy(), self._infos(self._games.read_info())

    def step(self, actions: NDArray[np.int64]) -> tuple[Observation, NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """One step of all games with actions int64 [num_envs].

        Returns observations, rewards, terminations, truncations and infos. Raises `ResetNeeded` before the first reset,
        `ValueError` for invalid actions.
        """
        if not self._seeded:
            raise ResetNeeded("step() was called before the first reset()")
        step = self._games.step(np.asarray(actions, np.int64))
        ended = step.terminated | step.truncated
        finals = [(int(game), self._games.observations[game].copy()) for game in np.flatnonzero(ended)]
        numbers = step.info
        if finals:
            self._games.begin(ended)
            numbers = np.where(ended[:, None], self._games.read_info(), numbers)
        infos = self._infos(numbers)
        for game, observation in finals:
            infos = self._add_info(infos, {"final_obs": observation, "final_info": _info(step.info[game])}, game)
        rewards = step.rewards.astype(np.float64)
        return self._games.observations.copy(), rewards, step.terminated, step.truncated, infos

    def render(self) -> tuple[Observation, ...] | None:
        """The screens after the last step; None without a render mode."""
        return None if self.render_mode is None else tuple(map(self._games.screen, range(self.num_envs)))

    def close_extras(self, **kwargs: Any) -> None:
        """Release the consoles."""
        self._games.close()

    def _infos(self, numbers: NDArray[np.int64]) -> dict[str, Any]:
        """Convert info int64 [num_envs, 10] to Gymnasium's format: for each key an array and its mask `_key`."""
        infos: dict[str, Any] = {}
        for name, column in zip(rules.INFO_NAMES, numbers.T, strict=True):
            infos[name] = column.copy()
            infos[f"_{name}"] = np.ones(self.num_envs, np.bool_)
        infos["flag_get"] = infos["flag_get"] != 0
        infos["status"] = np.array(rules.STATUS_NAMES, object)[infos["status"]]
        return infos


class _Games:
    """Lanes that wait after the end of an episode, with spaces and observations for Gymnasium.

    observations: uint8 [games, 4, height, width] or [games, 240, 256, 3]; overwritten by the next call.
    """

    def __init__(self, games: int, options: GameOptions) -> None:
        given: dict[str, Any] = {**options}
        self._rgb = checked("observation", given.pop("observation", "stack"), OBSERVATIONS) == "rgb"
        emulator = checked("emulator", given.pop("emulator", "native"), EMULATORS)
        threads, rom = given.pop("threads", 1), given.pop("rom", None)
        cartridge = None if rom is None else Path(rom)
        if threads < 1:
            raise UserError(f"threads must be at least 1, got {threads}")
        if "view" in given:
            given["view"] = VIEWS[checked("view", given["view"], tuple(VIEWS))]
        task = MarioTask(**given)
        self.steps_per_second = round(FRAMES_PER_S / task.frame_skip)
        shape = SCREEN_SHAPE if self._rgb else (STACK, *task.view.shape)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(len(task.action_names))
        self.observations = np.zeros((games, *shape), np.uint8)
        self._closed = False
        self._lanes = MarioLanes(task, games, emulator=emulator, threads=threads, restart=False, rom=cartridge)

    def reseed(self, game: int, random: np.random.Generator) -> None:
        """Seed the random decisions of a game with a number drawn from `random`."""
        self._lanes.reseed(game, int(random.integers(2**32)))

    def begin(self, which: Flags) -> None:
        """Begin an episode in the games where `which` (bool [games]) is set."""
        frames = self._open_lanes().reset(which)
        if self._rgb:
            self._show(which)
        else:
            self.observations[which] = frames[which][:, None]

    def step(self, actions: NDArray[np.int64]) -> MarioStep:
        """One step of all games with `actions` int64 [games]. Raises `ValueError` for invalid actions."""
        lanes = self._open_lanes()
        check_actions(actions, lanes.lanes, lanes.actions)
        step = lanes.step(actions)
        if self._rgb:
            self._show(np.ones(self._lanes.lanes, np.bool_))
        else:
            self.observations[:, :-1] = self.observations[:, 1:]
            self.observations[:, -1] = step.frames
        return step

    def read_info(self) -> NDArray[np.int64]:
        """The current info of all games, int64 [games, 10]; columns as in `rules.INFO_NAMES`."""
        numbers = np.empty((self._lanes.lanes, len(rules.INFO_NAMES)), np.int64)
        for memory, row in zip(self._open_lanes().emulator.ram, numbers, strict=True):
            rules.read_info(memory, row)
        return numbers

    def info(self, game: int) -> dict[str, Any]:
        """The current info of one game."""
        return _info(self.read_info()[game])

    def screen(self, game: int) -> Observation:
        """A game's screen, uint8 [240, 256, 3]."""
        return self._open_lanes().emulator.screen(game)

    def close(self) -> None:
        """Release the consoles. Can be called repeatedly."""
        if not self._closed:
            self._closed = True
            self._lanes.close()

    def _show(self, which: Flags) -> None:
        for game in np.flatnonzero(which).tolist():
            self.observations[game] = self.screen(game)

    def _open_lanes(self) -> MarioLanes:
        if self._closed:
            raise ClosedEnvironmentError("the environment has been closed")
        return self._lanes


def _info(numbers: NDArray[np.int64]) -> dict[str, Any]:
    """Convert the info of one game, int64 [10], to the names and types of gym-super-mario-bros 7.4."""
    info: dict[str, Any] = dict(zip(rules.INFO_NAMES, numbers.tolist(), strict=True))
    return {**info, "flag_get": bool(info["flag_get"]), "status": rules.STATUS_NAMES[info["status"]]}
