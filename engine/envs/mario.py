"""Super Mario Bros as a vector environment, computed from RAM alone, so that it means the same on every emulator.

Rules of one stage follow gym-super-mario-bros 7.4: an episode ends when Mario dies or reaches the flag, and what the
player can't influence (pipes, changes of area) is skipped. The agent's reward is a scaled form of that package's, and
an agent that gets no further is truncated. RAM addresses: https://datacrystal.tcrf.net/wiki/Super_Mario_Bros./RAM_map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.envs.emulator import GRAY_SHAPE, RIGHT, START, A, B, Emulator
from engine.envs.jit import njit

FRAME_SKIP = 4
STALL_STEPS = 300
"""Environment steps without a new furthest x after which an episode is truncated."""
CLEAR_BONUS = 3.0
REWARD_SCALE = 15.0

RIGHT_ONLY = (0, RIGHT, RIGHT | A, RIGHT | B, RIGHT | A | B)
ACTION_NAMES = ("noop", "right", "right+A", "right+B", "right+A+B")

_WORLD, _STAGE, _AREA = 0x075F, 0x075C, 0x0760
_PLAYER_STATE, _VIEWPORT_Y, _FLOAT_STATE = 0x000E, 0x00B5, 0x001D
_X_PAGE, _X_PIXEL = 0x006D, 0x0086
_CLOCK = 0x07F8
_GAME_MODE, _PRELEVEL_TIMER, _AREA_TIMER = 0x0770, 0x07A0, 0x06DE
_ENEMY_TYPES = 0x0016
_BOWSER, _FLAGPOLE = 0x2D, 0x31

# columns of a lane's account, int64
_LAST_X, _LAST_CLOCK, _FURTHEST_X, _STALLED, _STEP_REWARD, _STEP_CLASSIC, _DONE, _CLEAR, _RETURN, _LENGTH = range(10)


@dataclass(frozen=True)
class VectorStep:
    """What one environment step of all lanes gave. A lane that ended shows its next episode's first picture in
    `frames` and the ended episode's last one in `final_frames` (elsewhere undefined)."""

    frames: NDArray[np.uint8]  # [lanes, 50, 60]
    final_frames: NDArray[np.uint8]  # [lanes, 50, 60]
    rewards: NDArray[np.float32]  # [lanes], as the agent learns them
    terminated: NDArray[np.bool_]  # [lanes], death or flag: nothing follows
    truncated: NDArray[np.bool_]  # [lanes], cut by the environment: the value of what would follow counts
    returns: NDArray[np.int64]  # [lanes], sum of 7.4 rewards of the episode so far
    lengths: NDArray[np.int64]  # [lanes], environment steps of the episode so far
    furthest: NDArray[np.int64]  # [lanes], x position
    clears: NDArray[np.bool_]  # [lanes], the flag was reached in this step
    emulated: int  # frames of all lanes together, skipped scenes and new starts included


