"""Super Mario Bros: the same on both consoles; its episodes, starts and pictures."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.config.capabilities import A
from engine.console.cartridge import installed_mario
from engine.console.nes import FRAME_CYCLES, NesBatch, shorten_frame
from engine.console.nes.layout import PICTURE_DOTS, POSITION
from engine.console.protocol import Emulator
from engine.console.view import VIEWS, View
from engine.envs.lanes import FrameStack, VectorStep
from engine.errors import UserError
from engine.evaluation.policy import greedy_act, load_policy
from engine.games.mario.actions import STAGES, has_halfway
from engine.games.mario.lanes import LaneState, MarioLanes, MarioStep, make_emulator, stage_starts
from engine.games.mario.reference_stepper import ReferenceStepper
from engine.games.mario.rules import (
    BUTTONS,
    FURTHEST,
    HALFWAY_PAGE,
    INFO_NAMES,
    LIVES,
    MAX_SCENE_FRAMES,
    PLAYER_STATE,
    STAGE,
    WORLD,
    draw,
    phase_value,
    stands,
    stream,
    where,
)
from engine.games.mario.task import MarioTask
from engine.runs.lookup import find_policy
from tests.support.games.mario import RIGHT_B

ARRAYS = ("frames", "rewards", "terminated", "truncated", "returns", "lengths", "results", "success", "info")

# ---------------------------------------------------------------------------------- the same on every console


def stepped(task: MarioTask, lanes: int, seed: int) -> MarioLanes:
    """Lanes on the native console, stepped by the reference stepper in Python."""
    env = MarioLanes(task, lanes, seed=seed)
    starts = stage_starts("native", task.stages, whole_game=task.stage == "game")
    if task.halfway_starts:
        starts += stage_starts("native", task.stages, halfway=True)
    choices = env._stepper.start_choices
    env._stepper = ReferenceStepper(env.emulator, task, env.book, starts, restart=True)
    env._stepper.start_choices = choices
    return env


def assert_equal_play(one: MarioLanes, other: MarioLanes, steps: int) -> int:
    """Play held random actions in both and compare every step; returns the number of episodes that ended."""
    random, ended = np.random.default_rng(1), 0
    assert np.array_equal(one.reset(), other.reset())
    for step in range(steps):
        if step % 3 == 0:
            actions = random.integers(0, one.actions, one.lanes)
        first, second = one.step(actions), other.step(actions)
        for name in (*ARRAYS, "game_frames"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), (step, name)
        over = first.terminated | first.truncated
        assert np.array_equal(first.final_frames[over], second.final_frames[over])
        ended += int(over.sum())
    return ended


@pytest.mark.parametrize(
    "task",
    [
        MarioTask(),
        MarioTask(stage="random", actions="complex", sticky=0.25, view=VIEWS["84x84"], stall_steps=40),
        MarioTask(stage="game", actions="simple", stall_steps=25, frame_skip=3, sticky=0.25, noop_min=7),
        MarioTask(stage="8-4", view=View(16, 240, 0, 256, 61, 77), reward="classic"),
        MarioTask(stage="2-2", swim_strokes=True, sticky=0.25, stall_steps=3),
        MarioTask(stage="1-2", actions="simple", sticky=0.5, sticky_frames=False, stall_steps=8),
        MarioTask(stage="3-4", random_phase=True, usual_ends=0.5, sticky=0.25, noop_min=3, noop_max=9, stall_steps=20),
        MarioTask(stage="4-3", halfway_starts=0.5, stall_steps=20),
    ],
    ids=lambda task: task.stage,
)
def test_compiled_and_reference_steppers_are_equal(task: MarioTask) -> None:
    assert assert_equal_play(MarioLanes(task, 3, seed=5), stepped(task, 3, 5), 150) > 0


@pytest.mark.parametrize(
    "stage", ["1-1", "1-4", *(pytest.param(stage, marks=pytest.mark.long) for stage in ("2-2", "4-4"))]
)
def test_nes_py_plays_the_same_game(stage: str) -> None:
    task = MarioTask(stage=stage, actions="simple", swim_strokes=True, sticky=0.25, stall_steps=10)
    native, nes_py = (MarioLanes(task, 2, seed=6, threads=2, emulator=name) for name in ("native", "nes-py"))
    assert assert_equal_play(native, nes_py, 110) > 0


@pytest.mark.parametrize("name", ["", "nes_py", None, ["native"], 10**400])
def test_another_emulator_is_refused(name: Any) -> None:
    """A policy file names its emulator."""
    with pytest.raises(UserError, match="emulator must be one of native, nes-py, got"):
        MarioLanes(MarioTask(), 1, emulator=name)


def test_lanes_and_threads_do_not_change_a_game() -> None:
    random = np.random.default_rng(0)
    many, alone = MarioLanes(MarioTask(), 13, threads=3, seed=2), MarioLanes(MarioTask(), 3, seed=2)
    assert np.array_equal(many.reset()[:3], alone.reset())
    for _ in range(80):
        actions = random.integers(0, many.actions, 13)
        first, second = many.step(actions), alone.step(actions[:3])
        assert all(np.array_equal(getattr(first, name)[:3], getattr(second, name)) for name in ARRAYS)


# ---------------------------------------------------------------------------------- episodes


def run_until(env: MarioLanes, action: int, condition: str) -> VectorStep:
    while True:
        step = env.step(np.full(env.lanes, action))
        if getattr(step, condition).any():
            return step


def test_random_starts_differ_and_depend_on_the_seed_alone() -> None:
    def counters(seed: int) -> list[int]:
        env = MarioLanes(MarioTask(), 8, seed=seed)
        env.reset()
        return list(env.emulator.ram[:, 0x09])  # the game's frame counter

    assert counters(1) == counters(1) != counters(2)
    assert len(set(counters(1))) > 3


def test_episodes_begin_in_any_phase_of_the_game() -> None:
    """As the game itself has it: bits that never are all 0 and a counter that ends after 18 frames."""
    env = MarioLanes(MarioTask(random_phase=True, noop_max=0), 300, seed=3)
    env.reset()
    ram = env.emulator.ram
    assert len(np.unique(ram[:, 0x09])) > 150
    assert np.array_equal(np.unique(ram[:, 0x077F]), np.arange(18))
    bits = ram[:, 0x07A7:0x07AE]
    assert len(np.unique(bits, axis=0)) == 300
    assert abs(np.unpackbits(bits).mean() - 0.5) < 0.03
    assert phase_value(2, 0) > 0  # the newest bits, from which the next ones come


@pytest.mark.parametrize(("stage", "share"), [("1-1", 0.0), ("4-3", 0.455), ("8-4", 1.008)])
def test_frames_end_where_they_do_at_a_stage_of_the_whole_game(stage: str, share: float) -> None:
    """From 2 % of a picture before to 13 % after, each place as often."""
    lanes = MarioLanes(MarioTask(stage=stage, random_phase=True, noop_max=0), 400, seed=3)
    assert isinstance(lanes.emulator, NesBatch)
    lanes.reset()
    ends = (lanes.emulator.state[:, POSITION] / PICTURE_DOTS - share + 0.5) % 1 - 0.5
    assert -0.021 < ends.min() < -0.015 and 0.125 < ends.max() < 0.132
    assert abs(ends.mean() - 0.055) < 0.01


def test_a_share_of_the_frames_ends_where_it_does_anyway() -> None:
    def ends(usual_ends: float) -> NDArray[np.int64]:
        task = MarioTask(stage="4-3", random_phase=True, usual_ends=usual_ends, noop_max=0)
        lanes = MarioLanes(task, 400, seed=3)
        assert isinstance(lanes.emulator, NesBatch)
        lanes.reset()
        return lanes.emulator.state[:, POSITION] // 3

    moved, some, usual = ends(0), ends(0.25), ends(1)
    assert len(np.unique(usual)) == 1
    assert 0.2 < (some == usual).mean() < 0.3
    assert np.array_equal(some[some != usual], moved[some != usual])


@pytest.mark.parametrize("stage", STAGES)
def test_episodes_begin_halfway_where_the_game_goes_on_after_a_death(stage: str) -> None:
    if not has_halfway(stage):
        with pytest.raises(UserError, match=r"^halfway_starts must be at least 0 .* got 1$"):
            MarioTask(stage=stage, halfway_starts=1)
        return
    halfway = MarioLanes(MarioTask(stage=stage, halfway_starts=1, noop_max=0, frame_skip=1), 1)
    game = MarioLanes(MarioTask(stage="game", noop_max=0, frame_skip=1), 1)
    halfway.reset()
    game.reset()
    begins = where(halfway.emulator.ram)
    assert int(begins[2][0]) > 1000
    game.load_lane(0, halfway.lane_state(0))
    for address, value in ((HALFWAY_PAGE, 0), (0x00B5, 2)):  # the game decides anew when Mario has fallen
        game.emulator.poke(0, address, value)
    lives = int(game.emulator.ram[0, LIVES])
    while int(game.emulator.ram[0, LIVES]) == lives or not stands(game.emulator.ram)[0]:
        game.step_buttons(np.zeros(1, np.uint8))
    assert where(game.emulator.ram) == begins


@pytest.mark.parametrize(("share", "halfway"), [(0.0, 0), (0.25, 50), (1.0, 200)])
def test_a_share_of_the_episodes_begins_halfway(share: float, halfway: int) -> None:
    """In training at random, in evaluations exactly."""
    task = MarioTask(stage="1-1,1-4,2-3", halfway_starts=share, noop_max=0)
    for stage_per_lane in (False, True):
        env = MarioLanes(task, 300, seed=2, stage_per_lane=stage_per_lane)
        env.reset()
        stages, _, x = where(env.emulator.ram)
        far = x > 1000
        assert not far[stages == STAGES.index("1-4")].any()
        assert {stage: int((stages == STAGES.index(stage)).sum()) > 70 for stage in task.stages}
        assert abs(int(far.sum()) - halfway) <= (0 if stage_per_lane else 30 * (share > 0))
        assert env.step(np.zeros(300, np.int64)).from_start.all()
        if stage_per_lane:
            assert [env.task_of(lane) for lane in range(6)] == [*task.stages, *task.stages]
    few = MarioLanes(dataclasses.replace(task, stage="1-1", noop_max=3), 8, seed=2, stage_per_lane=True)
    few.spread_starts()
    few.reset()
    kinds = np.unique(np.stack((where(few.emulator.ram)[2] > 1000, few.emulator.ram[:, 0x09])), axis=1)
    assert kinds.shape[1] >= min(8, 4 + round(8 * share) if share < 1 else 4)


def test_a_cartridge_of_ones_own_has_halfway_starts(tmp_path: Path) -> None:
    rom = tmp_path / "mine.nes"
    rom.write_bytes(installed_mario().read_bytes())
    env = MarioLanes(MarioTask(stage="4-2", halfway_starts=1, noop_max=0), 1, rom=rom)
    env.reset()
    assert int(where(env.emulator.ram)[2][0]) == 1576


def test_random_draws_are_even() -> None:
    draws = np.array([draw(stream(seed, lane), count) for seed in (0, 1) for lane in range(40) for count in range(200)])
    counts = np.bincount(draws % 31, minlength=31)
    expected = draws.size / 31
    assert ((counts - expected) ** 2 / expected).sum() < 30 + 4 * 60**0.5  # four standard deviations
    assert len(np.unique(draws)) > 0.999 * draws.size


def test_under_water_every_step_with_a_is_a_stroke_and_on_land_nothing_changes() -> None:
    def heights(stage: str, swim_strokes: bool) -> list[int]:
        env = MarioLanes(MarioTask(stage=stage, actions="A", noop_max=0, swim_strokes=swim_strokes), 1)
        env.reset()
        return [int(env.step(np.zeros(1, np.int64)).info[0, INFO_NAMES.index("y_pos")]) for _ in range(60)]

    surface, ground = max(heights("2-2", True)), min(heights("2-2", False))
    assert heights("2-2", True)[-10:] == pytest.approx([surface] * 10, abs=16)
    assert heights("2-2", False)[-10:] == [ground] * 10
    assert surface - ground > 100
    assert heights("1-1", True) == heights("1-1", False)


@pytest.mark.parametrize(("sticky_frames", "share"), [(True, 0.5**4), (False, 0.5)])
def test_sticky_actions_repeat_the_last_one(sticky_frames: bool, share: float) -> None:
    env = MarioLanes(MarioTask(sticky=0.5, sticky_frames=sticky_frames, stall_steps=0), 400, seed=1)
    env.reset()
    env.step(np.zeros(400, np.int64))
    env.step(np.full(400, RIGHT_B))
    repeated = (env.book[:, BUTTONS] == 0).mean()
    assert abs(repeated - share) < 4 * (share * (1 - share) / 400) ** 0.5


def test_actions_are_sticky_in_each_frame() -> None:
    """A step of four frames is four steps of one frame."""
    whole, frames = (
        MarioLanes(MarioTask(sticky=0.25, frame_skip=skip, stall_steps=0), 8, seed=1, restart=False) for skip in (4, 1)
    )
    random = np.random.default_rng(0)
    whole.reset()
    frames.reset()
    for _ in range(20):
        actions = random.integers(0, whole.actions, 8)
        whole.step(actions)
        for _ in range(4):
            frames.step(actions)
        assert np.array_equal(whole.emulator.ram, frames.emulator.ram)


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_the_last_frame_of_a_truncated_episode_has_the_mark_of_the_held_button(emulator: str) -> None:
    task = MarioTask(actions="noop,A", sticky=0.5, stall_steps=3)
    goes_on, stands = (MarioLanes(task, 8, emulator=emulator, seed=1, restart=restart) for restart in (True, False))
    goes_on.reset()
    stands.reset()
    for step in range(3):  # up to the end of all first episodes both draw the same numbers
        intended = (np.arange(8) + step) % 2
        last, stood = goes_on.step(intended), stands.step(intended)
    assert last.truncated.all() and stood.truncated.all()
    held = stands.book[:, BUTTONS] & A != 0  # a lane that waits keeps the buttons in its book
    assert (held != (intended == 1)).any()  # in some lane the previous action was repeated
    for frames in (last.final_frames, stood.final_frames, stood.frames):
        assert np.array_equal(frames[:, 0, 0] == 255, held)


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_standing_still_is_truncated_and_not_terminated(emulator: str) -> None:
    env = MarioLanes(MarioTask(stall_steps=20), 1, emulator=emulator)
    env.reset()
    step = run_until(env, 0, "truncated")
    assert not step.terminated[0]
    assert step.lengths[0] == 20


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_final_picture_is_kept_and_the_next_is_a_new_start(emulator: str) -> None:
    env = MarioLanes(MarioTask(noop_max=0), 1, emulator=emulator)
    start = env.reset()
    step = run_until(env, RIGHT_B, "terminated")
    assert np.array_equal(step.frames, start)
    assert not np.array_equal(step.final_frames, step.frames)
    assert step.returns[0] > 100
    assert step.rewards[0] == -1  # -25 for the death, clipped to -15 and scaled
    assert env.step(np.array([0])).lengths[0] == 1


def clear_by_search(env: MarioLanes, random: np.random.Generator) -> tuple[MarioStep, int]:
    """Search for a clear by random actions from saved states: continue from the furthest survivor, and after failures
    from an earlier state. Returns the step and the lane of a clear."""
    console, reached, failures = env.emulator, [(0, env.emulator.save(0))], 0
    for _ in range(600):
        start_x, start = reached[-1]
        for lane in range(env.lanes):
            console.load(lane, start)
        held, left = np.zeros((2, env.lanes), np.int64)
        alive = np.ones(env.lanes, np.bool_)
        for _ in range(20):
            held = np.where(left == 0, random.choice([0, 1, 3, 3, 4, 4, 4], env.lanes), held)
            left = np.where(left == 0, random.integers(1, 9, env.lanes), left) - 1
            step = env.step(held)
            alive &= ~(step.terminated | step.truncated)
            if step.success.any():
                return step, int(np.flatnonzero(step.success)[0])
        xs = np.where(alive, step.info[:, INFO_NAMES.index("x_pos")], -1)
        best = int(xs.argmax())
        if xs[best] > start_x + 24:
            reached.append((int(xs[best]), console.save(best)))
            failures = max(0, failures - 1)
        else:
            failures += 1
            del reached[max(1, len(reached) - failures) :]
    raise AssertionError("the search found no way to the flag")


def test_reaching_the_flag_ends_the_episode_with_the_bonus() -> None:
    env = MarioLanes(MarioTask(noop_max=0, stall_steps=0), 48, threads=2)
    env.reset()
    step, lane = clear_by_search(env, np.random.default_rng(0))
    assert step.terminated[lane]
    assert 2 <= step.rewards[lane] <= 4
    info = dict(zip(INFO_NAMES, step.info[lane].tolist(), strict=True))
    assert (info["flag_get"], info["world"], info["stage"]) == (1, 1, 1)
    assert info["x_pos"] > 3100
    assert step.lengths[lane] > 0


@functools.cache
def before_the_flag() -> tuple[LaneState, list[int]]:
    """A state shortly before the flag of 1-1, and the actions of a policy from there to the flag."""
    env = MarioLanes(MarioTask(noop_max=0, view=VIEWS["50x60"]), 1)
    act = greedy_act(load_policy(find_policy("mario-1-1", None)))
    stack = FrameStack(env.reset(), env.spec.stack)
    actions: list[int] = []
    cleared = False
    while not cleared:
        if env.book[0, FURTHEST] < 3080:
            state, actions = env.lane_state(0), []
        actions.append(int(act(stack.obs, None)[0]))
        step = env.step(np.array(actions[-1:]))
        stack.push(step.frames, np.zeros(1, np.bool_))
        cleared = bool(step.success[0])
    return state, actions


def to_the_flag(lanes: int, prepare: Callable[[NesBatch, int], object]) -> tuple[NesBatch, NDArray[np.bool_]]:
    """Play these actions in lanes that were prepared otherwise. Returns the console, where a clear's lane stays in
    front of the flag, and which lanes cleared the stage."""
    state, actions = before_the_flag()
    env = MarioLanes(MarioTask(noop_max=0), lanes, restart=False)
    console = env.emulator
    assert isinstance(console, NesBatch)
    for lane in range(lanes):
        env.load_lane(lane, state)
        prepare(console, lane)
    console.step(np.zeros(lanes, np.uint8))
    reached, over = np.zeros((2, lanes), np.bool_)
    at_flag: dict[int, LaneState] = {}
    for action in (*actions, *[4] * 20):  # a frame later Mario may touch the pole after them
        step = env.step(np.full(lanes, action))
        ended = step.terminated | step.truncated
        at_flag |= {lane: env.lane_state(lane) for lane in np.flatnonzero(ended & ~over).tolist()}
        reached |= step.success & ~over
        over |= ended
    for lane, there in at_flag.items():
        env.load_lane(lane, there)
    return console, reached


def test_the_flag_counts_wherever_a_frame_ends() -> None:
    lanes = 120
    _, cleared = to_the_flag(
        lanes, lambda console, lane: shorten_frame(console.state[lane], lane * FRAME_CYCLES // lanes)
    )
    assert cleared.all()


def test_a_flag_at_which_mario_will_hang_does_not_count() -> None:
    """Where the screen's right edge stops him before he steps down, the game never goes on."""
    lanes = 120

    def put_mario(console: NesBatch, lane: int) -> None:
        left = int(where(console.ram[lane : lane + 1])[2][0]) - 121 - lane
        for page, x in ((0x071A, left), (0x071B, left + 255)):
            console.poke(lane, page, x >> 8)
            console.poke(lane, page + 2, x & 0xFF)
        shorten_frame(console.state[lane], lane * 7919 % FRAME_CYCLES)

    console, cleared = to_the_flag(lanes, put_mario)
    goes_on = np.zeros(lanes, np.bool_)
    for _ in range(1500):
        console.step(np.zeros(lanes, np.uint8))
        goes_on |= console.ram[:, STAGE] == 1
    assert np.array_equal(cleared, goes_on)
    assert 5 < cleared.sum() < lanes - 5


