"""The table of keys, from which bindings, the help screen and the palette are made; and what each panel shows, for the
help and the first dashboard.

No key is the prefix of tmux or screen (ctrl+b, ctrl+a) or flow control (ctrl+s, ctrl+q). The key map in the settings
reassigns an action by its id, `<place>.<action>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

from textual.binding import Binding, BindingType

from engine.protocol.metrics import CHARTS, COMPARED

Place = Literal["home", "form", "sweep", "compare", "charts", "dashboard", "play", "everywhere"]
PLACES: tuple[Place, ...] = get_args(Place)
TITLES: dict[Place, str] = {
    "home": "Home",
    "form": "New run",
    "sweep": "Sweep",
    "compare": "Compare",
    "charts": "Charts of event files",
    "dashboard": "Dashboard",
    "play": "mario-tui play",
    "everywhere": "Everywhere",
}


@dataclass(frozen=True)
class Key:
    """One action that the user can trigger."""

    action: str  # Textual action; the method is `action_<action>`
    keys: str  # comma-separated; the first one is shown
    label: str  # for the footer
    help: str  # for the help screen and the palette
    shown: bool = True  # in the footer
    group: str = ""  # neighbours with the same text share it in the footer, instead of their labels
    changes: bool = False  # starts, changes or deletes something: disabled in read-only mode
    place: Place = "everywhere"  # set by the table

    @property
    def id(self) -> str:
        """Name of the action in the settings' key map."""
        return f"{self.place}.{self.action}"


