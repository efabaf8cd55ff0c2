"""Episodes that begin at states which earlier ones reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.config.fields import ConfigError
from engine.config.run_config import RunConfig
from engine.console.nes import NesBatch
from engine.envs.episode import ended_episodes
from engine.envs.factory import make_lanes
from engine.envs.lanes import VectorStep
from engine.games.mario import rules
from engine.games.mario.lanes import MarioLanes, stage_starts
from engine.games.mario.reference_stepper import ReferenceStepper
from engine.games.mario.start_states import StartStates, place_of
from engine.games.mario.task import MarioTask

TASK = MarioTask(stage="1-1", stall_steps=60, noop_max=4)


def lanes(share: float = 0.5, seed: int = 4, count: int = 8, task: MarioTask = TASK) -> MarioLanes:
    return MarioLanes(task, count, seed=seed, start_states=share)


def walk(env: MarioLanes, steps: int, seed: int = 0) -> Iterator[VectorStep]:
    """Held random actions, mostly to the right."""
    random = np.random.default_rng(seed)
    for step in range(steps):
        if step % 5 == 0:
            actions = random.choice([1, 2, 3, 4], env.lanes, p=[0.2, 0.2, 0.2, 0.4])
        yield env.step(actions)


def play(env: MarioLanes, steps: int) -> None:
    for _ in walk(env, steps):
        pass


def starts(env: MarioLanes) -> NDArray[np.int64]:
    return env.book[:, rules.START]


def test_half_of_the_episodes_begin_where_earlier_ones_were_and_half_at_the_start() -> None:
    env, begun, begun_at = lanes(), [0, 0], set[int]()
    env.reset()
    assert (starts(env) == 0).all()
    for step in walk(env, 700):
        assert step.from_start.dtype == np.bool_
        ended = step.terminated | step.truncated
        for lane in np.flatnonzero(ended).tolist():
            begun[int(starts(env)[lane] > 0)] += 1
            begun_at.add(int(env.book[lane, rules.LAST_X]) // 64)
            assert env.book[lane, rules.BEST_X] == env.book[lane, rules.LAST_X]  # the way so far is not paid
    assert min(begun) > 0.25 * sum(begun)
    assert len(begun_at) > 4


def test_episodes_from_stored_states_are_not_counted() -> None:
    env = lanes()
    env.reset()
    counted = left_out = 0
    before = starts(env).copy()
    for step in walk(env, 500):
        ended = step.terminated | step.truncated
        records = {record.lane for record in ended_episodes(step)}
        assert records == set(np.flatnonzero(ended & (before == 0)).tolist())
        counted, left_out = counted + len(records), left_out + int(ended.sum()) - len(records)
        before = starts(env).copy()
    assert counted > 0 and left_out > 0


def test_compiled_and_reference_steppers_begin_at_the_same_states() -> None:
    one, other = lanes(count=4), lanes(count=4)
    console = other.emulator
    assert isinstance(console, NesBatch)
    stepper = ReferenceStepper(
        console, TASK, other.book, stage_starts("native", TASK.stages, whole_game=False), restart=True
    )
    other._stepper = stepper
    other._own_starts = StartStates(console, stepper, first=1, reached=0.5, guided=0.0, seed=4)
    assert np.array_equal(one.reset(), other.reset())
    from_stored = 0
    for first, second in zip(walk(one, 350), walk(other, 350), strict=True):
        for name in ("frames", "rewards", "terminated", "truncated", "from_start"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), name
        from_stored += int((~first.from_start).sum())
    assert from_stored > 0


def test_saved_lanes_continue_with_the_same_states() -> None:
    env = lanes()
    env.reset()
    play(env, 400)
    saved = env.state()
    again = lanes()
    again.reset()
    play(again, 33)
    again.load_state(saved)
    from_stored = 0
    for first, second in zip(walk(env, 200, 1), walk(again, 200, 1), strict=True):
        assert np.array_equal(first.frames, second.frames)
        assert np.array_equal(first.from_start, second.from_start)
        from_stored += int((~first.from_start).sum())
    assert from_stored > 0
    assert {name: array.tobytes() for name, array in env.state().items()} == {
        name: array.tobytes() for name, array in again.state().items()
    }


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.0), (0.0, 0.5), (0.5, 0.25)])
def test_saved_lanes_continue_with_another_share_of_halfway_starts(before: float, after: float) -> None:
    env = lanes(task=dataclasses.replace(TASK, halfway_starts=before))
    env.reset()
    play(env, 400)
    own, saved = env._own_starts, env.state()
    assert own is not None and own._places
    if not before:
        del saved["true_starts"]  # as in earlier versions
    again = lanes(task=dataclasses.replace(TASK, halfway_starts=after))
    again.load_state(saved)
    continued = again._own_starts
    assert continued is not None and [*continued._places.items()] == [*own._places.items()]
    assert np.array_equal(env.book[:, rules.START] < env._true_starts, again.book[:, rules.START] < again._true_starts)
    play(again, 100)
    assert again._stepper.start_choices.max() < again._true_starts + len(continued._places)


def test_states_before_places_where_many_die_are_drawn_more_often() -> None:
    env = lanes()
    env.reset()
    play(env, 400)
    own = env._own_starts
    assert own is not None
    places = [*own._places]
    hard = sorted(places)[len(places) // 2]
    own._deaths[:], own._died = hard, own._deaths.size
    weights = dict(zip(places, own._weights(np.array(places)).tolist(), strict=True))
    before = [place for place in places if hard - 5 <= place <= hard]
    assert min(weights[place] for place in before) > 100 * max(weights[p] for p in places if p not in before)


def on_a_way(guided: float, reached: float = 0.0) -> MarioLanes:
    """Lanes that know states of a way, and then have played for a while."""
    env = MarioLanes(TASK, 8, seed=4, start_states=reached, guided=guided)
    env.reset()
    one = MarioLanes(TASK, 1, seed=4)
    one.reset()
    states = dict[int, bytes]()
    for _ in range(20):
        one.step(np.array([3]))
        states[int(place_of(one.emulator.ram)[0])] = one.emulator.save(0)
    assert len(states) > 2 and not env.has_ways
    env.begin_on_ways(states)
    assert env.has_ways
    play(env, 400)
    return env


@pytest.mark.parametrize(("guided", "reached"), [(0.5, 0.0), (0.3, 0.2)])
def test_episodes_begin_on_a_way_and_where_earlier_ones_were_as_often_as_asked(guided: float, reached: float) -> None:
    env = on_a_way(guided, reached)
    own = env._own_starts
    assert own is not None
    choices, keys = env._stepper.start_choices[0], [0, *own._places]  # the stage's own start is the first
    on_way = np.array([keys[choice] < 0 for choice in choices])
    assert np.isclose(on_way.mean(), guided, atol=0.02)
    assert np.isclose((choices == 0).mean(), 1 - guided - reached, atol=0.02)
    assert any(key > 0 for key in keys) == (reached > 0)
    from_way = sum(int((~step.from_start).sum()) for step in walk(env, 100))
    assert from_way > 0


def test_saved_lanes_continue_on_a_way() -> None:
    env = on_a_way(0.3, 0.2)
    again = MarioLanes(TASK, 8, seed=4, start_states=0.2, guided=0.3)
    again.load_state(env.state())
    assert again.has_ways
    from_way = 0
    for first, second in zip(walk(env, 200, 1), walk(again, 200, 1), strict=True):
        assert np.array_equal(first.frames, second.frames)
        from_way += int((~first.from_start).sum())
    assert from_way > 0
    without = MarioLanes(TASK, 8, seed=4, start_states=0.2)
    without.load_state(env.state())
    play(without, 16)
    own = without._own_starts
    assert own is not None
    ways = {1 + row for row, key in enumerate(own._places) if key < 0}
    assert ways and not ways & set(without._stepper.start_choices[0].tolist())


def damaged(name: str, state: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    name, what = name.split()[0], name
    array = state[name].copy()
    match what:
        case "start_states" | "start_candidates":
            array[5000] ^= 1
        case "start_places":
            array[1] = array[0]
        case "start_places far away":
            array[1] = -(2**63)
        case "start_choices":
            array[0] = 10_000
        case "start_counts":
            array[1] = -1
        case "start_lanes":
            array[0, 2] = 99
        case "start_deaths":
            array = array[:1]
    return {**state, name: array}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("start_states", "checksum differs"),
        ("start_candidates", "checksum differs"),
        ("start_places", "start states are damaged"),
        ("start_places far away", "start_places must be between"),
        ("start_choices", "start_choices must be between 0 and"),
        ("start_counts", "start_counts must be between 0 and"),
        ("start_lanes", "ages of candidates must be between 0 and"),
        ("start_deaths", "start_deaths has the shape"),
    ],
)
def test_damaged_states_are_refused(name: str, reason: str) -> None:
    env = lanes()
    env.reset()
    play(env, 300)
    with pytest.raises(ValueError, match=reason):
        lanes().load_state(damaged(name, env.state()))


def test_places_tell_stages_areas_and_parts_of_the_way_apart() -> None:
    ram = np.zeros((5, 2048), np.uint8)
    ram[1, 0x86], ram[2, 0x6D], ram[3, 0xE8], ram[4, rules.STAGE] = 64, 1, 1, 1
    places = place_of(ram)
    assert (places[1:3] - places[0]).tolist() == [1, 4]
    assert len(set(places.tolist())) == 5


def test_a_curriculum_and_evaluations_begin_at_the_true_starts() -> None:
    config = RunConfig.of(stage="1-1,1-4", curriculum=True, start_states=0.5)
    env = make_lanes(config, 8, threads=1, seed=1)
    assert isinstance(env, MarioLanes)
    env.set_curriculum_level(0.0)
    env.reset()
    assert (starts(env) == 0).all()
    play(env, 500)
    env.set_curriculum_level(1.0)
    seen = set[int]()
    for _ in walk(env, 500):
        seen |= set(starts(env).tolist())
    assert {0, 1} < seen
    evaluation = make_lanes(config, 8, threads=1, seed=1, evaluation=True)
    assert isinstance(evaluation, MarioLanes)
    assert evaluation._own_starts is None


@pytest.mark.parametrize("options", [{"emulator": "nes-py"}, {"stage": "game"}])
def test_they_are_refused_where_they_can_not_work(options: dict[str, str]) -> None:
    for name in ("start_states", "guide"):
        with pytest.raises(ConfigError, match="must be 0 with --emulator nes-py") as caught:
            RunConfig.of(**{name: 0.5}, **options)
        assert caught.value.field == name
