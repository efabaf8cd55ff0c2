"""Super Mario Bros for Gymnasium: one game, or many in one process, and their ids.

Importing this module registers the ids, as Gymnasium 1.x loads no plugins by itself; an id may name the module, too:

    gymnasium.make("engine.envs.gymnasium_api.mario:mario_tui/SuperMarioBros-1-1-v0", actions="simple")
    gymnasium.make_vec("engine.envs.gymnasium_api.mario:mario_tui/SuperMarioBros-1-1-v0", num_envs=8, threads=2)

Both environments play `MarioLanes` that wait after an episode's end, so that its last screen can still be looked at.
Nothing else of the engine imports this module.
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

from engine.config.stages import RANDOM_STAGES, WHOLE_GAME
from engine.envs.emulators.protocol import SCREEN_SHAPE
from engine.envs.frame_stack import STACK
from engine.envs.mario import STAGES, VIEWS, MarioLanes, MarioTask, rules
from engine.envs.mario.lanes import EMULATORS
from engine.envs.vec_env import VectorStep
from engine.errors import UserError

NAMESPACE = "mario_tui"
OBSERVATIONS = ("stack", "rgb")
RENDER_MODES = ("rgb_array",)
FRAMES_PER_SECOND = 60.0988  # of the console

Observation = NDArray[np.uint8]
Flags = NDArray[np.bool_]


class GameOptions(TypedDict, total=False):
    """Keyword arguments of both environments; every one has a default."""

    stage: str
    reward: str
    actions: str
    frame_skip: int
    sticky: float
    noop_max: int
    stall_steps: int
    view: str  # a name from `VIEWS`: the pictures of the stack
    observation: str  # stack: the last four pictures in gray; rgb: the screen as the console shows it
    emulator: str  # native or nes-py
    threads: int  # that step the games; one game uses one
    rom: str | Path | None  # cartridge file, None for the one inside gym-super-mario-bros


class MarioEnv(gymnasium.Env[Observation, np.int64]):
    """One game of Super Mario Bros.

    Observations are uint8 [4, height, width], newest last, or with `observation="rgb"` uint8 [240, 256, 3]. An episode
    is terminated by death or flag (in the whole game: by the loss of the last life), and truncated after `stall_steps`
    without progress. `info` has the keys of gym-super-mario-bros 7.4, after `reset` as well; numbers are Python's own.

    Seeds are Gymnasium's: `reset(seed=...)` makes everything that follows reproducible, without one the environment
    begins with a random seed. `reset` knows no options.

    Args:
        render_mode: None or `rgb_array`: `render` gives the screen, uint8 [240, 256, 3].
        options: see `GameOptions` and `MarioTask`, which has the defaults.

    Raises `UserError` naming the option that is not accepted.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 15}

    def __init__(self, *, render_mode: str | None = None, **options: Unpack[GameOptions]) -> None:
        self.render_mode = _checked("render_mode", render_mode, (None, *RENDER_MODES))
        self._games = _Games(1, options)
        self.metadata = {**self.metadata, "render_fps": self._games.steps_per_second}
        self.observation_space = self._games.observation_space
        self.action_space = self._games.action_space
        self._seeded = False
        self._playing = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; its first observation and info."""
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self._games.reseed(0, self.np_random)
            self._seeded = True
        self._games.begin(np.array([True]))
        self._playing = True
        return self._games.observations[0].copy(), self._games.info(0)

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Hold an action's buttons for `frame_skip` frames: observation, reward, terminated, truncated, info.

        Raises `ResetNeeded` where no episode is being played, `ValueError` for an action that there is not.
        """
        if not self._playing:
            raise ResetNeeded("step() was called before the episode began or after it ended; call reset() first")
        step = self._games.step(np.array([action], np.int64))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._playing = not (terminated or truncated)
        info = _info(step.info[0])
        return self._games.observations[0].copy(), float(step.rewards[0]), terminated, truncated, info

    def render(self) -> Observation | None:
        """The screen as of the last step, uint8 [240, 256, 3]; None without a render mode."""
        return None if self.render_mode is None else self._games.screen(0)

    def close(self) -> None:
        """Free the console."""
        self._games.close()


class MarioVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """Many games of Super Mario Bros, stepped together in compiled code; see `MarioEnv` for what a game is.

    Equal to a `SyncVectorEnv` of `MarioEnv`s that resets in the same step: where an episode ends, the observation and
    the info are the next episode's first, and `infos` has the ended one's last as `final_obs` (an object array) and
    `final_info`. Game i of `reset(seed=s)` is a `MarioEnv` after `reset(seed=s + i)`.

    Gymnasium's wrapper `RecordEpisodeStatistics` understands ends in the same step from its version 1.4 on; older ones
    count every episode but the first a step short.

    Args:
        num_envs: number of games, at least 1.
        render_mode: None or `rgb_array`: `render` gives all screens, a tuple of uint8 [240, 256, 3].
        options: see `GameOptions` and `MarioTask`, which has the defaults.

    Raises `UserError` naming the option that is not accepted.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 15, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int = 1, *, render_mode: str | None = None, **options: Unpack[GameOptions]) -> None:
        self.closed = True  # there is nothing to free yet
        if num_envs < 1:
            raise UserError(f"num_envs: {num_envs} is not accepted; accepted: 1 or more")
        self.render_mode = _checked("render_mode", render_mode, (None, *RENDER_MODES))
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
        """Begin an episode in every game; the first observations and infos.

        seed: None, the first game's (the others count up from it), or one for each game, None where it goes on.
        Raises `ValueError` for another number of seeds, and for `options["reset_mask"]`: games reset by themselves.
        """
        if options is not None and "reset_mask" in options:
            raise ValueError("reset_mask is for vector environments whose autoreset is disabled; this one's is not")
        if isinstance(seed, int):
            super().reset(seed=seed)
            seed = range(seed, seed + self.num_envs)
        seeds: Sequence[int | None] = [None] * self.num_envs if seed is None else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed: {len(seeds)} seeds are not accepted; accepted: one for each of {self.num_envs}")
        for game, own in enumerate(seeds):
            if own is not None:
                self._games.reseed(game, seeding.np_random(own)[0])
            elif not self._seeded:
                self._games.reseed(game, self.np_random)
        self._seeded = True
        self._games.begin(np.ones(self.num_envs, np.bool_))
        return self._games.observations.copy(), self._infos(self._games.read_info())

    def step(self, actions: NDArray[np.int64]) -> tuple[Observation, NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """One step of every game, int64 [num_envs]: observations, rewards, terminations, truncations, infos.

        Raises `ResetNeeded` before the first reset, `ValueError` for actions that there are not.
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
        """The screens as of the last step; None without a render mode."""
        return None if self.render_mode is None else tuple(map(self._games.screen, range(self.num_envs)))

    def close_extras(self, **kwargs: Any) -> None:
        """Free the consoles."""
        self._games.close()

    def _infos(self, numbers: NDArray[np.int64]) -> dict[str, Any]:
        """Information int64 [num_envs, 10] as Gymnasium has it: an array for each key, and who it is true of."""
        infos: dict[str, Any] = {}
        for name, column in zip(rules.INFO_NAMES, numbers.T, strict=True):
            infos[name] = column.copy()
            infos[f"_{name}"] = np.ones(self.num_envs, np.bool_)
        infos["flag_get"] = infos["flag_get"] != 0
        infos["status"] = np.array(rules.STATUS_NAMES, object)[infos["status"]]
        return infos


