"""The table of keys, from which bindings, the help screen and the palette are made; and what each panel shows, for the
help and the first dashboard.

No key is the prefix of tmux or screen (ctrl+b, ctrl+a) or flow control (ctrl+s, ctrl+q). The key map in the settings
reassigns an action by its id, `<place>.<action>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    place: Place
    shown: bool = True  # in the footer
    group: str = ""  # neighbours with the same text share it in the footer, instead of their labels
    changes: bool = False  # starts, changes or deletes something: disabled in read-only mode

    @property
    def id(self) -> str:
        """Name of the action in the settings' key map."""
        return f"{self.place}.{self.action}"


def _of_charts(place: Place) -> tuple[Key, ...]:
    """The keys of every screen with charts."""
    return (
        Key(
            "zoom_in", "plus,equals_sign", "Zoom in", "Charts: zoom in (at the crosshair, if shown)", place,
            shown=False,
        ),
        Key("zoom_out", "minus", "Zoom out", "Charts: zoom out", place, shown=False),
        Key("whole", "0", "Everything", "Charts: show the whole x-range", place, shown=False),
        Key("pan_left", "shift+left,comma", "Earlier", "Charts: move left", place, shown=False),
        Key("pan_right", "shift+right,full_stop", "Later", "Charts: move right", place, shown=False),
        Key("cursor_left", "left", "Crosshair left", "Charts: move the crosshair left", place, shown=False),
        Key("cursor_right", "right", "Crosshair right", "Charts: move the crosshair right", place, shown=False),
        Key("smoothing", "m", "Smoothing", "Charts: switch the smoothing: none to strong", place, shown=False),
        Key("log_axis", "l", "Log axis", "Charts: switch between log and linear y-axis", place, shown=False),
        Key(
            "x_axis", "t", "x-axis", "Charts: switch the x-axis: steps, training time, time before the end", place,
            shown=False,
        ),
        Key(
            "save_chart", "E", "Save chart", "Charts: save the measured points as CSV, and a picture", place,
            shown=False, changes=True,
        ),
    )  # fmt: skip


def _of_panels(place: Place) -> tuple[Key, ...]:
    """The keys of every screen with numbered panels."""
    return (
        Key("maximise", "z", "Max", "Maximise the panel, or restore all panels", place),
        Key("hide", "w", "Hide", "Hide the panel", place, shown=False),
        Key("show_all", "W", "Show all", "Show all panels", place, shown=False),
    )


