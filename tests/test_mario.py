"""The Mario task on nes-py: equal to gym-super-mario-bros 7.4, deterministic, saved states, truncation."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.envs.emulator import RIGHT, A, B
from engine.envs.mario import FRAME_SKIP, RIGHT_ONLY, STALL_STEPS, MarioLanes
from engine.envs.nes_py import NesPyEmulator


def lanes(count: int, threads: int = 1, noop_max: int = 30, seed: int = 0, stage: str = "1-1") -> MarioLanes:
    return MarioLanes(NesPyEmulator(count, threads), stage, noop_max=noop_max, seed=seed)


@pytest.fixture
def reference() -> Iterator[Any]:
    """gym-super-mario-bros 7.4's own environment, cured of what breaks it on NumPy 2 (uint8 overflow)."""
    import nes_py._rom as rom_module
    from gym_super_mario_bros import SuperMarioBrosEnv
    from nes_py import nes_env

    with pytest.MonkeyPatch.context() as patch:
        original = rom_module.ROM.header.fget
        patch.setattr(rom_module.ROM, "header", property(lambda self: original(self).astype(np.int64)))

        def ram(self: Any) -> Any:
            address = nes_env._LIB.Memory(self._env)
            return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8 * 0x800)).contents

        patch.setattr(nes_env.NESEnv, "_ram_buffer", ram)
        env = SuperMarioBrosEnv(target=(1, 1))
        yield env
        env.close()


def test_returns_and_ends_equal_those_of_the_package(reference: Any) -> None:
    """Held random buttons through several episodes, frame for frame, without no-op starts."""
    env = lanes(1, noop_max=0)
    random = np.random.default_rng(4)
    env.reset()
    reference.reset()
    reference.step(0)  # our restart runs one frame, which draws the screen
    finished, total, furthest = 0, 0.0, 0
    while finished < 3:
        action = int(random.choice(len(RIGHT_ONLY), p=[0.05, 0.15, 0.1, 0.3, 0.4]))
        for _ in range(int(random.integers(1, 9))):
            step = env.step(np.array([action]))
            done = info = None
            for _ in range(FRAME_SKIP):
                _, reward, done, info = reference.step(RIGHT_ONLY[action])
                total += reward
                if done:
                    break
            assert step.returns[0] == total
            assert bool(step.terminated[0]) == done
            furthest = max(furthest, info["x_pos"])
            if done:
                assert bool(step.clears[0]) == info["flag_get"]
                finished, total = finished + 1, 0.0
                reference.reset()
                reference.step(0)
                break
            assert not step.truncated[0]
    assert furthest > 400


def play(env: MarioLanes, steps: int, seed: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    frames, rewards = [env.reset()], []
    for _ in range(steps):
        step = env.step(random.integers(0, env.actions, env.lanes))
        frames.append(step.frames)
        rewards.append(step.rewards)
    return np.stack(frames), np.stack(rewards)


def test_threads_do_not_change_the_game() -> None:
    one, two = play(lanes(3, threads=1), 40, 7), play(lanes(3, threads=2), 40, 7)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_random_starts_differ_between_episodes() -> None:
    env = lanes(6)
    env.reset()
    assert len(np.unique(env.emulator.ram[:, 0x09])) > 1  # the frame counter


def test_a_saved_state_continues_as_the_original_in_any_lane() -> None:
    emulator = NesPyEmulator(2)
    random = np.random.default_rng(0)
    for _ in range(80):
        emulator.step(random.integers(0, 256, 2).astype(np.uint8))
    state = emulator.save(0)
    buttons = random.integers(0, 256, 40).astype(np.uint8)

    def continued(lane: int) -> tuple[bytes, bytes]:
        for button in buttons:
            emulator.step(np.full(2, button), active=np.arange(2) == lane)
        return emulator.ram[lane].tobytes(), emulator.screen(lane).tobytes()

    first = continued(0)
    emulator.load(0, state)  # from the console's own backup
    assert continued(0) == first
    emulator.load(1, state)  # replayed from power-on
    assert continued(1) == first
    with pytest.raises(ValueError, match="not a saved state"):
        emulator.load(1, b"\x07")


def test_standing_still_is_truncated_and_not_terminated() -> None:
    env = lanes(1, noop_max=0)
    env.reset()
    for _ in range(STALL_STEPS - 1):
        step = env.step(np.array([0]))
        if step.terminated[0]:
            pytest.fail("a standing Mario at the start must not die this early")
        assert not step.truncated[0]
    step = env.step(np.array([0]))
    assert step.truncated[0]
    assert not step.terminated[0]
    assert step.lengths[0] == STALL_STEPS


def test_final_picture_is_kept_and_the_next_is_a_new_start() -> None:
    env = lanes(1, noop_max=0)
    start = env.reset()
    run_right = np.array([RIGHT_ONLY.index(RIGHT | B)])
    before = start
    while True:
        step = env.step(run_right)
        if step.terminated[0]:
            break
        before = step.frames
    assert np.array_equal(step.frames, start)
    assert not np.array_equal(step.final_frames, step.frames)
    assert np.abs(step.final_frames.astype(int) - before).mean() < np.abs(step.frames.astype(int) - before).mean()


def test_picture_is_the_area_mean_of_the_screen() -> None:
    env = lanes(1)
    frames = env.reset()
    rgb = env.emulator.screen(0).astype(float)[32:232, 8:248]
    luma = (rgb @ [0.299, 0.587, 0.114]).reshape(50, 4, 60, 4).mean(axis=(1, 3))
    assert np.abs(frames[0] - luma).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("stage", ["1-2", "4-4", "8-1"])
def test_other_stages_start_where_they_should(stage: str) -> None:
    env = lanes(1, stage=stage)
    env.reset()
    world, number = (int(part) for part in stage.split("-"))
    assert env.emulator.ram[0, 0x75F] == world - 1
    assert env.emulator.ram[0, 0x75C] == number - 1
    assert env.step(np.array([RIGHT_ONLY.index(RIGHT | A)])).lengths[0] == 1
