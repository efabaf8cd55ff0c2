"""Gymnasium environments for tests: an image, a board with illegal actions, one that fails as it is told, one that
crashes in every second episode, one with a child process, one that draws from the modules' random numbers, and one
that is slow or hangs."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from engine.envs.episode import LARGEST_RETURN

HERE = str(Path(__file__).resolve())
SQUARES, CORRIDOR, FAULTY, CRASHING, SERVED, DRAWING, SLOW, ROOM = (
    f"gym:{HERE}:{name}-v0"
    for name in ("Squares", "Corridor", "Faulty", "Crashing", "Served", "Drawing", "Slow", "Room")
)
"""As `--game` takes them."""
SIZE = (60, 80)


class Squares(gymnasium.Env[NDArray[np.uint8], Any]):
    """A square that moves to the left or right of a coloured image; at the right end is the reward."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30, "action_names": ["left", "right"]}

    def __init__(self, render_mode: str | None = None, closes: bool = True, screen: bool = True) -> None:
        if render_mode and not screen:
            sys.exit("no display")
        self._closes = closes
        self.observation_space = spaces.Box(0, 255, (*SIZE, 3), np.uint8)
        self.action_space = spaces.Discrete(2, start=1)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._row = int(self.np_random.integers(0, 60)), int(self.np_random.integers(0, 50))
        return self.render(), {}

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action) and action.dtype == np.int64  # as the space samples them
        self._at = max(0, self._at + (8 if action == 2 else -8))
        ended = self._at >= 70
        return self.render(), float(ended), ended, False, {}

    def render(self) -> NDArray[np.uint8]:
        image = np.zeros((*SIZE, 3), np.uint8)
        image[:, :, 2] = 60
        image[self._row : self._row + 10, self._at : self._at + 10] = (255, 200, 0)
        return image

    def close(self) -> None:
        if not self._closes:
            threading.Event().wait()