@pytest.mark.parametrize("restart", [True, False])
def test_an_episode_that_never_gives_control_back_is_truncated(restart: bool) -> None:
    steps: list[list[MarioStep]] = []
    for emulator in ("native", "nes-py"):
        env = MarioLanes(MarioTask(noop_max=0, stall_steps=0), 1, emulator=emulator, restart=restart)
        env.reset()
        env.emulator.poke(0, PLAYER_STATE, 5)  # he walks from the flag to the castle, but there is none
        steps.append([env.step(np.array([1])) for _ in range(3)])
    native = steps[0]
    assert [bool(step.truncated[0]) for step in native] == [True, not restart, not restart]
    assert not any(step.terminated[0] for step in native)
    assert native[0].game_frames > MAX_SCENE_FRAMES
    assert native[2].game_frames <= 4, "nothing waits again for what never comes"
    for one, other in zip(*steps, strict=True):
        for name in (*ARRAYS, "game_frames"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_the_game_ends_with_the_last_world(emulator: str) -> None:
    """After it the game waits for a button, and its clock never moves again."""
    env = MarioLanes(MarioTask(stage="game"), 1, emulator=emulator)
    env.reset()
    for _ in range(10):
        assert not env.step(np.array([0])).terminated[0]
    env.emulator.poke(0, WORLD, 7)
    env.emulator.poke(0, 0x0770, 2)  # the mode after Bowser
    step = env.step(np.array([0]))
    assert step.terminated[0] and step.success[0]
    assert env.step(np.array([0])).info[0, INFO_NAMES.index("world")] == 1


@pytest.mark.parametrize("stage", ["1-2", "4-4", "8-1"])
def test_stages_start_where_they_should(stage: str) -> None:
    env = MarioLanes(MarioTask(stage=stage), 1)
    env.reset()
    info = dict(zip(INFO_NAMES, env.step(np.array([0])).info[0].tolist(), strict=True))
    assert f"{info['world']}-{info['stage']}" == stage
    assert (info["life"], info["score"], info["coins"]) == (2, 0, 0)


def test_random_stages_visit_many() -> None:
    env = MarioLanes(MarioTask(stage="random"), 40, seed=3)
    env.reset()
    step = env.step(np.zeros(40, np.int64))
    visited = {(world, stage) for world, stage in step.info[:, [INFO_NAMES.index("world"), INFO_NAMES.index("stage")]]}
    assert len(visited) > 15


# ---------------------------------------------------------------------------------- pictures and states


@pytest.mark.parametrize(
    "view", [*VIEWS.values(), View(8, 200, 3, 251, 31, 62)], ids=lambda view: f"{view.shape} {view.brightness}"
)
@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_picture_is_the_area_mean_of_the_screen(emulator: str, view: View) -> None:
    env = MarioLanes(MarioTask(view=view), 1, emulator=emulator)
    env.reset()
    frames = env.step(np.array([RIGHT_B])).frames
    weights = {"gray": [0.299, 0.587, 0.114], "red": [0.7, 0.3, 0.0]}[view.brightness]
    brightness = env.emulator.screen(0).astype(float) @ weights

    def means(values: np.ndarray, first: int, last: int, cells: int) -> np.ndarray:
        """Means over the first axis, in which pixels have the weight of their overlap with a cell."""
        borders = first + np.arange(cells + 1) * (last - first) / cells
        integral = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
        whole = borders.astype(int)
        at = integral[whole] + (borders - whole)[:, None] * np.vstack([values, values[-1:]])[whole]
        return np.diff(at, axis=0) / ((last - first) / cells)

    expected = means(means(brightness, view.top, view.bottom, view.height).T, view.left, view.right, view.width).T
    expected[: view.mark, : view.mark] = 0
    assert np.abs(frames[0] - expected).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("name", ["native", "nes-py"])
def test_a_saved_state_continues_as_the_original_in_any_lane(name: str) -> None:
    emulator: Emulator = make_emulator(name, 2, 1)
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
    for lane in (0, 1):
        emulator.load(lane, state)
        assert continued(lane) == first
    with pytest.raises(ValueError, match="not a saved state"):
        emulator.load(1, b"\x07")


# ---------------------------------------------------------------------------------- what is not accepted


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"stage": "9-1"}, "stage: must be 1-1 to 8-4, game, random"),
        ({"reward": "x"}, "reward must be one of progress, classic, got 'x'"),
        ({"actions": "right,jump"}, "actions must be one of right-only, simple, complex, or a list such as"),
        ({"frame_skip": 0}, "frame_skip must be between 1 and 60, got 0"),
        ({"noop_min": -1}, "noop_min must be at least 0, got -1"),
        ({"noop_min": 31}, "noop_max must be at least noop_min (31), got 30"),
        ({"actions": [["right"]]}, "actions must be a string such as 'right-only', got [['right']]"),
        ({"frame_skip": "4"}, "frame_skip must be an integer such as 4, got '4'"),
        ({"view": "84x84"}, "view must be a View such as View(top=32,"),
    ],
)
def test_an_impossible_task_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        MarioTask(**options)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("emulator", ["native", "nes-py"])
def test_arrays_of_another_length_are_refused(emulator: str) -> None:
    lanes = MarioLanes(MarioTask(), 8, emulator=emulator)
    lanes.reset()
    for wrong in (3, 9, (8, 1)):
        with pytest.raises(ValueError, match="an action for each of 8 lanes"):
            lanes.step(np.zeros(wrong, np.int64))
        with pytest.raises(ValueError, match=r"which must be bool \(8,\)"):
            lanes.reset(np.ones(wrong, np.bool_))
    with pytest.raises(ValueError, match=r"which must be bool \(8,\), got int64"):
        lanes.reset(np.ones(8, np.int64))
    lanes.close()


