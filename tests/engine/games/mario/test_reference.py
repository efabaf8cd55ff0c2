"""Super Mario Bros is gym-super-mario-bros 7.4: reward, end, info and screen are equal, frame by frame."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.games.mario.actions import action_buttons
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.rules import INFO_NAMES, STATUS_NAMES
from engine.games.mario.task import MarioTask
from tests.support.games.mario import RIGHT_B


@pytest.fixture
def reference() -> Iterator[Any]:
    """Makes environments of version 7.4, patched for NumPy 2 (uint8 arithmetic that overflows)."""
    if sys.version_info >= (3, 13):
        pytest.skip("7.4 needs an older Python; 9.1 has other rewards")
    import nes_py._rom as rom_module
    from gym_super_mario_bros import SuperMarioBrosEnv
    from nes_py import nes_env

    made = []

    def make(target: tuple[int, int] | None) -> Any:
        made.append(SuperMarioBrosEnv(target=target))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        original = rom_module.ROM.header.fget
        patch.setattr(rom_module.ROM, "header", property(lambda self: original(self).astype(np.int64)))

        def ram(self: Any) -> Any:
            address = nes_env._LIB.Memory(self._env)
            return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8 * 0x800)).contents

        patch.setattr(nes_env.NESEnv, "_ram_buffer", ram)
        yield make
        for env in made:
            env.close()


def equals_the_package(theirs: Any, task: MarioTask, emulator: str, steps: int, episodes: int, seed: int) -> int:
    """Play held random actions on both and compare every frame; returns the number of finished episodes."""
    env = MarioLanes(task, 1, emulator=emulator)
    random, buttons = np.random.default_rng(seed), action_buttons(task.actions)
    env.reset()
    theirs.reset()
    theirs.step(0)  # our episodes begin with one frame, which draws the screen
    finished, total, played = 0, 0.0, 0
    while finished < episodes and played < steps:
        action = RIGHT_B if random.random() < 0.5 else int(random.integers(len(buttons)))
        for _ in range(int(random.integers(1, 9))):
            step, reward = env.step(np.array([action])), 0.0
            for _ in range(task.frame_skip):
                screen, frame_reward, done, info = theirs.step(buttons[action])
                reward += frame_reward
                if done:
                    break
            total, played = total + reward, played + 1
            assert step.rewards[0] == reward
            assert step.returns[0] == total
            assert bool(step.terminated[0]) == done
            ours = dict(zip(INFO_NAMES, step.info[0].tolist(), strict=True))
            assert ours | {"status": STATUS_NAMES[ours["status"]], "flag_get": bool(ours["flag_get"])} == info
            if done:
                finished, total = finished + 1, 0.0
                theirs.reset()
                theirs.step(0)
                break
            assert np.array_equal(env.emulator.screen(0), screen)
    return finished


@pytest.mark.parametrize("stage", ["1-1", "1-2", "4-4", "8-1"])
def test_classic_equals_the_package_in_reward_done_info_and_screen(reference: Any, stage: str) -> None:
    world, number = (int(part) for part in stage.split("-"))
    task = MarioTask(stage=stage, reward="classic", actions="simple", noop_max=0, stall_steps=0)
    assert equals_the_package(reference((world, number)), task, "native", 400, 2, seed=world) > 0


def test_the_whole_game_equals_the_package_over_lives(reference: Any) -> None:
    task = MarioTask(stage="game", reward="classic", noop_max=0, stall_steps=0)
    assert equals_the_package(reference(None), task, "native", 900, 1, seed=3) == 1  # three lives are lost


@pytest.mark.long
@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("number", range(1, 5))
def test_classic_equals_the_package_everywhere(reference: Any, world: int, number: int) -> None:
    task = MarioTask(stage=f"{world}-{number}", reward="classic", actions="complex", noop_max=0, stall_steps=0)
    for emulator in ("native", "nes-py"):
        equals_the_package(reference((world, number)), task, emulator, 600, 5, seed=world * number)
