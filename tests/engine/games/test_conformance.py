"""What holds for every game, one of an installed package too: its lanes, its options, its networks, its memory.

Games are played with random legal actions, each held for a while where the game's `Spec` says so.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import numpy as np
import pytest
import torch

from engine.agents.exploration import random_actions
from engine.agents.networks import make_network, make_networks
from engine.config import plugins
from engine.config.capabilities import Playable, played_options, varied_conditions
from engine.config.fields import GROUPS, ConfigError, check, is_text
from engine.config.game import Game, game_of, games, own_options
from engine.config.reading import config_of_policy, make_config
from engine.config.run_config import COMMON
from engine.envs.factory import describe_task, lanes_of_policy, make_lanes
from engine.envs.lanes import FrameStack, Lanes, VectorStep
from engine.monitoring.memory_budget import estimate_bytes
from engine.protocol.messages import Thought
from engine.protocol.outcome import Conditions, Outcome
from engine.runners.actor import Actor
from engine.runners.learning.factory import make_replay
from engine.runners.start import Start
from tests.support.gym_envs import FAULTY, SQUARES
from tests.support.plugins import catch_here

LANES = 6
STEPS = 200
"""Some episodes of every game end before."""
ENVIRONMENTS = {"breakout": "gym:MinAtar/Breakout-v1", "squares": SQUARES, "faulty": FAULTY}
"""Environments of Gymnasium besides CartPole, which `gym` alone is: planes, a coloured image, and one for faults."""
PLAIN: dict[str, dict[str, Any]] = {
    "snake": {"death_penalty": 0.0, "step_penalty": 0.0}, "tetris": {"reward": "lines"}, "catch": {}, "gym": {},
    **{name: {} for name in ENVIRONMENTS},
}  # fmt: skip
"""Options of games with which rewards are parts of the return, scaled at most."""


@pytest.fixture(
    scope="module",
    params=[*games(), "catch", *(pytest.param(name, marks=pytest.mark.process) for name in ENVIRONMENTS)],
)
def named(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A game as `--game` takes it."""
    if request.param != "catch":
        yield ENVIRONMENTS.get(request.param, request.param)
        return
    with catch_here(tmp_path_factory.mktemp("site")):
        yield "catch"


@pytest.fixture(scope="module")
def game(named: str) -> Game:
    return game_of(named.partition(":")[0])


def new_lanes(named: str, *, seed: int = 1, evaluation: bool = False, **options: Any) -> Lanes:
    return make_lanes(make_config({"game": named, **options}), LANES, threads=1, seed=seed, evaluation=evaluation)


def played(lanes: Lanes, steps: int, seed: int = 0) -> Iterator[VectorStep]:
    random, actions = np.random.default_rng(seed), np.zeros(0, np.int64)
    for step in range(steps):
        masks = lanes.masks
        if masks is not None or step % lanes.spec.hold == 0:
            actions = random_actions(random, lanes.lanes, lanes.spec.actions, masks)
        yield lanes.step(actions)


class Begun(NamedTuple):
    lanes: Lanes
    frames: Any


def begun(lanes: Lanes) -> Begun:
    return Begun(lanes, lanes.reset())


def equal(one: VectorStep, other: VectorStep) -> bool:
    """Whether two steps are alike; final frames only where they are defined."""
    over = one.terminated | one.truncated
    return all(
        np.array_equal(first[over], second[over]) if name.startswith("final_") and first is not None
        else np.array_equal(first, second)
        for name, first, second in (
            (each.name, getattr(one, each.name), getattr(other, each.name)) for each in dataclasses.fields(VectorStep)
        )
    )  # fmt: skip


@pytest.mark.process
def test_steps_are_what_the_spec_says(named: str, game: Game) -> None:
    config, lanes = make_config({"game": named}), new_lanes(named)
    spec = game.spec(config)
    assert lanes.spec == spec and lanes.lanes == LANES
    names = game.action_names(config)
    assert len(names) == len(set(names)) == spec.actions
    shapes: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
        **dict.fromkeys(("frames", "final_frames"), ((LANES, *spec.frame_shape), np.dtype(spec.frame_dtype).type)),
        **dict.fromkeys(("terminated", "truncated", "success", "from_start"), ((LANES,), np.bool_)),
        **dict.fromkeys(("lengths", "tasks"), ((LANES,), np.int64)),
        "rewards": ((LANES,), np.float32),
        "results": ((LANES, len(game.outcome.results)), np.float64),
        **(dict.fromkeys(("masks", "final_masks"), ((LANES, spec.actions), np.bool_)) if spec.masked else {}),
    }
    frames = lanes.reset()
    assert (frames.shape, frames.dtype) == shapes["frames"]
    for step in played(lanes, 20):
        assert {name: (getattr(step, name).shape, getattr(step, name).dtype) for name in shapes} == shapes
        assert step.returns.shape == (LANES,) and step.game_frames >= 0
        if spec.masked:
            assert step.masks is not None and lanes.masks is not None
            assert np.array_equal(step.masks, lanes.masks) and step.masks.any(1).all()
        else:
            assert lanes.masks is step.masks is step.final_masks is None


