"""The keys of a person, and what they do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from engine.config.capabilities import Playable
from engine.config.game import game_of
from engine.config.reading import make_config
from engine.errors import UserError
from engine.games.gym.spaces import CARTPOLE, EnvironmentKeys, Spaces, ask, keys_of, parsed
from engine.protocol.results import Press
from mario_tui.extras.play import run
from tests.support.gym_envs import FAULTY

pytestmark = pytest.mark.process

ATARI = (
    "noop", "fire", "up", "right", "left", "down", "upright", "upleft", "downright", "downleft", "upfire", "rightfire",
    "leftfire", "downfire", "uprightfire", "upleftfire", "downrightfire", "downleftfire",
)  # fmt: skip


def keys(*actions: str, named: Mapping[str, int] = {}) -> EnvironmentKeys:
    spaces = Spaces(asked=("Some-v0", "{}", "none", False), kind="vector", shape=(1,), actions=actions, keys={**named})
    return keys_of("Some-v0", spaces)


def pressed(keys: EnvironmentKeys, *names: str) -> int | None:
    return keys.action(sum({keys.person.buttons[name] for name in names}))


def test_names_of_actions_choose_the_keys() -> None:
    cartpole = keys_of("CartPole-v1", parsed(CARTPOLE))
    assert [pressed(cartpole, key) for key in ("left", "d")] == [0, 1] and not cartpole.person.held
    assert pressed(cartpole) is None and pressed(cartpole, "left", "right") == 0
    assert "up" not in cartpole.person.buttons

    lake = keys("left", "down", "right", "up")
    assert [pressed(lake, key) for key in "asdw"] == [0, 1, 2, 3] and not lake.person.held

    taxi = keys("south", "north", "east", "west", "pick up", "drop off")
    assert [pressed(taxi, key) for key in ("down", "up", "right", "left", "x", "z")] == [0, 1, 2, 3, 4, 5]
    assert taxi.person.line() == "arrows or WASD: west, east, north, south   x: pick up   z: drop off"

    lander = keys("nothing", "left engine", "main engine", "right engine")
    assert [pressed(lander, *held) for held in ((), ("left",), ("up",), ("right",))] == [0, 1, 2, 3]
    assert lander.person.held


def test_keys_that_are_held_together_are_an_action_of_their_own_if_there_is_one() -> None:
    boxing = keys(*ATARI, named={"e": 0, "space": 1, "w": 2, "d": 3, "a": 4, "s": 5})
    assert pressed(boxing, "w", "right", "space") == ATARI.index("uprightfire") and "e" not in boxing.person.buttons
    assert pressed(boxing, "up", "down", "space") == ATARI.index("upfire")
    breakout = keys("noop", "fire", "right", "left")
    assert pressed(breakout, "space", "left") == 1 and breakout.action(0) == 0


def test_keys_that_the_environment_names_hold() -> None:
    own = keys("0", "1", "2", named={"q": 0, "up": 1, "space": 2})
    assert [pressed(own, key) for key in ("q", "up", "space")] == [0, 1, 2] and len(own.person.buttons) == 3
    assert not own.person.held and keys("0", "1", "2", named={"": 1, "q": 0}).person.held
    moved = keys("left", "right", "jump", named={"a": 2})
    assert [pressed(moved, key) for key in ("left", "right", "d", "a")] == [0, 1, 1, 2]
    many = keys(*map(str, range(26)), named={chr(97 + number): number for number in range(26)})
    for button in many.person.buttons.values():
        Press(buttons=button)
    assert len(many.person.buttons) == 16


def test_keys_of_pygame_get_the_names_of_the_terminal() -> None:
    assert parsed(ask((("MountainCar-v0", "{}", "none", False), 60.0))[0]).keys == {"": 1, "left": 0, "right": 2}


@dataclass
class Person:
    """Plays an environment; `tick` is one with these keys, which are held for as long."""

    env: str
    buttons: int = 0
    pressed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        game = game_of("gym")
        assert isinstance(game, Playable)
        self.keys = game.keys_of_person(make_config({"game": f"gym:{self.env}"}))
        self.game = game.game_of_person(self, env=self.env)
        self.game.begin(1, 3, None)

    def presses(self) -> list[int]:
        taken, self.pressed = self.pressed, []
        return taken

    def tick(self, *names: str) -> int:
        """Returns the number of steps since the beginning."""
        assert self.keys is not None
        self.pressed = [self.keys.buttons[name] for name in names]
        self.buttons = sum(self.pressed)
        self.game.tick()
        return self.game.steps


def test_without_an_action_for_no_key_each_press_is_a_step() -> None:
    cartpole = Person("CartPole-v1")
    assert [cartpole.tick(*names) for names in ((), (), ("left", "right"), (), ())] == [0, 0, 1, 2, 2]
    assert (cartpole.game.ticks_per_s, cartpole.game.ticks_per_picture) == (60.0, 2)  # it has 50 steps per second
    cartpole.game.close()


def test_with_one_the_game_begins_with_the_first_key_and_goes_on() -> None:
    car = Person("MountainCar-v0")
    assert [car.tick(*names) for names in ((), ("a",), (), ())] == [0, 1, 2, 3]
    assert car.game.ticks_per_s == 30.0
    car.game.close()


def test_a_key_for_an_illegal_action_does_nothing() -> None:
    taxi = Person("Taxi-v4")
    assert taxi.tick("z") == 0  # there is no passenger to drop off
    assert taxi.tick("up", "down") + taxi.tick() >= 1
    taxi.game.close()


def test_an_environment_without_keys_is_refused_in_a_line() -> None:
    line = "--human: there are no keys for the actions 0, 1 of Faulty-v0; it can name them in metadata"
    with pytest.raises(UserError, match=re.escape(line)):
        run(["--human", "--game", FAULTY])
    with pytest.raises(UserError, match="the actions jump of"):
        keys("left", "jump")
    with pytest.raises(UserError, match=r"--game must be one of mario, .*, got 'gim:CartPole-v1'"):
        run(["--game", "gim:CartPole-v1"])