_LETTERS = ", ".join(
    (
        "i (time)",
        "b (processes)",
        "u (curriculum)",
        *(f"{each.key} ({each.short})" for each in CHARTS if each.key > "9"),
    )
)
KEYS = (
    Key("open", "enter", "Open", "Open the dashboard of the selected run, or the selected sweep", "home"),
    Key("new", "n", "New run", "Start a new run", "home", changes=True),
    Key(
        "new_like_it", "N", "New like it", "Start a new run with the options of the selected run", "home", shown=False,
        changes=True,
    ),
    Key(
        "resume_run", "r", "Resume", "Resume the selected run, or the marked ones (asks), from the newest checkpoint",
        "home", changes=True,
    ),
    Key(
        "watch", "w", "Watch", "Watch the best policy of the selected run play; without runs, a trained Mario", "home",
        shown=False,
    ),
    Key("play", "p", "Play", "Play the game of the selected run yourself; without runs, Mario", "home", shown=False),
    Key("mark", "space", "Mark", "Mark or unmark the selected run", "home"),
    Key("mark_all", "A", "Mark all", "Mark all runs that the filter shows, or unmark them", "home", shown=False),
    Key("annotate", "e", "Edit", "Edit the tags and the note of the selected run", "home", shown=False, changes=True),
    Key("compare", "c", "Compare", "Compare the marked runs (or plot the selected one) in a chart", "home"),
    Key(
        "filter", "slash", "Filter",
        "Show only runs that match the typed words (name, state, game, #tag, n-step=3 ...)", "home",
    ),
    Key("sort", "o", "Sort", "Sort by the next column; 1 to 9 sort by that column", "home", shown=False),
    Key("reverse", "O", "Reverse", "Reverse the sort order", "home", shown=False),
    Key("copy", "y", "Copy", "Show the run's command line and copy it to the clipboard", "home", shown=False),
    Key(
        "stop", "x", "Stop", "Stop the marked runs or the selected one, each with a checkpoint (asks)", "home",
        shown=False, changes=True,
    ),
    Key(
        "pause", "P", "Pause", "Pause the marked runs or the selected one; if all are paused, continue them", "home",
        shown=False, changes=True,
    ),
    Key(
        "checkpoint", "C", "Checkpoint", "Have the marked runs or the selected one write a checkpoint", "home",
        shown=False, changes=True,
    ),
    Key("unfold", "f", "Unfold", "Show or hide the runs of the selected sweep", "home", shown=False),
    Key("delete", "d,delete", "Delete", "Delete the marked runs or the selected one (asks)", "home", changes=True),
    Key("clear", "escape", "Clear", "Clear the filter, then the marks", "home", shown=False),
    Key("refresh", "f5", "Refresh", "Reload the list of runs", "home", shown=False),
    Key("down", "j", "Down", "Select the next run", "home", shown=False),
    Key("up", "k", "Up", "Select the previous run", "home", shown=False),
    Key("first", "g,home", "First", "Select the first run", "home", shown=False),
    Key("last", "G,end", "Last", "Select the last run", "home", shown=False),
    Key("quit_app", "q", "Quit", "Quit; runs keep running", "home"),
    Key("start", "ctrl+r", "Start", "Start the run (or press Enter on the Start button)", "form", changes=True),
    Key("next_group", "f3,ctrl+n", "Next group", "Go to the next group of options", "form"),
    Key("previous_group", "f2", "Previous group", "Go to the previous group of options", "form", shown=False),
    Key("reset", "f4", "Defaults", "Reset all options to their defaults", "form", shown=False),
    Key("cancel", "escape", "Cancel", "Go back without starting a run", "form"),
    Key("open", "enter", "Runs", "Compare the runs of the selected setting", "sweep"),
    Key("mark", "space", "Mark", "Mark or unmark the selected setting; two are compared with each other", "sweep"),
    Key("mark_all", "A", "Mark all", "Mark all settings, or unmark them", "sweep", shown=False),
    Key("next_view", "v", "View", "Switch the view: table, curves, options", "sweep"),
    Key("statistic", "i", "IQM", "Switch between mean and interquartile mean over seeds", "sweep"),
    Key("compare", "c", "Compare", "Compare the marked settings, or all, in all charts", "sweep"),
    Key("sort", "o", "Sort", "Sort by the next column; 1 to 9 sort by that column", "sweep", shown=False),
    Key("reverse", "O", "Reverse", "Reverse the sort order", "sweep", shown=False),
    Key("export", "e", "Export", "Save the runs as CSV and the table as Markdown", "sweep", changes=True),
    Key("copy", "y", "Copy", "Show the sweep's command line and copy it to the clipboard", "sweep", shown=False),
    Key("stop", "x", "Stop", "Stop the sweep's runs, each with a checkpoint (asks)", "sweep", changes=True),
    Key(
        "resume_sweep", "r", "Resume", "Resume the sweep: what waits, was stopped or has failed (asks)", "sweep",
        changes=True,
    ),
    Key("next_panel", "tab", "Panel", "Go to the next part of the screen", "sweep", shown=False),
    Key("down", "j", "Down", "Select the next setting", "sweep", shown=False),
    Key("up", "k", "Up", "Select the previous setting", "sweep", shown=False),
    Key("first", "g,home", "First", "Select the first setting", "sweep", shown=False),
    Key("last", "G,end", "Last", "Select the last setting", "sweep", shown=False),
    *_of_charts("sweep"),
    Key("back", "escape", "Back", "Hide the crosshair, clear the marks, show the table, then go back", "sweep"),
    Key("home", "h", "Home", "Go back to the list of runs", "sweep", shown=False),
    Key("quit_app", "q", "Quit", "Quit; runs keep running", "sweep", shown=False),
    Key("show_hide", "space", "Show/hide", "Show or hide the selected run in the charts", "compare"),
    Key(
        "show_hide_all", "A", "All", "Hide all runs but the pinned ones; show all if any is hidden", "compare",
        shown=False,
    ),
    Key(
        "pin", "asterisk", "Pin", "Pin the selected run: first in the list, drawn over the others, never filtered",
        "compare",
    ),
    Key(
        "sort", "o", "Rank", "Rank by the next number: best evaluation, mean return, highest mean return, name",
        "compare", shown=False,
    ),
    Key("average", "M", "Mean", "Switch between runs and means over seeds, with 95 % intervals", "compare"),
    Key(
        "filter", "slash", "Filter", "Show only runs that match the typed words (name, state, #tag, n-step=3 ...)",
        "compare",
    ),
    Key("open", "enter", "Open", "Open the dashboard of the selected run, or maximise a chart", "compare"),
    Key(
        "next_panel", "tab", "Panel", f"Go to the next panel; 1 to {3 + len(COMPARED)} select one", "compare",
        shown=False,
    ),
    *_of_panels("compare"),
    *_of_charts("compare"),
    Key("back", "escape", "Back", "Hide the crosshair, clear the filter, restore all panels, then go back", "compare"),
    Key("home", "h", "Home", "Go back to the list of runs", "compare", shown=False),
    Key("quit_app", "q", "Quit", "Quit; runs keep running", "compare", shown=False),
    Key("filter", "slash", "Filter", "Show only charts whose name matches the typed words", "charts"),
    Key("contents", "i", "Contents", "Show hyper-parameters, images, text and what else is in the files", "charts"),
    Key("average", "M", "Mean", "Switch between subfolders and means over seeds, with 95 % intervals", "charts"),
    Key("next_panel", "tab", "Chart", "Go to the next chart", "charts", shown=False),
    Key("maximise", "z,enter", "Max", "Maximise the chart, or restore all charts", "charts"),
    *_of_charts("charts"),
    Key("back", "escape", "Back", "Hide the crosshair, restore all charts, clear the filter, then go back", "charts"),
    Key("home", "h", "Home", "Go back to the list of runs", "charts", shown=False),
    Key("quit_app", "q", "Quit", "Quit; runs keep running", "charts", shown=False),
    Key("toggle_pause", "p,space", "Pause", "Pause or resume training", "dashboard", changes=True),
    Key("save", "s", "Save", "Save the policy's weights for playing", "dashboard", changes=True),
    Key("checkpoint", "C", "Checkpoint", "Write a checkpoint to resume from", "dashboard", changes=True),
    Key(
        "evaluate", "v", "Evaluate", "Evaluate the policy: during the run, or of a run that has ended", "dashboard",
        shown=False, changes=True,
    ),
    Key(
        "tune", "e", "Tune", "Change training settings: learning rate, epsilon, beta, replay ratio, gamma", "dashboard",
        shown=False, changes=True,
    ),
    Key(
        "toggle_game", "g", "Game", "Show or hide the rank-0 game; of a run that has ended, watch its policy play",
        "dashboard",
    ),
    Key("eyes", "a", "Agent view", "Switch between the game and the agent's view of it", "dashboard", shown=False),
    Key("hold_game", "f", "Freeze", "Freeze or unfreeze the game's picture", "dashboard", shown=False),
    Key(
        "save_picture", "f12,P", "Picture", "Save the game's picture as a PNG file in the run's folder", "dashboard",
        shown=False, changes=True,
    ),
    Key("next_panel", "tab", "Panel", f"Go to the next panel; 1 to 9, {_LETTERS} select one", "dashboard", shown=False),
    *_of_panels("dashboard"),
    Key("open_selected", "enter", "Open", "Open the selected actor, or maximise a chart", "dashboard", shown=False),
    Key("filter", "slash", "Filter", "Show only log lines with the typed words", "dashboard", shown=False),
    Key(
        "show_log", "L", "Log", "Show run.log, which also has what the run's processes print", "dashboard", shown=False
    ),
    Key("sort", "o", "Sort", "Sort the actors by the next column", "dashboard", shown=False),
    Key("turn_sort", "O", "Reverse", "Reverse the sort order of the actors", "dashboard", shown=False),
    *_of_charts("dashboard"),
    Key(
        "resume_run", "r", "Resume", "Resume the run from its newest checkpoint, once it has ended", "dashboard",
        changes=True,
    ),
    Key(
        "next_run", "right_square_bracket", "Next run", "Go to the next run of the list, or of the sweep", "dashboard",
        shown=False,
    ),
    Key(
        "previous_run", "left_square_bracket", "Previous run", "Go to the previous run of the list, or of the sweep",
        "dashboard", shown=False,
    ),
    Key("compare", "c", "Compare", "Compare the run with others of its game", "dashboard", shown=False),
    Key("copy", "y", "Copy", "Show the run's command line and copy it to the clipboard", "dashboard", shown=False),
    Key("stop", "x", "Stop", "Stop the run after a final checkpoint (asks)", "dashboard", changes=True),
    Key("back", "escape", "Back", "Hide the crosshair, restore all panels, then go back", "dashboard", shown=False),
    Key("home", "h", "Home", "Go back to the list of runs; training continues", "dashboard"),
    Key("detach", "q", "Quit", "Quit; training continues", "dashboard"),
    Key("toggle_pause", "space,p", "Pause", "Pause or resume the game", "play"),
    Key("step", "full_stop", "Step", "Pause, then play one environment step at a time", "play"),
    Key("slower", "minus", "Slower", "Halve the speed, down to 1/8", "play", group="Speed"),
    Key("faster", "plus,equals_sign", "Faster", "Double the speed, up to 8 times", "play", group="Speed"),
    Key("normal_speed", "0", "Normal speed", "Go back to normal speed", "play", shown=False),
    Key("restart", "r", "Restart", "Restart the episode, from the same start", "play"),
    Key("next_episode", "n", "Next", "Leave this episode for the next one", "play"),
    Key(
        "previous_stage", "left_square_bracket", "Previous stage", "Play the stage before this one", "play",
        group="Stage",
    ),
    Key("next_stage", "right_square_bracket", "Next stage", "Play the stage after this one", "play", group="Stage"),
    Key(
        "previous_world", "left_curly_bracket", "Previous world", "Play this stage of the world before", "play",
        shown=False,
    ),
    Key("next_world", "right_curly_bracket", "Next world", "Play this stage of the next world", "play", shown=False),
    Key("leave", "q,escape", "Quit", "End the game", "play"),
    Key("help", "question_mark,f1", "Help", "Show this help", "everywhere"),
    Key("command_palette", "ctrl+p", "Palette", "Find an action by name", "everywhere"),
    Key(
        "suspend_process", "ctrl+z", "Suspend", "Suspend mario-tui; fg resumes it; runs continue", "everywhere",
        shown=False,
    ),
)  # fmt: skip


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