_more = partial(Key, shown=False)
"""A key that only the help and the palette name."""
_OF_CHARTS = (
    _more("zoom_in", "plus,equals_sign", "Zoom in", "Charts: zoom in (at the crosshair, if shown)"),
    _more("zoom_out", "minus", "Zoom out", "Charts: zoom out"),
    _more("whole", "0", "Everything", "Charts: show the whole x-range"),
    _more("pan_left", "shift+left,comma", "Earlier", "Charts: move left"),
    _more("pan_right", "shift+right,full_stop", "Later", "Charts: move right"),
    _more("cursor_left", "left", "Crosshair left", "Charts: move the crosshair left"),
    _more("cursor_right", "right", "Crosshair right", "Charts: move the crosshair right"),
    _more("smoothing", "m", "Smoothing", "Charts: switch the smoothing: none to strong"),
    _more("log_axis", "l", "Log axis", "Charts: switch between log and linear y-axis"),
    _more("x_axis", "t", "x-axis", "Charts: switch the x-axis: steps, training time, time before the end"),
    _more("save_chart", "E", "Save chart", "Charts: save the measured points as CSV, and a picture", changes=True),
)  # fmt: skip
"""The keys of every screen with charts."""
_OF_PANELS = (
    Key("maximise", "z", "Max", "Maximise the panel, or restore all panels"),
    _more("hide", "w", "Hide", "Hide the panel"),
    _more("show_all", "W", "Show all", "Show all panels"),
)
"""The keys of every screen with numbered panels."""
_LETTERS = ", ".join(
    (
        "i (time)",
        "b (processes)",
        "u (curriculum)",
        *(f"{each.key} ({each.short})" for each in CHARTS if each.key > "9"),
    )
)
_TABLE: dict[Place, tuple[Key, ...]] = {
    "home": (
        Key("open", "enter", "Open", "Open the dashboard of the selected run, or the selected sweep"),
        Key("new", "n", "New run", "Start a new run", changes=True),
        _more("new_like_it", "N", "New like it", "Start a new run with the options of the selected run", changes=True),
        Key(
            "resume_run", "r", "Resume",
            "Resume the selected run, or the marked ones (asks), from the newest checkpoint", changes=True,
        ),
        _more("watch", "w", "Watch", "Watch the best policy of the selected run play; without runs, a trained Mario"),
        _more("play", "p", "Play", "Play the game of the selected run yourself; without runs, Mario"),
        Key("mark", "space", "Mark", "Mark or unmark the selected run"),
        _more("mark_all", "A", "Mark all", "Mark all runs that the filter shows, or unmark them"),
        _more("annotate", "e", "Edit", "Edit the tags and the note of the selected run", changes=True),
        Key("compare", "c", "Compare", "Compare the marked runs (or plot the selected one) in a chart"),
        Key(
            "filter", "slash", "Filter",
            "Show only runs that match the typed words (name, state, game, #tag, n-step=3 ...)",
        ),
        _more("sort", "o", "Sort", "Sort by the next column; 1 to 9 sort by that column"),
        _more("reverse", "O", "Reverse", "Reverse the sort order"),
        _more("copy", "y", "Copy", "Show the run's command line and copy it to the clipboard"),
        _more(
            "stop", "x", "Stop", "Stop the marked runs or the selected one, each with a checkpoint (asks)",
            changes=True,
        ),
        _more(
            "pause", "P", "Pause", "Pause the marked runs or the selected one; if all are paused, continue them",
            changes=True,
        ),
        _more(
            "checkpoint", "C", "Checkpoint", "Have the marked runs or the selected one write a checkpoint",
            changes=True,
        ),
        _more("unfold", "f", "Unfold", "Show or hide the runs of the selected sweep"),
        Key("delete", "d,delete", "Delete", "Delete the marked runs or the selected one (asks)", changes=True),
        _more("clear", "escape", "Clear", "Clear the filter, then the marks"),
        _more("refresh", "f5", "Refresh", "Reload the list of runs"),
        _more("down", "j", "Down", "Select the next run"),
        _more("up", "k", "Up", "Select the previous run"),
        _more("first", "g,home", "First", "Select the first run"),
        _more("last", "G,end", "Last", "Select the last run"),
        Key("quit_app", "q", "Quit", "Quit; runs keep running"),
    ),
    "form": (
        Key("start", "ctrl+r", "Start", "Start the run (or press Enter on the Start button)", changes=True),
        Key("next_group", "f3,ctrl+n", "Next group", "Go to the next group of options"),
        _more("previous_group", "f2", "Previous group", "Go to the previous group of options"),
        _more("reset", "f4", "Defaults", "Reset all options to their defaults"),
        Key("cancel", "escape", "Cancel", "Go back without starting a run"),
    ),
    "sweep": (
        Key("open", "enter", "Runs", "Compare the runs of the selected setting"),
        Key("mark", "space", "Mark", "Mark or unmark the selected setting; two are compared with each other"),
        _more("mark_all", "A", "Mark all", "Mark all settings, or unmark them"),
        Key("next_view", "v", "View", "Switch the view: table, curves, options"),
        Key("statistic", "i", "IQM", "Switch between mean and interquartile mean over seeds"),
        Key("compare", "c", "Compare", "Compare the marked settings, or all, in all charts"),
        _more("sort", "o", "Sort", "Sort by the next column; 1 to 9 sort by that column"),
        _more("reverse", "O", "Reverse", "Reverse the sort order"),
        Key("export", "e", "Export", "Save the runs as CSV and the table as Markdown", changes=True),
        _more("copy", "y", "Copy", "Show the sweep's command line and copy it to the clipboard"),
        Key("stop", "x", "Stop", "Stop the sweep's runs, each with a checkpoint (asks)", changes=True),
        Key(
            "resume_sweep", "r", "Resume", "Resume the sweep: what waits, was stopped or has failed (asks)",
            changes=True,
        ),
        _more("next_panel", "tab", "Panel", "Go to the next part of the screen"),
        _more("down", "j", "Down", "Select the next setting"),
        _more("up", "k", "Up", "Select the previous setting"),
        _more("first", "g,home", "First", "Select the first setting"),
        _more("last", "G,end", "Last", "Select the last setting"),
        *_OF_CHARTS,
        Key("back", "escape", "Back", "Hide the crosshair, clear the marks, show the table, then go back"),
        _more("home", "h", "Home", "Go back to the list of runs"),
        _more("quit_app", "q", "Quit", "Quit; runs keep running"),
    ),
    "compare": (
        Key("show_hide", "space", "Show/hide", "Show or hide the selected run in the charts"),
        _more("show_hide_all", "A", "All", "Hide all runs but the pinned ones; show all if any is hidden"),
        Key("pin", "asterisk", "Pin", "Pin the selected run: first in the list, drawn over the others, never filtered"),
        _more("sort", "o", "Rank", "Rank by the next number: best evaluation, mean return, highest mean return, name"),
        Key("average", "M", "Mean", "Switch between runs and means over seeds, with 95 % intervals"),
        Key("filter", "slash", "Filter", "Show only runs that match the typed words (name, state, #tag, n-step=3 ...)"),
        Key("open", "enter", "Open", "Open the dashboard of the selected run, or maximise a chart"),
        _more("next_panel", "tab", "Panel", f"Go to the next panel; 1 to {3 + len(COMPARED)} select one"),
        *_OF_PANELS,
        *_OF_CHARTS,
        Key("back", "escape", "Back", "Hide the crosshair, clear the filter, restore all panels, then go back"),
        _more("home", "h", "Home", "Go back to the list of runs"),
        _more("quit_app", "q", "Quit", "Quit; runs keep running"),
    ),
    "charts": (
        Key("filter", "slash", "Filter", "Show only charts whose name matches the typed words"),
        Key("contents", "i", "Contents", "Show hyper-parameters, images, text and what else is in the files"),
        Key("average", "M", "Mean", "Switch between subfolders and means over seeds, with 95 % intervals"),
        _more("next_panel", "tab", "Chart", "Go to the next chart"),
        Key("maximise", "z,enter", "Max", "Maximise the chart, or restore all charts"),
        *_OF_CHARTS,
        Key("back", "escape", "Back", "Hide the crosshair, restore all charts, clear the filter, then go back"),
        _more("home", "h", "Home", "Go back to the list of runs"),
        _more("quit_app", "q", "Quit", "Quit; runs keep running"),
    ),
    "dashboard": (
        Key("toggle_pause", "p,space", "Pause", "Pause or resume training", changes=True),
        Key("save", "s", "Save", "Save the policy's weights for playing", changes=True),
        Key("checkpoint", "C", "Checkpoint", "Write a checkpoint to resume from", changes=True),
        _more(
            "evaluate", "v", "Evaluate", "Evaluate the policy: during the run, or of a run that has ended",
            changes=True,
        ),
        _more(
            "tune", "e", "Tune", "Change training settings: learning rate, epsilon, beta, replay ratio, gamma",
            changes=True,
        ),
        Key("toggle_game", "g", "Game", "Show or hide the rank-0 game; of a run that has ended, watch its policy play"),
        _more("eyes", "a", "Agent view", "Switch between the game and the agent's view of it"),
        _more("hold_game", "f", "Freeze", "Freeze or unfreeze the game's picture"),
        _more(
            "save_picture", "f12,P", "Picture", "Save the game's picture as a PNG file in the run's folder",
            changes=True,
        ),
        _more("next_panel", "tab", "Panel", f"Go to the next panel; 1 to 9, {_LETTERS} select one"),
        *_OF_PANELS,
        _more("open_selected", "enter", "Open", "Open the selected actor, or maximise a chart"),
        _more("filter", "slash", "Filter", "Show only log lines with the typed words"),
        _more("show_log", "L", "Log", "Show run.log, which also has what the run's processes print"),
        _more("sort", "o", "Sort", "Sort the actors by the next column"),
        _more("turn_sort", "O", "Reverse", "Reverse the sort order of the actors"),
        *_OF_CHARTS,
        Key("resume_run", "r", "Resume", "Resume the run from its newest checkpoint, once it has ended", changes=True),
        _more("next_run", "right_square_bracket", "Next run", "Go to the next run of the list, or of the sweep"),
        _more(
            "previous_run", "left_square_bracket", "Previous run",
            "Go to the previous run of the list, or of the sweep",
        ),
        _more("compare", "c", "Compare", "Compare the run with others of its game"),
        _more("copy", "y", "Copy", "Show the run's command line and copy it to the clipboard"),
        Key("stop", "x", "Stop", "Stop the run after a final checkpoint (asks)", changes=True),
        _more("back", "escape", "Back", "Hide the crosshair, restore all panels, then go back"),
        Key("home", "h", "Home", "Go back to the list of runs; training continues"),
        Key("detach", "q", "Quit", "Quit; training continues"),
    ),
    "play": (
        Key("toggle_pause", "space,p", "Pause", "Pause or resume the game"),
        Key("step", "full_stop", "Step", "Pause, then play one environment step at a time"),
        Key("slower", "minus", "Slower", "Halve the speed, down to 1/8", group="Speed"),
        Key("faster", "plus,equals_sign", "Faster", "Double the speed, up to 8 times", group="Speed"),
        _more("normal_speed", "0", "Normal speed", "Go back to normal speed"),
        Key("restart", "r", "Restart", "Restart the episode, from the same start"),
        Key("next_episode", "n", "Next", "Leave this episode for the next one"),
        Key("previous_stage", "left_square_bracket", "Previous stage", "Play the stage before this one", group="Stage"),
        Key("next_stage", "right_square_bracket", "Next stage", "Play the stage after this one", group="Stage"),
        _more("previous_world", "left_curly_bracket", "Previous world", "Play this stage of the world before"),
        _more("next_world", "right_curly_bracket", "Next world", "Play this stage of the next world"),
        Key("leave", "q,escape", "Quit", "End the game"),
    ),
    "everywhere": (
        Key("help", "question_mark,f1", "Help", "Show this help"),
        Key("command_palette", "ctrl+p", "Palette", "Find an action by name"),
        _more("suspend_process", "ctrl+z", "Suspend", "Suspend mario-tui; fg resumes it; runs continue"),
    ),
}  # fmt: skip
KEYS = tuple(replace(key, place=place) for place, keys in _TABLE.items() for key in keys)