def test_episodes_end_in_one_way_and_the_next_begin_in_the_same_step(named: str, game: Game) -> None:
    lanes = new_lanes(named)
    lanes.reset()
    lengths, ended, outcome = np.zeros(LANES, np.int64), 0, game.outcome
    for step in played(lanes, STEPS):
        over = step.terminated | step.truncated
        assert not (step.terminated & step.truncated).any()
        assert np.array_equal(step.lengths, lengths + 1)
        lengths = np.where(over, 0, step.lengths)
        assert np.isfinite(step.results).all() and np.isfinite(step.returns).all() and np.isfinite(step.rewards).all()
        assert outcome.goal is not None or not step.success.any()
        assert ((step.tasks >= 0) & (step.tasks < len(outcome.tasks)) if outcome.tasks else step.tasks == -1).all()
        ended += int(over.sum())
    assert ended > 1


@pytest.mark.parametrize("named", PLAIN, indirect=True)
@pytest.mark.process
def test_returns_are_sums_of_rewards_which_may_be_scaled(named: str) -> None:
    lanes = new_lanes(named, **PLAIN.get(named, {}))
    lanes.reset()
    sums, ratios = np.zeros(LANES), []
    for step in played(lanes, STEPS):
        sums += step.rewards
        over = step.terminated | step.truncated
        told = step.from_start & (step.returns != 0)
        assert (sums[step.from_start & (step.returns == 0)] == 0).all()
        ratios += (sums[told] / step.returns[told]).tolist()
        sums[over] = 0
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-5) and len(ratios) > LANES