class _Games:
    """Lanes that wait after an episode's end, and what Gymnasium wants to know of them.

    observations: uint8 [games, 4, height, width] or [games, 240, 256, 3], overwritten by the next call.
    """

    def __init__(self, games: int, options: GameOptions) -> None:
        given: dict[str, Any] = {**options}
        self._rgb = _checked("observation", given.pop("observation", "stack"), OBSERVATIONS) == "rgb"
        emulator = _checked("emulator", given.pop("emulator", "native"), EMULATORS)
        threads, rom = given.pop("threads", 1), given.pop("rom", None)
        cartridge = None if rom is None else Path(rom)
        if threads < 1:
            raise UserError(f"threads: {threads} is not accepted; accepted: 1 or more")
        if "view" in given:
            given["view"] = VIEWS[_checked("view", given["view"], tuple(VIEWS))]
        task = MarioTask(**given)
        self.steps_per_second = round(FRAMES_PER_SECOND / task.frame_skip)
        shape = SCREEN_SHAPE if self._rgb else (STACK, *task.view.shape)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(len(task.action_names))
        self.observations = np.zeros((games, *shape), np.uint8)
        self._closed = False
        self._lanes = MarioLanes(task, games, emulator=emulator, threads=threads, restart=False, rom=cartridge)

    def reseed(self, game: int, random: np.random.Generator) -> None:
        """Take a game's random decisions from a seed that `random` gives."""
        self._lanes.reseed(game, int(random.integers(2**32)))

    def begin(self, which: Flags) -> None:
        """Begin an episode in the games of `which` [games]."""
        frames = self._open_lanes().reset(which)
        if self._rgb:
            self._show(which)
        else:
            self.observations[which] = frames[which][:, None]

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        """Hold `actions` [games] for one step in every game. Raises `ValueError` for any that there is not."""
        lanes = self._open_lanes()
        if actions.shape != (lanes.lanes,) or actions.min() < 0 or actions.max() >= lanes.actions:
            raise ValueError(f"actions: {actions} is not accepted; accepted: {lanes.lanes} of 0 to {lanes.actions - 1}")
        step = lanes.step(actions)
        if self._rgb:
            self._show(np.ones(self._lanes.lanes, np.bool_))
        else:
            self.observations[:, :-1] = self.observations[:, 1:]
            self.observations[:, -1] = step.frames
        return step

    def read_info(self) -> NDArray[np.int64]:
        """Information of all games as they stand, int64 [games, 10]."""
        numbers = np.empty((self._lanes.lanes, len(rules.INFO_NAMES)), np.int64)
        for memory, row in zip(self._open_lanes().emulator.ram, numbers, strict=True):
            rules.read_info(memory, row)
        return numbers

    def info(self, game: int) -> dict[str, Any]:
        """Information of one game as it stands."""
        return _info(self.read_info()[game])

    def screen(self, game: int) -> Observation:
        """A game's screen, uint8 [240, 256, 3]."""
        return self._open_lanes().emulator.screen(game)

    def close(self) -> None:
        """Free the consoles; may be called again."""
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


def register() -> None:
    """Make the ids known to Gymnasium; may be called again.

    mario_tui/SuperMarioBros-v0: the whole game. mario_tui/SuperMarioBros-1-1-v0 to 8-4: one stage.
    mario_tui/SuperMarioBrosRandomStages-v0: every episode another stage.
    """
    names = {"SuperMarioBros": WHOLE_GAME, "SuperMarioBrosRandomStages": RANDOM_STAGES}
    names |= {f"SuperMarioBros-{stage}": stage for stage in STAGES}
    for name, stage in names.items():
        if (identifier := f"{NAMESPACE}/{name}-v0") not in gymnasium.registry:
            gymnasium.register(
                identifier,
                entry_point=f"{__name__}:MarioEnv",
                vector_entry_point=f"{__name__}:MarioVectorEnv",
                kwargs={"stage": stage},
            )


def _info(numbers: NDArray[np.int64]) -> dict[str, Any]:
    """One game's information, int64 [10], with the names and types of gym-super-mario-bros 7.4."""
    info: dict[str, Any] = dict(zip(rules.INFO_NAMES, numbers.tolist(), strict=True))
    return {**info, "flag_get": bool(info["flag_get"]), "status": rules.STATUS_NAMES[info["status"]]}


def _checked(option: str, value: Any, accepted: tuple[Any, ...]) -> Any:
    """The value, if it is accepted. Raises `UserError` if not."""
    if value not in accepted:
        raise UserError(f"{option}: {value!r} is not accepted; accepted: {', '.join(map(str, accepted))}")
    return value


register()
