"""The one table of keys: bindings, the help screen, the palette and the user's key map are made from it.

None of the keys is tmux's or screen's prefix (ctrl+b, ctrl+a) or flow control (ctrl+s, ctrl+q). A key map (from the
settings) gives an action other keys by its id, `<place>.<action>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from textual.binding import Binding, BindingType

Place = Literal["home", "form", "compare", "charts", "dashboard", "everywhere"]
PLACES: tuple[Place, ...] = get_args(Place)
TITLES: dict[Place, str] = {
    "home": "Home",
    "form": "New run",
    "compare": "Compare",
    "charts": "Charts of event files",
    "dashboard": "Dashboard",
    "everywhere": "Everywhere",
}


@dataclass(frozen=True)
class Key:
    """One action of the person at the keyboard."""

    action: str  # Textual action; its method is `action_<action>`
    keys: str  # comma-separated, the first one is shown
    label: str  # in the footer
    help: str  # in help and palette
    place: Place
    shown: bool = True  # in the footer
    changes: bool = False  # starts, changes or removes something: not there in read-only mode

    @property
    def id(self) -> str:
        """Its name in the key map of the settings."""
        return f"{self.place}.{self.action}"


KEYS = (
    Key("open", "enter", "Open", "Open the dashboard of the selected run", "home"),
    Key("new", "n", "New run", "Start a new run", "home", changes=True),
    Key("resume_run", "r", "Resume", "Go on with the selected run from its newest checkpoint", "home", changes=True),
    Key("mark", "space", "Mark", "Mark the selected run, or take the mark away", "home"),
    Key("compare", "c", "Compare", "Compare the marked runs (or the selected one) in one chart", "home"),
    Key("filter", "slash", "Filter", "Show only runs whose name, state, game ... contain what you type", "home"),
    Key("sort", "s", "Sort", "Sort by the next column (or click its title)", "home", shown=False),
    Key("reverse", "S", "Reverse", "Sort the other way round", "home", shown=False),
    Key("copy", "y", "Copy", "Show the run's command line and copy it to the clipboard", "home", shown=False),
    Key("delete", "d,delete", "Delete", "Delete the marked runs (or the selected one; asks)", "home", changes=True),
    Key("clear", "escape", "Clear", "Take away filter and marks", "home", shown=False),
    Key("refresh", "f5", "Refresh", "Read the list of runs again", "home", shown=False),
    Key("quit_app", "q", "Quit", "Leave; running runs go on", "home"),
    Key("start", "ctrl+r", "Start", "Start the run (so does Enter)", "form", changes=True),
    Key("next_group", "f3,ctrl+n", "Next group", "The next group of options", "form"),
    Key("previous_group", "f2", "Previous group", "The previous group of options", "form", shown=False),
    Key("reset", "f4", "Defaults", "All options back to their defaults", "form", shown=False),
    Key("cancel", "escape", "Cancel", "Back without starting", "form"),
    Key("metric", "m", "Metric", "Compare the next number: return, loss, Q estimate, speed", "compare"),
    Key("axis", "x", "Axis", "Over environment steps, or over time", "compare"),
    Key("back", "escape,q,h", "Back", "Back to the list of runs", "compare"),
    Key("axis", "x", "Axis", "Over steps, or over time", "charts"),
    Key("filter", "slash", "Filter", "Show only charts whose name contains what you type", "charts"),
    Key("back", "escape,h", "Home", "Away with the filter, then back to the list of runs", "charts"),
    Key("leave", "q", "Quit", "Leave", "charts"),
    Key("toggle_pause", "p,space", "Pause", "Pause or resume training", "dashboard", changes=True),
    Key("save", "s", "Save", "Save the policy's weights for playing", "dashboard", changes=True),
    Key("checkpoint", "c", "Checkpoint", "Write a checkpoint for exact resume", "dashboard", changes=True),
    Key("evaluate", "v", "Evaluate", "Play the greedy evaluation now", "dashboard", shown=False, changes=True),
    Key(
        "tune",
        "e",
        "Numbers",
        "Change learning rate, epsilon, beta or replay ratio",
        "dashboard",
        shown=False,
        changes=True,
    ),
    Key("toggle_game", "g", "Game", "Show or hide the rank-0 game", "dashboard"),
    Key("eyes", "y", "Eyes", "The game as the agent sees it, or as people do", "dashboard", shown=False),
    Key("hold_game", "f", "Hold", "Hold the game's picture, or go on", "dashboard", shown=False),
    Key(
        "save_picture",
        "f12,P",
        "Picture",
        "Save the game's picture as PNG in the run's folder",
        "dashboard",
        shown=False,
        changes=True,
    ),
    Key(
        "next_panel",
        "tab",
        "Panel",
        "To the next panel; 1 to 9, i (time), n (processes), u (phase): that one",
        "dashboard",
        shown=False,
    ),
    Key("maximise", "z", "Max", "The panel alone on the screen, or all again", "dashboard"),
    Key("hide", "w", "Hide", "Hide the panel", "dashboard", shown=False),
    Key("show_all", "W", "Show all", "Show every panel", "dashboard", shown=False),
    Key(
        "open_selected",
        "enter",
        "Open",
        "The selected actor with its episodes; a chart alone",
        "dashboard",
        shown=False,
    ),
    Key("sort", "o", "Order", "Order the actors by the next column", "dashboard", shown=False),
    Key("turn_sort", "O", "Turn order", "Turn the order of the actors round", "dashboard", shown=False),
    Key(
        "zoom_in",
        "plus,equals_sign",
        "Zoom in",
        "Charts: zoom in, at the crosshair if there is one",
        "dashboard",
        shown=False,
    ),
    Key("zoom_out", "minus", "Zoom out", "Charts: zoom out", "dashboard", shown=False),
    Key("whole", "0", "Whole run", "Charts: the whole run", "dashboard", shown=False),
    Key("pan_left", "shift+left,comma", "Earlier", "Charts: move to the left", "dashboard", shown=False),
    Key("pan_right", "shift+right,full_stop", "Later", "Charts: move to the right", "dashboard", shown=False),
    Key(
        "cursor_left", "left", "Crosshair left", "Charts: crosshair with values, to the left", "dashboard", shown=False
    ),
    Key("cursor_right", "right", "Crosshair right", "Charts: crosshair to the right", "dashboard", shown=False),
    Key("smoothing", "m", "Smoothing", "Charts: none, or averages over more and more points", "dashboard", shown=False),
    Key("log_axis", "l", "Log axis", "Chart: logarithmic y axis, or linear", "dashboard", shown=False),
    Key("x_axis", "t", "x axis", "Charts: steps, trained time, or time before now", "dashboard", shown=False),
    Key("stop", "x", "Stop", "Stop the run after a last checkpoint (asks)", "dashboard", changes=True),
    Key(
        "back", "escape", "Back", "Back: from crosshair, from one panel, to the list of runs", "dashboard", shown=False
    ),
    Key("home", "h", "Home", "Back to the list of runs; training goes on", "dashboard"),
    Key("detach", "q,d", "Leave", "Leave; training goes on", "dashboard"),
    Key("help", "question_mark,f1", "Help", "Show this help", "everywhere"),
    Key("command_palette", "ctrl+p", "Palette", "Find an action by its name", "everywhere"),
)


def keys_in(place: Place) -> list[Key]:
    """The table's part for a place."""
    return [key for key in KEYS if key.place == place]


def bindings(place: Place) -> list[BindingType]:
    """Textual bindings of a place."""
    return [
        Binding(
            key.keys,
            key.action,
            key.label,
            show=key.shown,
            tooltip=key.help,
            id=key.id,
        )
        for key in keys_in(place)
    ]


def first_key(id: str, keymap: Mapping[str, str]) -> str:
    """The key that a hint names, by the action's id."""
    return shown_name(next(key for key in KEYS if key.id == id), keymap).split(" or ")[0]


def shown_name(key: Key, keymap: Mapping[str, str] | None = None) -> str:
    """All keys of an action as people call them: `p or space`."""
    names = {
        "question_mark": "?", "escape": "esc", "slash": "/", "plus": "+", "equals_sign": "=", "minus": "-",
        "comma": ",", "full_stop": ".",
    }  # fmt: skip
    return " or ".join(names.get(name, name) for name in (keymap or {}).get(key.id, key.keys).split(","))
