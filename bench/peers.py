"""Super Mario Bros 1-1 with other packages, as Gymnasium environments with the usual wrappers.

Frame skip 4, grayscale, 84x84 by area means, stack of 4. The wrappers are merged into one class, which is faster than a
chain of them. Importing this module requires gymnasium and cv2; stable-retro, gym-super-mario-bros and cynes are
imported by their environments. stable-retro can run only one emulator per process.
"""

from __future__ import annotations

import gzip
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np
from numpy.typing import NDArray

from bench.mario_package import mario_env
from engine.config.capabilities import RIGHT, A, B
from engine.console.cartridge import installed_mario
from engine.games.mario.actions import STACK, action_buttons

SIDE, SKIP = 84, 4
GAME, START_STATE = "SuperMarioBros-Nes-v0", "1-1"
_BUTTONS = action_buttons("right-only")


class Wrapped(gymnasium.Env[NDArray[np.uint8], np.int64], ABC):
    """Observations are uint8 [stack, 84, 84]. Subclasses implement `begin` and `hold`."""

    observation_space = gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
    action_space = gymnasium.spaces.Discrete(len(_BUTTONS))

    def __init__(self) -> None:
        cv2.setNumThreads(1)
        self._stack = np.zeros((STACK, SIDE, SIDE), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._stack[:] = _picture(self.begin())
        return self._stack.copy(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        screen, reward, done, info = self.hold(int(action))
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = _picture(screen)
        return self._stack.copy(), reward, done, False, info

    @abstractmethod
    def begin(self) -> NDArray[np.uint8]:
        """Begin an episode; returns its first screen, uint8 [height, width, 3]."""

    @abstractmethod
    def hold(self, action: int) -> tuple[NDArray[np.uint8], float, bool, dict[str, Any]]:
        """Hold an action for one step; returns the last screen, reward, end and info."""


class PackageMario(Wrapped):
    """gym-super-mario-bros 7.4 on nes-py 8.2, with its own reward, end and info."""

    def __init__(self) -> None:
        super().__init__()
        self._env = mario_env()

    def begin(self) -> NDArray[np.uint8]:
        return np.ascontiguousarray(self._env.reset())

    def hold(self, action: int) -> tuple[NDArray[np.uint8], float, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(SKIP):
            screen, reward, done, info = self._env.step(_BUTTONS[action])
            total += reward
            if done:
                break
        return np.ascontiguousarray(screen), total, done, info

    def close(self) -> None:
        self._env.close()


class FromMemory(Wrapped):
    """Reads movement to the right, death and flag from work RAM after each step."""

    _x = 0

    def _outcome(self, ram: Any) -> tuple[float, bool, dict[str, Any]]:
        """Reward, end and info after a step; `ram[address]` is a byte of work RAM."""
        x = _x_of(ram)
        moved, self._x = x - self._x, x
        dead = ram[0x000E] in (0x06, 0x0B) or ram[0x00B5] > 1
        flag = bool(ram[0x001D] == 3)
        info = {"x_pos": x, "flag_get": flag, "life": int(ram[0x075A])}
        return moved - 25.0 * dead, bool(dead or flag), info


class CynesMario(FromMemory):
    """cynes, which has an emulator but no environment."""

    def __init__(self) -> None:
        super().__init__()
        import cynes

        self._console = cynes.NES(installed_mario())
        buttons = {RIGHT: cynes.NES_INPUT_RIGHT, A: cynes.NES_INPUT_A, B: cynes.NES_INPUT_B}
        self._masks = [sum(mask for ours, mask in buttons.items() if byte & ours) for byte in _BUTTONS]

        def press(start: bool) -> None:
            self._console.controller = cynes.NES_INPUT_START if start else 0
            self._console.step()

        enter_stage(press, lambda: self._console)
        self._start = self._console.save()

    def begin(self) -> NDArray[np.uint8]:
        self._console.load(self._start)
        self._x = _x_of(self._console)
        self._console.controller = 0
        return self._console.step()

    def hold(self, action: int) -> tuple[NDArray[np.uint8], float, bool, dict[str, Any]]:
        self._console.controller = self._masks[action]
        screen = self._console.step(SKIP)
        return screen, *self._outcome(self._console)


class RetroMario(FromMemory):
    """stable-retro (FCEUmm).

    Args:
        folder: created by `make_retro_folder`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._env = _retro_env(folder, START_STATE)
        self._masks = [_mask(self._env.buttons, byte) for byte in _BUTTONS]

    def begin(self) -> NDArray[np.uint8]:
        screen, _ = self._env.reset()
        self._x = _x_of(self._env.get_ram())
        return screen

    def hold(self, action: int) -> tuple[NDArray[np.uint8], float, bool, dict[str, Any]]:
        mask = self._masks[action]
        for _ in range(SKIP):
            screen, _, _, _, _ = self._env.step(mask)
        return screen, *self._outcome(self._env.get_ram())

    def close(self) -> None:
        self._env.close()


def make_retro_folder(folder: Path) -> None:
    """Create the files that stable-retro needs for a game: cartridge, descriptions, and a state at the start of 1-1."""
    game = folder / GAME
    game.mkdir()
    cartridge = installed_mario().read_bytes()
    (game / "rom.nes").write_bytes(cartridge)
    (game / "rom.sha").write_text(hashlib.sha1(cartridge).hexdigest() + "\n")
    (game / "data.json").write_text('{"info": {}}')
    (game / "scenario.json").write_text("{}")
    (game / "metadata.json").write_text("{}")
    env = _retro_env(folder, None)
    env.reset()
    nothing = np.zeros(env.num_buttons, np.uint8)
    start = np.array([name == "START" for name in env.buttons], np.uint8)
    enter_stage(lambda pressed: env.step(start if pressed else nothing), env.get_ram)
    (game / f"{START_STATE}.state").write_bytes(gzip.compress(env.em.get_state()))
    env.close()


def enter_stage(press: Callable[[bool], Any], ram: Callable[[], Any]) -> None:
    """From power-on to the first frame of 1-1. `press` emulates a frame with or without the start button."""
    for _ in range(60):  # the title screen
        press(False)
    for _ in range(600):
        now = ram()
        if now[0x0770] == 1 and now[0x0772] == 3 and now[0x000E] == 8:  # in a stage, running, Mario under control
            return
        press(now[0x0770] != 1)
    raise RuntimeError("pressing start did not begin the game")


def _retro_env(folder: Path, state: str | None) -> Any:
    import stable_retro as retro

    integrations = retro.data.Integrations
    integrations.add_custom_path(str(folder))
    return retro.RetroEnv(
        GAME,
        state=state or retro.State.NONE,
        inttype=integrations.CUSTOM_ONLY,
        use_restricted_actions=retro.Actions.ALL,
        render_mode=None,  # otherwise it opens a window
    )


def _x_of(ram: Any) -> int:
    return int(ram[0x006D]) * 256 + int(ram[0x0086])


def _mask(names: list[str | None], byte: int) -> NDArray[np.uint8]:
    """Convert our joypad byte to stable-retro's array of buttons."""
    held = {"RIGHT": byte & RIGHT, "A": byte & A, "B": byte & B}
    return np.array([bool(held.get(name or "", 0)) for name in names], np.uint8)


def _picture(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    gray = cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY)
    return cv2.resize(gray, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