def keys_in(place: Place) -> list[Key]:
    """The keys of a place."""
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
            group=Binding.Group(key.group, compact=True) if key.group else None,
        )
        for key in keys_in(place)
    ]


def first_key(id: str, keymap: Mapping[str, str]) -> str:
    """The first key of an action, by its id, for hints."""
    return shown_name(next(key for key in KEYS if key.id == id), keymap).split(" or ")[0]


def shown_name(key: Key, keymap: Mapping[str, str] | None = None) -> str:
    """All keys of an action in readable form: `p or space`."""
    names = {
        "question_mark": "?", "escape": "esc", "slash": "/", "plus": "+", "equals_sign": "=", "minus": "-",
        "comma": ",", "full_stop": ".", "asterisk": "*", "left_square_bracket": "[", "right_square_bracket": "]",
        "left_curly_bracket": "{", "right_curly_bracket": "}",
    }  # fmt: skip
    return " or ".join(names.get(name, name) for name in (keymap or {}).get(key.id, key.keys).split(","))


PANELS = {
    "Actors": "games that play at once; eps: the share of random actions",
    "Replay": "what the network learns from; settings that change",
    "Machine": "processor, memory and GPU",
    **{metric.title: metric.about for metric in CHARTS},
    "Evaluations": "episodes without random actions; the best policy is kept",
    "Game": "lane 0, and the expected return of each action",
}
"""By title, in the order of their keys."""
PANEL_KEYS = "".join(sorted({*"123456789ibu", *(metric.key for metric in CHARTS)}))
"""Select the panels of the dashboard."""
