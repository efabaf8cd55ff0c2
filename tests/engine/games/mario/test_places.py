"""What Mario is paid where pipes and mazes lead back to a place in which he was before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.envs.factory import make_lanes
from engine.games.mario import rules
from engine.games.mario.lanes import MarioLanes, stage_starts
from engine.games.mario.reference_stepper import ReferenceStepper
from engine.games.mario.task import MarioTask

_STAR, _INVINCIBLE = 0x079F, 35
_Y, _WARP_ZONE = 0x00CE, 0x06D6
MAZES = ["4-4", pytest.param("7-4", marks=pytest.mark.long)]


def lanes_in_maze(stage: str, *, ends_at_loops: bool, reference: bool = False, reward: str = "progress") -> MarioLanes:
    task = MarioTask(stage=stage, actions="simple", ends_at_loops=ends_at_loops, reward=reward, noop_max=0)
    env = MarioLanes(task, 8, seed=3)
    if reference:
        starts = stage_starts("native", task.stages, whole_game=False)
        env._stepper = ReferenceStepper(env.emulator, task, env.book, starts, restart=True)
    return env


def x_of(env: MarioLanes) -> NDArray[np.int64]:
    ram = env.emulator.ram.astype(np.int64)
    return 256 * ram[:, 0x6D] + ram[:, 0x86]


def walk(env: MarioLanes) -> Iterator[NDArray[np.int64]]:
    """Random held actions, mostly to the right, for an invincible Mario; yields those of each step before it."""
    random, actions, left = np.random.default_rng(0), np.zeros(env.lanes, np.int64), np.zeros(env.lanes, np.int64)
    env.reset()
    while True:
        drawn = random.choice([1, 2, 3, 4, 5, 6], env.lanes, p=[0.15, 0.2, 0.15, 0.4, 0.05, 0.05])
        holds = random.integers(2, 14, env.lanes)
        actions, left = np.where(left == 0, drawn, actions), np.where(left == 0, holds, left) - 1
        for lane in range(env.lanes):
            env.emulator.poke(lane, _STAR, _INVINCIBLE)
        yield actions


@pytest.mark.parametrize("stage", MAZES)
def test_the_way_that_a_maze_moved_mario_back_is_paid_once(stage: str) -> None:
    env, back, paid_again = lanes_in_maze(stage, ends_at_loops=False), 0, 0
    furthest = x = np.zeros(env.lanes, np.int64)
    for actions in walk(env):
        before, book = x, env.book[:, rules.BEST_X].copy()
        step = env.step(actions)
        x = x_of(env)
        over = step.terminated | step.truncated
        looped = ~over & (np.abs(x - before + 1024) < 40)
        back += int(looped.sum())
        assert (step.rewards[looped] < 1).all()
        assert (env.book[looped, rules.BEST_X] >= book[looped]).all()
        behind = ~over & (x < furthest - 16) & (before < furthest - 16)  # also in the step before
        assert (step.rewards[behind] <= 0).all()
        paid_again += int(behind.sum())
        furthest = np.where(over, 0, np.maximum(furthest, np.where(x < 0x8000, x, 0)))
        if back >= 3 and paid_again >= 100:
            return


@pytest.mark.parametrize("stage", MAZES)
def test_in_training_a_maze_that_moves_mario_back_ends_the_episode_like_death(stage: str) -> None:
    one, other = (lanes_in_maze(stage, ends_at_loops=True, reference=reference) for reference in (False, True))
    loops = 0
    for actions, _ in zip(walk(one), walk(other), strict=True):
        first, second = one.step(actions), other.step(actions)
        for name in ("frames", "rewards", "terminated", "truncated", "returns", "lengths", "results"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), name
        assert np.array_equal(one.book[:, rules.BEST_X], other.book[:, rules.BEST_X])
        looped = first.terminated & ~first.success & (first.rewards == -1) & (x_of(one) > 0)
        loops += int((looped & (one.book[:, rules.STEP_CLASSIC] > -15)).sum())  # the classic reward knows no maze
        if loops >= 2:
            return


@pytest.mark.parametrize(
    ("before", "moved", "ends"), [(2000, 2, True), (1010, 2, True), (1010, -3, True), (1010, 9, False)]
)
def test_a_maze_may_move_mario_to_the_left_of_the_start(before: int, moved: int, ends: bool) -> None:
    """The first one of 4-4 does; x is 16 bits without a sign."""
    env = MarioLanes(MarioTask(), 1)
    env.reset()
    ram, book = env.emulator.ram[0].copy(), env.book[0].copy()
    book[rules.LAST_X] = book[rules.BEST_X] = before
    ram[0x6D], ram[0x86] = divmod((before - 1024 + moved) % 0x10000, 256)
    rules.observe(ram, book, False, True)
    assert book[rules.DONE] == ends


def warp_zone_is_reached(*, ends_at_loops: bool, reference: bool = False) -> tuple[list[float], bool]:
    """The rewards of a Mario who runs above the ceiling of 1-2 past its last pipe, and whether that ends the episode
    where the pipes of the warp zone come into view."""
    env, rewards = lanes_in_maze("1-2", ends_at_loops=ends_at_loops, reference=reference), list[float]()
    env.reset()
    while True:
        x = int(x_of(env)[0])
        for lane in range(env.lanes):
            env.emulator.poke(lane, _STAR, _INVINCIBLE)
            if (120 < x < 400 or 2560 < x < 2760) and env.emulator.ram[lane, _Y] > 40:
                env.emulator.poke(lane, _Y, 0)  # up, and over the last pipe
        run, jump = 3, 4
        step = env.step(np.full(env.lanes, jump if 2460 < x < 2610 else run))  # a gap is in the ceiling
        assert (step.rewards == step.rewards[0]).all()
        if env.emulator.ram[0, _WARP_ZONE] or rewards:
            rewards.append(float(step.rewards[0]))
        if step.terminated[0] or x > 2940:
            return rewards, bool(step.terminated[0])


def test_in_training_a_warp_zone_ends_the_episode_like_death_and_the_way_to_it_is_not_paid() -> None:
    paid, has_ended = warp_zone_is_reached(ends_at_loops=False)
    assert not has_ended and sum(paid) > 15
    unpaid, has_ended = warp_zone_is_reached(ends_at_loops=True)
    assert has_ended and unpaid[-1] == -1 and max(unpaid[1:]) <= 0
    assert warp_zone_is_reached(ends_at_loops=True, reference=True) == (unpaid, True)


def test_the_classic_reward_does_not_end_at_mazes() -> None:
    ends = {
        reward: make_lanes(
            RunConfig.of(stage="4-4", reward=reward), 1, threads=1, seed=0, evaluation=evaluation
        ).task.ends_at_loops  # type: ignore[attr-defined]
        for reward, evaluation in (("progress", False), ("classic", False))
    }
    assert ends == {"progress": True, "classic": False}
    evaluation = make_lanes(RunConfig.of(stage="4-4"), 1, threads=1, seed=0, evaluation=True)
    assert not evaluation.task.ends_at_loops  # type: ignore[attr-defined]


class Walker:
    """The work RAM of a game, written by hand, and the book of its lane."""

    def __init__(self) -> None:
        self.ram, self.book = np.zeros(2048, np.uint8), np.zeros(rules.BOOK_WORDS, np.int64)
        self.ram[rules.CLOCK] = 3
        self.place(0xA000, 40)
        rules.begin_episode(self.ram, self.book)

    def place(self, area: int, x: int) -> None:
        self.ram[0xE7], self.ram[0xE8], self.ram[0x6D], self.ram[0x86] = area % 256, area // 256, x // 256, x % 256

    def progress(self, area: int, *path: int) -> int:
        """Pixels of progress that are paid for walking through the points of `path`, 5 pixels a frame."""
        paid, x = 0, path[0]
        for end in path:
            while True:
                self.place(area, x)
                rules.begin_step(self.book)
                rules.observe(self.ram, self.book, False, False)
                paid += int(self.book[rules.STEP_PROGRESS])
                if x == end:
                    break
                x += max(-5, min(5, end - x))
        return paid


def test_an_area_that_was_left_through_a_pipe_is_paid_beyond_its_furthest_point_only() -> None:
    walker = Walker()
    assert walker.progress(0xA000, 40, 500, 300) == 460
    assert walker.progress(0xB000, 20, 120) == 100  # through a pipe, not paid itself
    assert walker.progress(0xA000, 100, 480) == 0
    assert walker.progress(0xA000, 480, 540) == 40
    assert walker.progress(0xB000, 20, 130) == 10
    assert walker.progress(0xA000, 900, 930) == 30  # a pipe that leads ahead
    assert walker.progress(0xA000, 100, 930) == 0  # and one within the area that leads back


def test_after_a_lost_life_and_in_the_next_stage_everything_is_paid_again() -> None:
    for address in (0x075A, 0x075C, 0x075F):  # lives, stage, world
        walker = Walker()
        assert walker.progress(0xA000, 40, 500) == 460
        walker.ram[address] += 1
        assert walker.progress(0xA000, 40, 500) == 460


def test_the_furthest_place_is_that_of_the_last_stage_whatever_lives_were_lost() -> None:
    for address, furthest in ((0x075A, 500), (0x075C, 300), (0x075F, 300)):  # lives, stage, world
        walker = Walker()
        walker.progress(0xA000, 40, 500)
        walker.ram[address] += 1
        walker.progress(0xA000, 40, 300)
        assert walker.book[rules.FURTHEST] == furthest


def test_what_lies_left_of_the_start_is_not_far() -> None:
    walker = Walker()
    assert walker.progress(0xA000, 40, 300) == 260
    assert walker.progress(0xA000, 65_530) == 0
    assert walker.progress(0xA000, 4, 310) == 10
    assert walker.book[rules.FURTHEST] == 310
