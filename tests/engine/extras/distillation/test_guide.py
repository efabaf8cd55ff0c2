"""Guided episodes and noise: what an actor carries out, what it remembers, and which episodes count."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.config.fields import ConfigError
from engine.config.run_config import RunConfig
from engine.envs.lanes import Frames
from engine.extras.distillation.mario.ways import WAY, WayGuide, Ways, starts_of
from engine.games.mario import rules
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
from engine.runners.actor import Actor
from tests.support.games.mario import RIGHT_B
from tests.support.program import json_lines, run_program

LANES = 12
TASK = MarioTask(noop_max=5, stall_steps=20)
NOOP = 0


def new_actor(
    *, guided: float = 0.0, noise: float = 0.0, length: int = 30, knows_ways: bool = True, task: MarioTask = TASK
) -> Actor:
    """An actor without exploration whose guide runs to the right from every start, or knows no way."""
    env = MarioLanes(task, LANES, seed=2)
    guide = WayGuide(env, share=guided, seed=np.random.SeedSequence(3, spawn_key=(0,))) if guided else None
    if guide is not None and knows_ways:
        guide.ways = {(0, start): np.full(length, RIGHT_B) for start in starts_of(TASK)}
    return Actor(env, ladder=np.zeros(LANES), epsilon_steps=1, seed=3, guide=guide, noise=noise)


def stands_still(obs: Frames) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.full((LANES,), NOOP), 5).float()


def take(actor: Actor) -> tuple[NDArray[np.int64], list[int]]:
    """One step. Returns the actions that the replay gets, and the lanes whose episodes count."""
    actions = actor.choose(stands_still, 10)
    _, episodes = actor.finish(actor.begin(actions))
    return actions, [episode.lane for episode in episodes]


def counted_next(actor: Actor) -> list[int]:
    """Play until every lane has ended its episode in progress. Returns the lanes in which that one counted."""
    over, counted = np.zeros(LANES, np.bool_), set[int]()
    for _ in range(3 * TASK.stall_steps):
        step, episodes = actor.finish(actor.begin(actor.choose(stands_still, 10)))
        counted |= {episode.lane for episode in episodes if not over[episode.lane]}
        over |= step.terminated | step.truncated
    assert over.all()
    return sorted(counted)


def test_a_guided_episode_follows_the_way_and_then_the_agent() -> None:
    actor = new_actor(guided=0.5)
    chosen = np.stack([take(actor)[0] for _ in range(18)])
    guided = chosen[0] == RIGHT_B
    assert 0 < guided.sum() < LANES
    assert (chosen[:, ~guided] == NOOP).all()
    changes = (np.diff(chosen, axis=0) != 0).sum(0)
    assert (changes <= 1).all()  # to the agent, and never back
    assert changes.sum() > 0
    assert actor.guide is not None and np.array_equal(actor.guide.guided, guided)
    actor.close()


def test_guide_and_exploration_draw_different_random_numbers() -> None:
    actor = new_actor(guided=0.5)
    assert isinstance(actor.guide, WayGuide)
    assert not np.array_equal(actor.guide._random.random(8), actor._random.random(8))
    actor.close()


def test_guided_episodes_do_not_count() -> None:
    actor = new_actor(guided=0.5, length=1)
    guided = take(actor)[0] == RIGHT_B
    assert guided.any() and counted_next(actor) == np.flatnonzero(~guided).tolist() != []
    actor.close()


def test_a_start_without_a_way_is_not_guided() -> None:
    actor = new_actor(guided=0.9, knows_ways=False)
    assert (take(actor)[0] == NOOP).all()
    actor.close()


def test_a_guide_continues_from_its_state() -> None:
    actor, other = new_actor(guided=0.5), new_actor(guided=0.5, knows_ways=False)
    for _ in range(25):
        take(actor)
    numbers, arrays = actor.state()
    other.load_state(numbers, {name: array.copy() for name, array in arrays.items()})
    for _ in range(60):
        assert np.array_equal(take(actor)[0], take(other)[0])
    actor.close()
    other.close()


def test_episodes_of_a_checkpoint_without_a_guide_are_the_agents() -> None:
    before, actor = new_actor(), new_actor(guided=0.9)
    for _ in range(3):
        take(before)
    actor.load_state(*before.state())
    assert (take(actor)[0] == NOOP).all()
    while not take(actor)[1]:
        pass
    assert (take(actor)[0] == RIGHT_B).any()
    before.close()
    actor.close()


@pytest.mark.parametrize(
    "resumed",
    [
        [{}],  # without the guide
        [{}, {}],
        [{}, {"guided": 0.5}],
        [{"guided": 0.5, "knows_ways": False, "task": dataclasses.replace(TASK, noop_max=6)}],
    ],
    ids=["without", "twice", "without, then with it", "with other starts"],
)
def test_episodes_that_began_guided_never_count(resumed: list[dict[str, Any]]) -> None:
    actor = new_actor(guided=0.5, length=1)
    guided = take(actor)[0] == RIGHT_B
    for options in resumed:
        before, actor = actor, new_actor(**options)
        actor.load_state(*before.state())
        before.close()
        take(actor)
    assert guided.any() and counted_next(actor) == np.flatnonzero(~guided).tolist() != []
    if actor.guide is None:
        assert counted_next(actor) == list(range(LANES))  # the next ones are the agent's
    actor.close()


def test_episodes_of_an_earlier_checkpoint_that_began_guided_do_not_count() -> None:
    """It tells only how far they are guided."""
    before, actor = new_actor(guided=0.5, length=1), new_actor()
    guided = take(before)[0] == RIGHT_B
    numbers, arrays = before.state()
    del arrays["guided"]
    actor.load_state(numbers, arrays)
    assert guided.any() and counted_next(actor) == np.flatnonzero(~guided).tolist() != []
    before.close()
    actor.close()


def test_ways_from_other_starts_are_not_those_of_a_run() -> None:
    searched = []

    def search(**others: Any) -> Ways:
        searched.append(others)
        return {(0, 5): np.zeros(3, np.int64)}

    guide = WayGuide(MarioLanes(TASK, LANES), share=0.5, seed=0, search=search)
    guide.find_ways(stopped=lambda: False, log=print)
    for noop_max in (TASK.noop_max, TASK.noop_max + 1):
        task = dataclasses.replace(TASK, noop_max=noop_max)
        resumed = WayGuide(MarioLanes(task, LANES), share=0.5, seed=0, search=search)
        resumed.load_state(*guide.state())
        resumed.find_ways(stopped=lambda: False, log=print)
    assert len(searched) == 2  # once for each range of no-ops


def test_a_damaged_way_is_refused() -> None:
    env = MarioLanes(TASK, LANES)
    guide = WayGuide(env, share=0.5, seed=0)
    numbers, arrays = guide.state()
    with pytest.raises(ValueError, match=rf"{WAY}\.0\.7 must be between 0 and"):
        guide.load_state(numbers, {**arrays, f"{WAY}.0.7": np.array([1, 99])})


def test_noise_replaces_what_is_carried_out_and_the_replay_gets_what_was_chosen() -> None:
    actor = new_actor(noise=0.3)
    env = actor.env
    assert isinstance(env, MarioLanes)
    others = 0
    for _ in range(40):
        assert (take(actor)[0] == NOOP).all()
        others += int((env.book[:, rules.BUTTONS] != 0).sum())
    assert 60 < others < 170  # 115 expected: 0.3 of 480, less the fifth that draws the same action
    actor.close()


def test_noise_does_not_disturb_a_guide() -> None:
    actor = new_actor(guided=0.9, noise=0.5)
    env = actor.env
    assert isinstance(env, MarioLanes) and actor.guide is not None
    chosen = take(actor)[0]
    led = chosen == RIGHT_B
    assert led.any()
    assert len(set(env.book[led, rules.BUTTONS].tolist())) == 1
    actor.close()


def test_a_guide_needs_a_stage_and_true_starts() -> None:
    with pytest.raises(ConfigError, match=r"must be 0 with --stage game, got 0\.5"):
        RunConfig.of(guide=0.5, stage="game")
    excluded = r"must be 0 with --start-states, --sticky-actions and --random-phase, got 0\.5"
    for other in ({"start_states": 0.25}, {"sticky_actions": 0.25}, {"random_phase": True}):
        with pytest.raises(ConfigError, match=excluded):
            RunConfig.of(guide=0.5, **other)


@pytest.mark.long
@pytest.mark.process
def test_a_run_searches_its_ways_and_evaluates_without_guide(tmp_path: Path) -> None:
    options = ("--guide", "0.9", "--action-noise", "0.1", "--noop-max", "1", "--parallel-envs", "8", "--steps", "1200",
               "--burnin", "1000", "--eval-every", "600", "--eval-episodes", "2")  # fmt: skip
    done = run_program("--no-ui", "--log-format", "json", *options, cwd=tmp_path)
    assert "searching ways to the flag of 1-1 for --guide" in done.stderr
    events = json_lines(done.stdout)
    assert [event["episodes"] for event in events if event["event"] == "evaluation"] == [2, 2]
    assert events[-1]["env_steps"] == 1200
    again = run_program("--no-ui", "--log-format", "json", "--resume", "latest", "--steps", "1600", cwd=tmp_path)
    assert "searching" not in again.stderr  # the checkpoint has the ways
