"""The one table of keys: bindings, the help screen and the palette are made from it.

None of the keys is tmux's or screen's prefix (ctrl+b, ctrl+a) or flow control (ctrl+s, ctrl+q).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Place = Literal["home", "dashboard", "everywhere"]


@dataclass(frozen=True)
class Key:
    """One action of the person at the keyboard."""

    action: str  # Textual action; its method is `action_<action>`
    keys: str  # comma-separated, the first one is shown
    label: str  # in the footer
    help: str  # in help and palette
    place: Place
    shown: bool = True  # in the footer


KEYS = (
    Key("open", "enter", "Open", "Open the dashboard of the selected run", "home"),
    Key("new", "n", "New run", "Start a new run", "home"),
    Key("resume_run", "r", "Resume", "Go on with the selected run from its newest checkpoint", "home"),
    Key("refresh", "f5", "Refresh", "Read the list of runs again", "home", shown=False),
    Key("quit_app", "q", "Quit", "Leave; running runs go on", "home"),
    Key("toggle_pause", "p,space", "Pause", "Pause or resume training", "dashboard"),
    Key("save", "s", "Save", "Save the policy's weights for playing", "dashboard"),
    Key("checkpoint", "c", "Checkpoint", "Write a checkpoint for exact resume", "dashboard"),
    Key("toggle_game", "g", "Game", "Show or hide the rank-0 game", "dashboard"),
    Key("stop", "x", "Stop", "Stop the run after a last checkpoint (asks)", "dashboard"),
    Key("home", "escape,h", "Home", "Back to the list of runs; training goes on", "dashboard"),
    Key("detach", "q,d", "Detach", "Leave; training goes on", "dashboard"),
    Key("help", "question_mark,f1", "Help", "Show this help", "everywhere"),
    Key("command_palette", "ctrl+p", "Palette", "Find an action by its name", "everywhere"),
)


def bindings(place: Place) -> list[BindingType]:
    """Textual bindings of a place."""
    return [
        Binding(
            key.keys,
            key.action,
            key.label,
            show=key.shown,
            priority=key.keys == "enter",  # a table keeps Enter to itself, even when it has no row
            tooltip=key.help,
            id=f"{place}.{key.action}",
        )
        for key in KEYS
        if key.place == place
    ]


def shown_name(key: Key) -> str:
    """All keys of an action as people call them: `p or space`."""
    names = {"question_mark": "?", "escape": "esc"}
    return " or ".join(names.get(name, name) for name in key.keys.split(","))