@pytest.mark.parametrize(
    ("view", "complaint"),
    [
        ((0, 300, 0, 256, 84, 84), "rows top to bottom must be a part of 0 to 240, got 0 to 300"),
        ((-8, 240, 0, 256, 84, 84), "rows top to bottom must be a part of 0 to 240, got -8 to 240"),
        ((0, 240, 9, 9, 84, 84), "columns left to right must be a part of 0 to 256, got 9 to 9"),
        ((0, 240, 0, 256, 0, 84), "height and width must be at least 1"),
        ((0, 240, 0, 256, 84, 84, 8, "blue"), "brightness must be one of gray, red, got 'blue'"),
    ],
)
def test_a_view_of_more_than_the_screen_is_refused(view: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        View(*view)


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_a_file_that_is_no_cartridge_is_refused(emulator: str, tmp_path: Path) -> None:
    rom = tmp_path / "game.nes"
    rom.write_bytes(b"NES\x1a" + bytes(12))
    with pytest.raises(UserError, match=r"game\.nes: has 0 program banks"):
        MarioLanes(MarioTask(), 1, emulator=emulator, rom=rom)


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_spread_starts_cover_all_numbers_of_no_ops(emulator: str) -> None:
    env = MarioLanes(MarioTask(noop_max=5), 8, emulator=emulator, seed=3)
    env.spread_starts()
    for _ in range(2):
        env.reset()
        frame_counters = env.emulator.ram[:, 0x09].astype(int)
        assert (frame_counters - frame_counters[0]).tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
        env.rewind()
    late = MarioLanes(MarioTask(noop_min=4, noop_max=6), 3, emulator=emulator, seed=3)
    late.spread_starts()
    late.reset()
    assert (late.emulator.ram[:, 0x09].astype(int) - frame_counters[0]).tolist() == [4, 5, 6]
    few = MarioLanes(MarioTask(noop_min=3, noop_max=12), 4, emulator=emulator, seed=3)
    few.spread_starts()
    few.reset()
    assert (few.emulator.ram[:, 0x09].astype(int) - frame_counters[0]).tolist() == [3, 5, 8, 10]  # of ten starts
    for lanes in (env, late, few):
        lanes.close()


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [
        (12, {"1-1": [0, 1, 2, 3, 4, 5], "1-2": [0, 1, 2, 3, 4, 5]}),
        (16, {"1-1": [0, 0, 1, 1, 2, 3, 4, 5], "1-2": [0, 0, 1, 1, 2, 3, 4, 5]}),
        (6, {"1-1": [0, 2, 4], "1-2": [1, 3, 5]}),
    ],
)
def test_spread_starts_cover_all_numbers_of_no_ops_of_every_stage(lanes: int, expected: dict[str, list[int]]) -> None:
    env = MarioLanes(MarioTask(stage="1-1,1-2", noop_max=5), lanes, seed=3, stage_per_lane=True)
    none = MarioLanes(MarioTask(stage="1-1,1-2", noop_max=0), 2, stage_per_lane=True)
    none.reset()
    begins = {none.task_of(lane): int(none.emulator.ram[lane, 0x09]) for lane in range(2)}
    env.spread_starts()
    env.reset()
    found: dict[str, list[int]] = {stage: [] for stage in begins}
    for lane in range(lanes):
        stage = env.task_of(lane)
        found[stage].append(int(env.emulator.ram[lane, 0x09]) - begins[stage])
    assert {stage: sorted(each) for stage, each in found.items()} == expected
    for each in (env, none):
        each.close()


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_the_small_view_shows_whether_a_is_held(emulator: str) -> None:
    """Each lane holds another action; no episode ends meanwhile."""
    env = MarioLanes(MarioTask(actions="noop,right+A,A", noop_max=0), 3, emulator=emulator)
    assert not env.reset()[:, :8, :8].any()
    step = env.step(np.array([0, 1, 2]))
    assert [np.unique(frame[:8, :8]).tolist() for frame in step.frames] == [[0], [255], [255]]
    assert [np.unique(frame[:8, :8]).tolist() for frame in env.step(np.array([1, 1, 0])).frames] == [[255], [255], [0]]
    assert not env.reset(np.array([True, True, True]))[:, :8, :8].any()
    env.close()


def test_the_whole_screen_has_no_mark() -> None:
    env = MarioLanes(MarioTask(actions="noop,A", noop_max=0, view=VIEWS["84x84"]), 1)
    blue = env.reset()[0, 20, 40]
    assert env.step(np.array([1])).frames[0, 20, 40] == blue
    assert VIEWS["84x84"].mark == 0
    env.close()