class MarioLanes:
    """N games of one stage. `reset` once, then `step`; lanes that end begin anew by themselves."""

    actions = len(RIGHT_ONLY)
    frame_shape = GRAY_SHAPE

    def __init__(self, emulator: Emulator, stage: str, *, noop_max: int, seed: int) -> None:
        self.emulator = emulator
        self.lanes = emulator.lanes
        self._noop_max = noop_max
        self._random = np.random.default_rng(seed)
        self._buttons = np.array(RIGHT_ONLY, np.uint8)
        self._nothing = np.zeros(self.lanes, np.uint8)
        self._account = np.zeros((self.lanes, 10), np.int64)
        self._emulated = 0
        self._boot(*(int(part) for part in stage.split("-")))
        self._starts = [emulator.save(lane) for lane in range(self.lanes)]

    def reset(self) -> NDArray[np.uint8]:
        """Start an episode in every lane; its first pictures, uint8 [lanes, 50, 60]."""
        self._restart(np.ones(self.lanes, np.bool_))
        frames = np.empty((self.lanes, *GRAY_SHAPE), np.uint8)
        self.emulator.gray(frames)
        return frames

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        """One environment step (4 frames, fewer where an episode ends) with action indices [lanes]."""
        self._emulated = 0
        emulator, account = self.emulator, self._account
        account[:, _STEP_REWARD] = account[:, _STEP_CLASSIC] = 0
        buttons = self._buttons[actions]
        active = np.ones(self.lanes, np.bool_)
        for _ in range(FRAME_SKIP):
            self._frames(buttons, active)
            _observe(emulator.ram, account, active)
            active &= account[:, _DONE] == 0
            if not active.any():
                break
            self._skip_scenes(active)
        _finish_step(account)

        terminated = account[:, _DONE] != 0
        truncated = (account[:, _STALLED] >= STALL_STEPS) & ~terminated
        clears = account[:, _CLEAR] != 0
        rewards = np.clip(account[:, _STEP_REWARD], -REWARD_SCALE, REWARD_SCALE) / REWARD_SCALE
        rewards = (rewards + CLEAR_BONUS * clears).astype(np.float32)
        returns, lengths, furthest = (account[:, column].copy() for column in (_RETURN, _LENGTH, _FURTHEST_X))

        frames = np.empty((self.lanes, *GRAY_SHAPE), np.uint8)
        emulator.gray(frames)
        final_frames = frames
        ended = terminated | truncated
        if ended.any():
            final_frames = frames.copy()
            self._restart(ended)
            emulator.gray(frames, ended)
        return VectorStep(
            frames,
            final_frames,
            rewards,
            terminated,
            truncated,
            returns,
            lengths,
            furthest,
            clears,
            self._emulated,
        )

    def state(self) -> dict[str, Any]:
        """Random state, for a checkpoint. Games themselves begin anew on resume."""
        return dict(self._random.bit_generator.state)

    def load_state(self, state: dict[str, Any]) -> None:
        self._random.bit_generator.state = state

    def close(self) -> None:
        self.emulator.close()

    def _frames(self, buttons: NDArray[np.uint8], active: NDArray[np.bool_]) -> None:
        self.emulator.step(buttons, 1, active)
        self._emulated += int(active.sum())

    def _boot(self, world: int, stage: int) -> None:
        """From power-on to a stage's first frame, all lanes alike, as gym-super-mario-bros 7.4 does it."""
        everyone = np.ones(self.lanes, np.bool_)
        start = np.full(self.lanes, START, np.uint8)
        area = stage + 1 if world in (1, 2, 4, 7) and stage >= 2 else stage  # these worlds have an extra first area

        def poke(address: int, value: int) -> None:
            for lane in range(self.lanes):
                self.emulator.poke(lane, address, value)

        def press_start() -> None:
            self._frames(start, everyone)

        def release() -> None:
            self._frames(self._nothing, everyone)

        press_start()
        release()
        while _clock(self.emulator.ram[0]) == 0:
            press_start()
            poke(_WORLD, world - 1)
            poke(_STAGE, stage - 1)
            poke(_AREA, area - 1)
            release()
            poke(_PRELEVEL_TIMER, 0)
        last = _clock(self.emulator.ram[0])
        while _clock(self.emulator.ram[0]) >= last:
            last = _clock(self.emulator.ram[0])
            press_start()
            release()

    def _restart(self, which: NDArray[np.bool_]) -> None:
        """New episodes: the start state and 0 to `noop_max` frames of doing nothing, plus one that draws the screen."""
        frames = np.where(which, 1 + self._random.integers(0, self._noop_max + 1, self.lanes), 0)
        for lane in np.flatnonzero(which):
            self.emulator.load(int(lane), self._starts[lane])
        for frame in range(int(frames.max())):
            self._frames(self._nothing, frames > frame)
        _begin(self.emulator.ram, self._account, which)

    def _skip_scenes(self, active: NDArray[np.bool_]) -> None:
        """Cut short what the player can't influence: changes of area, pipes, walks into a castle."""
        ram = self.emulator.ram
        for lane in np.flatnonzero(active & (ram[:, _AREA_TIMER] > 1) & (ram[:, _AREA_TIMER] < 255)):
            self.emulator.poke(int(lane), _AREA_TIMER, 1)
        while True:
            state = ram[:, _PLAYER_STATE]
            busy = active & ((state <= 5) | (state == 7) | (ram[:, _GAME_MODE] == 2))
            if not busy.any():
                return
            for lane in np.flatnonzero(busy):
                self.emulator.poke(int(lane), _PRELEVEL_TIMER, 0)
            self._frames(self._nothing, busy)


@njit(cache=True, nogil=True)
def _clock(ram: Any) -> int:
    """Time left, from its three decimal digits."""
    return int(ram[_CLOCK]) * 100 + int(ram[_CLOCK + 1]) * 10 + int(ram[_CLOCK + 2])


@njit(cache=True, nogil=True)
def _x(ram: Any) -> int:
    return int(ram[_X_PAGE]) * 256 + int(ram[_X_PIXEL])


@njit(cache=True, nogil=True)
def _flag_reached(ram: Any) -> bool:
    if ram[_GAME_MODE] == 2:
        return True
    for slot in range(5):
        enemy = ram[_ENEMY_TYPES + slot]
        if enemy in (_BOWSER, _FLAGPOLE):
            return bool(ram[_FLOAT_STATE] == 3)  # sliding down the pole; a vine sets 3 too, but without these enemies
    return False


@njit(cache=True, nogil=True)
def _begin(ram: Any, account: Any, which: Any) -> None:
    """Open the account of new episodes."""
    for lane in range(ram.shape[0]):
        if which[lane]:
            account[lane, :] = 0
            account[lane, _LAST_X] = account[lane, _FURTHEST_X] = _x(ram[lane])
            account[lane, _LAST_CLOCK] = _clock(ram[lane])


@njit(cache=True, nogil=True)
def _observe(ram: Any, account: Any, active: Any) -> None:
    """Book one frame of the active lanes: movement, clock and death as gym-super-mario-bros 7.4 rewards them."""
    for lane in range(ram.shape[0]):
        if not active[lane]:
            continue
        memory, book = ram[lane], account[lane]
        x, clock = _x(memory), _clock(memory)
        moved = x - book[_LAST_X]
        if moved < -5 or moved > 5:  # a new area, not a movement
            moved = 0
        ticked = min(clock - book[_LAST_CLOCK], 0)
        book[_LAST_X], book[_LAST_CLOCK] = x, clock
        died = memory[_PLAYER_STATE] in (0x0B, 0x06) or memory[_VIEWPORT_Y] > 1
        cleared = _flag_reached(memory)
        reward = moved + ticked - (25 if died else 0)
        book[_STEP_REWARD] += reward
        book[_STEP_CLASSIC] += min(max(reward, -15), 15)
        if x > book[_FURTHEST_X] and moved != 0:
            book[_FURTHEST_X] = x
            book[_STALLED] = -1  # this step made progress; `_finish_step` brings it to zero
        if died or cleared:
            book[_DONE] = 1
            book[_CLEAR] = cleared


@njit(cache=True, nogil=True)
def _finish_step(account: Any) -> None:
    """Close one environment step of every lane."""
    for lane in range(account.shape[0]):
        book = account[lane]
        book[_STALLED] += 1
        book[_RETURN] += book[_STEP_CLASSIC]
        book[_LENGTH] += 1