def test_a_seed_and_actions_decide_everything(named: str) -> None:
    first, second, other = (begun(new_lanes(named, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first.frames, second.frames)
    steps = list(played(first.lanes, STEPS))
    copies = copy.deepcopy(steps)
    assert all(map(equal, steps, played(second.lanes, STEPS)))
    assert not all(map(equal, steps, played(other.lanes, STEPS)))
    assert all(map(equal, steps, copies))  # later steps have not overwritten them


def test_a_state_continues_in_other_lanes_as_where_it_is_from(named: str) -> None:
    lanes, fresh = new_lanes(named), new_lanes(named, seed=7)
    lanes.reset()
    for _ in played(lanes, 50):
        pass
    state = {name: array.copy() for name, array in lanes.state().items()}
    expected = list(played(lanes, STEPS, seed=1))
    fresh.reset()
    for again in (fresh, lanes):
        if (frames := again.load_state(state)) is not None:  # these can't be stored: the episodes that follow begin
            anew = new_lanes(named, seed=7 if again is fresh else 1)
            other = anew.load_state(state)
            assert other is not None and np.array_equal(frames, other)
            assert all(map(equal, played(anew, STEPS), played(again, STEPS)))
            continue
        assert all(np.array_equal(array, state[name]) for name, array in again.state().items())
        assert all(map(equal, expected, played(again, STEPS, seed=1)))


def test_a_lane_does_not_depend_on_what_others_play(named: str) -> None:
    one, other = (begun(new_lanes(named)).lanes for _ in range(2))
    random, spec = np.random.default_rng(0), one.spec
    for _ in range(STEPS):
        actions, elsewhere = (random_actions(random, LANES, spec.actions, lanes.masks) for lanes in (one, other))
        elsewhere[2] = actions[2]
        ours, theirs = one.step(actions), other.step(elsewhere)
        assert np.array_equal(ours.frames[2], theirs.frames[2]) and ours.rewards[2] == theirs.rewards[2]


@pytest.mark.parametrize("evaluation", [False, True])
def test_rewound_lanes_play_their_first_episodes_again(evaluation: bool, named: str) -> None:
    lanes = new_lanes(named, evaluation=evaluation)
    lanes.spread_starts()
    runs = []
    for _ in range(2):
        first = lanes.reset()
        runs.append((first.copy(), list(played(lanes, 60))))
        lanes.rewind()
    assert np.array_equal(runs[0][0], runs[1][0])
    assert all(map(equal, runs[0][1], runs[1][1]))


def test_an_actor_plays_legal_actions_and_tells_every_episode(named: str) -> None:
    lanes = new_lanes(named)
    actor = Actor(lanes, ladder=np.ones(LANES), epsilon_steps=1, seed=0)
    told = ended = 0
    for _ in range(STEPS):
        masks = actor.masks
        actions = actor.choose(lambda obs: torch.zeros(len(obs), lanes.spec.actions), env_steps=1)
        assert masks is None or masks[np.arange(LANES), actions].all()
        step, episodes = actor.finish(actor.begin(actions))
        over = (step.terminated | step.truncated) & step.from_start
        assert [episode.lane for episode in episodes] == np.flatnonzero(over).tolist()
        for episode in episodes:
            assert episode.results == tuple(step.results[episode.lane]) and episode.length == step.lengths[episode.lane]
        told, ended = told + len(episodes), ended + int(over.sum())
    actor.close()
    assert told == ended > 0


def test_a_lane_has_a_picture_and_facts(named: str) -> None:
    lanes = new_lanes(named)
    lanes.reset()
    for _ in played(lanes, 5):
        for lane in (0, LANES - 1):
            picture, facts = lanes.screen(lane), lanes.facts(lane)
            assert picture.shape == (240, 256, 3) and picture.dtype == np.uint8
            assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 2  # something is drawn
            assert msgspec.convert(facts, get_type_hints(Thought, include_extras=True)["facts"]) == facts


def test_a_policys_lanes_are_made_from_what_its_file_tells(named: str, game: Game) -> None:
    config = make_config({"game": named})
    metadata = json.loads(json.dumps(describe_task(config)))
    lanes = lanes_of_policy(metadata, LANES, threads=1, seed=1)
    assert lanes.spec == config.spec == config_of_policy(metadata).spec
    tasks = game.tasks_of(config.value(game.tasks))
    assert {lanes.task_of(lane) for lane in range(LANES)} == set(tasks)
    lanes.reset()
    assert sum(int((step.terminated | step.truncated).sum()) for step in played(lanes, STEPS)) > 0


def test_results_have_names_that_programs_can_read(game: Game) -> None:
    plugins._check_outcome(game.outcome)
    sent = msgspec.json.encode(game.outcome)
    assert msgspec.json.decode(sent, type=Outcome) == game.outcome  # within the bounds of a greeting


def test_every_option_has_help_a_group_and_bounds(game: Game) -> None:
    for name, spec in own_options(game.name).items():
        meta = spec.metadata
        assert meta["help"] and meta["group"] in GROUPS and name not in COMMON, name
        check(spec, spec.default)
        if not isinstance(spec.default, bool) and not is_text(spec):
            assert meta["low"] is not None, name
        if meta["choices"]:
            assert spec.default in meta["choices"], name


def test_options_that_the_game_names_are_there(game: Game) -> None:
    own, known = own_options(game.name), {**COMMON, **own_options(game.name)}
    assert game.tasks in own
    named = {*played_options(game), *game.defaults()}
    if isinstance(game, Playable):
        named |= {*game.person_options}
    assert named <= known.keys()
    assert {*varied_conditions(game)} <= {*Conditions.__struct_fields__}


@pytest.mark.process
def test_presets_make_runs(game: Game) -> None:
    for name, preset in game.presets.items():
        config = make_config(preset.options)
        assert config.game == game.name and preset.help, name
        assert {option: config.value(option) for option in preset.options} == preset.options, name


@pytest.mark.usefixtures("one_thread")
def test_every_network_values_every_action(named: str, game: Game) -> None:
    config = make_config({"game": named})
    assert config.network_name in game.networks and game.own_networks.keys() <= {*game.networks}
    spec, lanes = config.spec, new_lanes(named)
    obs = torch.from_numpy(FrameStack(lanes.reset(), spec.stack).obs)
    for name in game.networks:
        if "network" in own_options(game.name):
            try:
                make_config({"game": named, "network": name})
            except ConfigError:
                continue  # it is for others of the game's observations
        network = make_network(name, spec.stack, spec.frame_shape, spec.actions, own=game.own_networks)
        with torch.no_grad():
            values = network(obs)
        assert (values.dtype, values.shape) == (torch.float32, (LANES, spec.actions)), name
        assert values.isfinite().all(), name
    with torch.no_grad():
        values, of_target = (network(obs) for network in make_networks(config, spec))
    assert values.shape == of_target.shape == (LANES, spec.actions)


@pytest.mark.parametrize("prioritized", [False, True])
def test_the_estimate_of_a_replays_memory_is_what_it_takes(prioritized: bool, named: str) -> None:
    options = {"game": named, "buffer_size": 40_000, "parallel_envs": LANES, "prioritized_replay": prioritized}
    config = make_config(options)
    make_replay(Start(Path(), config), config.spec, print)  # compiles
    tracemalloc.start()
    replay = make_replay(Start(Path(), config), config.spec, print)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert replay.capacity >= 40_000
    priorities = 9 * replay.capacity  # which are counted in any case
    assert taken * 0.99 < estimate_bytes(config)[1] < taken * 1.25 + priorities