class Corridor(gymnasium.Env[NDArray[np.uint8], Any]):
    """A board of zeros and ones, or what it holds as a vector. The first action moves right and is legal until the end;
    then the second is."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": "fast"}  # it does not take the mode

    def __init__(self, flat: bool = False, broken: str = "", start: int = 0) -> None:
        self._broken = broken
        self._shape = (48,) if flat else (3, 8, 2)
        self.observation_space = spaces.Box(0, 1, self._shape, np.uint8)
        self.action_space = spaces.Discrete(2, start=start)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        if self._broken == "reset":
            sys.exit("no screen")
        self._at = 0
        return self._seen()

    def close(self) -> None:
        if self._broken == "close":
            threading.Event().wait()

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if action != (self._at == 7):
            raise ValueError("an illegal action")
        self._at = min(7, self._at + 1)
        board, info = self._seen()
        if action and self._broken == "no mask":
            info = {}
        if action and self._broken == "zero mask":
            info["action_mask"][:] = 0
        return board, 1.0, bool(action), False, info

    def _seen(self) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        board = np.zeros((3, 8, 2), np.uint8)
        board[1, self._at, 0] = 1
        return board.reshape(self._shape), {"action_mask": np.array([self._at < 7, self._at == 7], np.int8)}


class Faulty(gymnasium.Env[Any, Any]):
    """Counts steps; after `good` of them in a process, `fault` happens `times` times. The fault `life` is the loss of
    one of two lives."""

    _steps = 0
    _left = -1

    def __init__(
        self, fault: str = "", good: int = 100, times: int = 1, scale: float = 1.0, render_mode: str | None = None
    ) -> None:
        self.observation_space = spaces.Box(-scale, scale, (3,), np.float32)
        self._scale = scale
        self.action_space = spaces.Discrete(2)
        self._fault, self._good = fault, good
        if Faulty._left < 0:
            Faulty._left = times

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._length = 0
        return self._observation(), {"lives": 2} if self._fault == "life" else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Faulty._steps += 1
        self._length += 1
        observation, reward = self._observation(), 1.0
        info: Any = {"lives": 2 - (Faulty._steps >= self._good)} if self._fault == "life" else {"lives": np.zeros(2)}
        if self._fault and Faulty._steps > self._good and Faulty._left > 0:
            Faulty._left -= 1
            observation, reward = self._fail(observation)
            info = None if self._fault == "info" else info
        ended = bool(self.np_random.random() < 0.1) and self._fault != "life"
        return observation, reward, ended, self._length >= 20, info

    def _fail(self, observation: Any) -> tuple[Any, float]:
        if self._fault == "raise":
            raise RuntimeError("the joint is broken")
        if self._fault == "value":
            raise ValueError("no such joint")
        if self._fault == "exit":
            sys.exit("window closed")
        if self._fault == "hang":
            threading.Event().wait()
        reward = {"reward": float("nan"), "sum": LARGEST_RETURN}.get(self._fault, 1.0)
        wrong = {
            "nan": np.full(3, np.nan, np.float32),
            "shape": np.zeros(5, np.float32),
            "huge": np.full(3, 3e38),
            "dtype": np.array(["a"] * 3),
        }
        return wrong.get(self._fault, observation), reward

    def _observation(self) -> Any:
        return self.np_random.uniform(-self._scale, self._scale, 3).astype(np.float32)


class Crashing(gymnasium.Env[Any, Any]):
    """Shows the number of steps, of which each costs 1 and the sixth ends the episode. After `whole` episodes, the
    fourth step raises."""

    metadata = {"render_modes": []}
    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, whole: int = 1) -> None:
        self._episodes, self._whole = 0, whole

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episodes += 1
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        if self._step == 4 and self._episodes > self._whole:
            raise RuntimeError("the simulator is lost")
        return np.full(1, self._step, np.float32), -1.0, self._step == 6, False, {}


def _serve(pipe: Any) -> None:
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(pipe.recv())


class Served(gymnasium.Env[Any, Any]):
    """Asks a child process in each step. `method`: how it is started; a program stays until it is ended, one with a
    session of its own even if SIGTERM is to end it. `closes`: whether `close` ends it, by SIGTERM."""

    metadata = {"render_modes": []}
    observation_space = spaces.Box(0, 20, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, method: str = "program", closes: bool = True) -> None:
        self._closes = closes
        if method in ("program", "session"):
            echo = "import signal, sys\nfor line in sys.stdin: print(line, end='', flush=True)\nsignal.pause()"
            if apart := method == "session":
                echo = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{echo}"
            command = [sys.executable, "-c", echo]
            self._child: Any = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, start_new_session=apart)
            self._ask, self._wait = self._ask_program, self._child.wait
        else:
            context: Any = multiprocessing.get_context(method)
            self._there, here = context.Pipe()
            self._child = context.Process(target=_serve, args=(here,))
            self._child.start()
            self._ask, self._wait = self._ask_process, self._child.join

    def _ask_program(self, action: int) -> int:
        print(action, file=self._child.stdin, flush=True)
        return int(self._child.stdout.readline())

    def _ask_process(self, action: int) -> int:
        self._there.send(action)
        return int(self._there.recv())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._ask(int(action)) == action
        self._step += 1
        return np.full(1, self._step, np.float32), 1.0, self._step == 20, False, {}

    def close(self) -> None:
        if self._closes:
            self._child.terminate()
            self._wait()


class Drawing(gymnasium.Env[Any, Any]):
    """Draws the length of an episode from the modules `random` and `numpy.random`."""

    metadata = {"render_modes": []}
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = random.randint(1, 20) + np.random.randint(0, 20)  # noqa: NPY002
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        return np.zeros(1, np.float32), 1.0, self._left == 0, False, {}


LET_GO = threading.Event()
"""Set in a test that ends what hangs in its own process."""


class Slow(gymnasium.Env[Any, Any]):
    """Shows the share of its `length` steps; the last one succeeds with action 1. Calls take seconds, and the one in
    `hang` (`make`, `close`, `reset 1`, or the number of a step) never returns. `forks`: whether `make` does."""

    metadata = {"render_modes": []}
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(
        self,
        step: float = 0.0,
        reset: float = 0.0,
        make: float = 0.0,
        length: int = 10,
        hang: str = "",
        forks: bool = False,
    ) -> None:
        if forks:
            (child := multiprocessing.get_context("fork").Process()).start()
            child.join()
        self._step_s, self._reset_s, self._length, self._hang = step, reset, length, hang
        self._taken = self._begun = 0
        self._takes("make", make)

    def _takes(self, call: str, seconds: float = 0.0) -> None:
        if call == self._hang:
            LET_GO.wait()
        for _ in range(10 if seconds else 0):  # so that a process that is stopped has the rest before it
            time.sleep(seconds / 10)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._begun += 1
        self._takes(f"reset {self._begun}", self._reset_s)
        self._left = self._length
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._taken += 1
        self._takes(str(self._taken), self._step_s)
        self._left -= 1
        info = {"is_success": np.bool_(action == 1)}
        return np.full(1, self._left / self._length, np.float32), float(action), False, self._left == 0, info

    def close(self) -> None:
        self._takes("close")


class Room(gymnasium.Env[Any, Any]):
    """A lamp is on or off, a joint is low or high, and a reward of shape [1] is for saying both."""

    metadata = {"render_modes": []}
    observation_space = spaces.Dict({
        "camera": spaces.Box(0, 255, (12, 14, 3), np.uint8),
        "joints": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "tool": spaces.Discrete(3),
    })  # fmt: skip

    def __init__(self, actions: str = "two", broken: str = "") -> None:
        self._broken = broken
        self.action_space = {
            "two": spaces.MultiDiscrete([2, 2], start=[0, 5]),
            "many": spaces.MultiBinary(11),
            "text": spaces.Text(3),
        }[actions]

    def _seen(self) -> dict[str, Any]:
        self._lit, self._high = self.np_random.integers(0, 2, 2).tolist()
        camera = np.full((12, 14, 3), 200 * self._lit, np.uint8)
        return {"camera": camera, "joints": np.array([1000 + self._high, 5.0], np.float32), "tool": np.int64(1)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = 20
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        right = (int(action[0]) == self._lit) + (int(action[1]) - 5 == self._high)
        self._left -= 1
        seen = self._seen()
        if self._broken == "key":
            del seen["joints"]
        return seen, np.array([right / 2]), self._left == 0, False, {}


gymnasium.register("Room-v0", entry_point=f"{__name__}:Room")
gymnasium.register("Squares-v0", entry_point=f"{__name__}:Squares", max_episode_steps=60)
gymnasium.register("Corridor-v0", entry_point=f"{__name__}:Corridor", max_episode_steps=20)
gymnasium.register("Faulty-v0", entry_point=f"{__name__}:Faulty")
gymnasium.register("Crashing-v0", entry_point=f"{__name__}:Crashing")
gymnasium.register("Served-v0", entry_point=f"{__name__}:Served")
gymnasium.register("Drawing-v0", entry_point=f"{__name__}:Drawing")
gymnasium.register("Slow-v0", entry_point=f"{__name__}:Slow", reward_threshold=0.0)
