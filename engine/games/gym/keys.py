"""Keys with which a person plays an environment: those that it names itself, else those that fit the names of its
actions."""

from __future__ import annotations

import re
from typing import NamedTuple

from engine.config.game import PersonKeys
from engine.config.joypad import DOWN, LEFT, MOVE_KEYS, RIGHT, START, UP, A, B
from engine.errors import UserError
from engine.games.gym.spaces import Spaces, label

_WORDS = {
    "noop": 0, "no-op": 0, "none": 0, "nothing": 0, "idle": 0, "torque 0": 0,
    "pick up": A, "drop off": B, "fire": START,
    "left engine": LEFT, "main engine": UP, "right engine": RIGHT, "torque -1": LEFT, "torque +1": RIGHT,
    "left": LEFT, "right": RIGHT, "up": UP, "down": DOWN, "west": LEFT, "east": RIGHT, "north": UP, "south": DOWN,
}  # fmt: skip
"""What names of actions consist of, longer ones first, and the buttons that say the same."""
_WORD = re.compile("|".join(map(re.escape, _WORDS)))
_KEYS = {**MOVE_KEYS, "space": START, "x": A, "z": B}
_OWN = 0x100
"""The first of the buttons, above those of a joypad, for keys that only the environment knows."""
_MOST_OWN = 16


class EnvironmentKeys(NamedTuple):
    """Keys, and the actions of their buttons."""

    person: PersonKeys
    actions: dict[int, int]
    """By the buttons that are pressed together for each; 0: no button."""

    def action(self, pressed: int) -> int | None:
        """The action that needs the most of the pressed buttons and no others; None if there is none."""
        fitting = [buttons for buttons in self.actions if not buttons & ~pressed]
        return self.actions[max(fitting, key=int.bit_count)] if fitting else None


def keys_of(env: str, spaces: Spaces) -> EnvironmentKeys:
    """The keys of an environment. Held if it has an action for no key, because it can go on then. Raises `UserError` if
    there are none for an action."""
    actions: dict[int, int] = {}
    for action, name in enumerate(spaces.actions):
        if (named := _named(name)) is not None:
            actions.setdefault(named, action)
    buttons = {key: button for key, button in _KEYS.items() if any(each & button for each in actions)}
    if "" in spaces.keys:
        actions[0] = spaces.keys[""]
    for key, action in spaces.keys.items():
        own = next((each for each in actions if actions[each] == action and each.bit_count() == 1), None)
        if own is None:
            own = _OWN << sum(each >= _OWN for each in actions)
        if key and action != actions.get(0) and own < _OWN << _MOST_OWN:
            buttons[key], actions[own] = own, action
    without = [name for action, name in enumerate(spaces.actions) if action not in actions.values()]
    if not buttons or (without and not spaces.keys):
        raise UserError(
            f"--human: there are no keys for the actions {', '.join(without or spaces.actions)} of {label(env)}; it can"
            ' name them in metadata["action_names"] (left, right, up, down, fire, none), or its keys in'
            " get_keys_to_action()"
        )
    return EnvironmentKeys(PersonKeys(buttons, _help(buttons, actions, spaces.actions), held=0 in actions), actions)


def _named(action: str) -> int | None:
    """The buttons of an action's name, such as up, or upfire; None if it has other words."""
    buttons = 0
    for word in _WORD.findall(action.lower()):
        buttons |= _WORDS[word]
    return None if _WORD.sub("", action.lower()).strip(" _+-") else buttons


def _help(buttons: dict[str, int], actions: dict[int, int], names: tuple[str, ...]) -> dict[str, str]:
    """What each key does alone; those that move are a group."""
    alone = {key: names[actions[button]] for key, button in buttons.items() if button in actions}
    moves = [key for key in alone if buttons[key] == MOVE_KEYS.get(key)]
    help = {"arrows or WASD": ", ".join(dict.fromkeys(alone[key] for key in moves))} if moves else {}
    return help | {key: name for key, name in alone.items() if key not in moves}
