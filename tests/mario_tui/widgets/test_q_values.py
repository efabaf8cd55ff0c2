"""What the agent makes of a game: from the actor to the lines on the screen."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch

from engine.agents.exploration import epsilon_ladder
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.protocol.messages import SCREEN_SHAPE, Thought
from engine.runners.actor import Actor
from engine.runners.links import FrameMailbox
from mario_tui.widgets.panels.game import chosen, describe, observation_image

MARIO = ["noop", "right", "right+A", "right+B", "right+A+B"]


def thought(q_values: list[float], action: int, *, random: bool = False) -> Thought:
    return Thought(q_values=q_values, action=action, random=random, shape=(0, 0, 0, 0), seen=b"")


@pytest.mark.parametrize("options", [{}, {"game": "snake", "board": "6x5"}, {"game": "tetris", "board": "5x8"}])
def test_an_actor_tells_what_it_decided_and_on_what(options: dict[str, str]) -> None:
    config = make_config({**options, "parallel_envs": 3})
    env = make_lanes(config, 3, threads=1, seed=0)
    names = config.game_info.action_names(config)
    assert len(names) == len(set(names)) == env.spec.actions
    actor = Actor(env, ladder=epsilon_ladder(3, 0.4), epsilon_steps=100, seed=0)
    assert actor.decision is None
    q_values = torch.arange(float(3 * env.spec.actions)).reshape(3, -1)
    seen_random: set[bool] = set()
    for _ in range(30):
        masks, obs = actor.masks, actor._stack.obs.copy()
        actions = actor.choose(lambda obs: q_values, env_steps=50)
        actor.finish(actor.begin(actions))  # what was decided stays as it was
        decision = actor.decision
        assert decision is not None
        for lane in range(3):
            told = decision.of(lane)
            legal = np.ones(env.spec.actions, bool) if masks is None else masks[lane]
            expected = np.where(legal, q_values[lane].numpy(), -np.inf)
            assert told.q_values == expected.tolist()
            assert told.action == actions[lane]
            assert told.random or told.action == expected.argmax()
            assert told.seen == obs[lane].tobytes()
            planes = env.spec.frame_shape[0] if len(env.spec.frame_shape) == 3 else 1
            assert told.shape == (env.spec.stack, planes, *env.spec.frame_shape[-2:])
            seen_random.add(told.random)
    assert seen_random == {True, False}
    actor.close()


def test_picture_and_thought_travel_together() -> None:
    screen = FrameMailbox(multiprocessing.get_context("spawn"))
    assert screen.read(0) is None
    picture = np.full(SCREEN_SHAPE, 7, np.uint8)
    told = Thought(q_values=[1.5, -np.inf], action=0, random=True, shape=(1, 1, 2, 2), seen=b"abcd")
    screen.write(picture, told)
    assert screen.read(0) == (2, picture.tobytes(), told)
    assert screen.read(2) is None
    screen.write(picture)
    assert screen.read(2) == (4, picture.tobytes(), None)
    huge = Thought(q_values=[1.0], action=0, random=False, shape=(1, 1, 2**8, 2**9), seen=bytes(2**17))
    screen.write(picture, huge)
    assert screen.read(4) == (6, picture.tobytes(), thought([1.0], 0))


def test_bars_from_the_worst_to_the_best_action() -> None:
    lines = describe(thought([1.0, 2.0, 3.0, -4.0, 2.5], 2), MARIO, 30, 5).plain.split("\n")
    assert [line.split()[0] for line in lines] == ["noop", "right", "▶", "right+B", "right+A+B"]
    assert lines[2] == "▶ right+A   ██████████   3.00"
    assert lines[3] == "  right+B   ··········  -4.00"
    assert all(len(line) == 29 for line in lines)
    assert chosen(thought([1.0, 2.0], 1), MARIO) == "right"


def test_of_many_actions_the_best_few_and_the_chosen_one() -> None:
    config = make_config({"game": "tetris", "board": "10x10"})
    names = config.game_info.action_names(config)
    q_values = [-np.inf if action % 3 else float(action) for action in range(40)]
    told = thought(q_values, 6, random=True)
    lines = describe(told, names, 40, 4).plain.split("\n")
    assert [line[2:14].strip() for line in lines[:3]] == ["270° col 10", "270° col 7", "270° col 4"]
    assert "39.0" in lines[0] and "36.0" in lines[1] and "33.0" in lines[2]
    assert lines[3].startswith("? 0° col 7") and "6.00" in lines[3]
    assert chosen(told, names) == "0° col 7 (random)"


def test_equal_values_and_no_legal_action_are_drawn_too() -> None:
    assert "▶ up" in describe(thought([0.0] * 4, 0), ["up", "right", "down", "left"], 30, 4).plain
    assert "–" in describe(thought([-np.inf] * 4, 0), ["up", "right", "down", "left"], 30, 4).plain


def test_the_agents_pictures_side_by_side() -> None:
    planes = np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6)
    told = Thought(q_values=[0.0], action=0, random=False, shape=(4, 1, 5, 6), seen=planes.tobytes())
    square = observation_image(told, 40, 40)
    assert square.shape == (13, 15, 3)
    assert (square[7:12, 8:14, 0] == planes[3]).all()
    around = square[6:, 7:].copy()
    around[1:-1, 1:-1] = around[0, 0]
    assert (around == around[0, 0]).all() and (around[0, 0] != square[0, 0]).any()  # the newest one has a frame
    assert (square[:6] != around[0, 0]).any(axis=2).all()  # and no other
    assert observation_image(told, 400, 20).shape == (7, 29, 3)
    assert observation_image(told, 10, 200).shape == (25, 8, 3)
    assert (observation_image(told, 5, 5)[..., 0] == planes[3]).all()  # too small for all: the newest
    board = Thought(q_values=[0.0], action=0, random=False, shape=(1, 4, 5, 6), seen=planes.tobytes())
    assert observation_image(board, 5, 5).shape == (11, 13, 3)  # its planes belong together
