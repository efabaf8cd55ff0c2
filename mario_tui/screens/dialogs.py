"""Dialogs: a question, a text to copy, the help, a lane of an actor, a run's log, its tags and note, and training
settings."""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast, get_args

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Resize
from textual.screen import ScreenResultType
from textual.widgets import Button, Input, Label, Log, Static

from engine.config.fields import must_be_within
from engine.config.run_config import TUNABLE_BOUNDS
from engine.errors import UserError
from engine.protocol.commands import Set, Tunable
from engine.protocol.messages import Episode, Lane
from engine.protocol.outcome import Outcome
from engine.runs.run import Annotation, Run, make_annotation
from engine.runtime.text import printable
from mario_tui.data.format import counted, goals, number, number_or_whole, reached, short, thousandths
from mario_tui.data.keys import KEYS, PANELS, PLACES, TITLES, Key, Place, keys_in, shown_name
from mario_tui.data.run_log import RunLog
from mario_tui.data.settings import settings_path
from mario_tui.screens.base import Modal
from mario_tui.terminal.internals import AbstractMeta
from mario_tui.terminal.safe_app import SafeApp
from mario_tui.widgets.base.panel import sparkline


class ConfirmScreen(Modal[bool]):
    """A yes/no question: y means yes, Escape or n means no; or click a button. Enter presses the focused button: at
    first Yes, but No if yes would be `irreversible`."""

    BINDINGS = [Binding("y", "answer(True)", "Yes"), Binding("escape,n", "answer(False)", "No")]
    AUTO_FOCUS = ""

    def __init__(self, question: str, consequence: str, *, irreversible: bool = False) -> None:
        super().__init__()
        self._question, self._consequence, self._irreversible = question, consequence, irreversible

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question, style="bold"))
            yield Static(Text(self._consequence))
            with Horizontal(classes="buttons"):
                yes, no = ("y", "n, esc or enter") if self._irreversible else ("y or enter", "n or esc")
                yield Button(f"Yes ({yes})", id="yes", compact=True, action="screen.answer(True)")
                yield Button(f"No ({no})", id="no", compact=True, action="screen.answer(False)")

    def on_mount(self) -> None:
        self.set_focus(self.query_one("#no" if self._irreversible else "#yes"))

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class TextScreen(Modal[None]):
    """Lines, also copied to the clipboard if the terminal supports it. A shell takes several for one command."""

    BINDINGS = [Binding("escape,q,y,enter", "dismiss", "Close")]

    def __init__(self, title: str, *lines: str) -> None:
        super().__init__()
        self._heading, self._text = title, " &&\n".join(map(printable, lines))

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = Text(printable(self._heading))  # as a Text: it may contain square brackets
            yield Static(Text(self._text), id="text")
            yield Static(Text("copied, if your terminal supports OSC 52      esc: close", style="dim"))

    def on_mount(self) -> None:
        cast(SafeApp[object], self.app).copy_to_clipboard(self._text, lines=True)


class HelpScreen(Modal[None]):
    """Keys and their actions, from the key table and the user's key map. First what a newcomer needs: the panels, the
    keys of a person's game (`own`), and the keys in the footer of `place`; then all others."""

    BINDINGS = [Binding("escape,q,question_mark,f1,enter", "dismiss", "Close")]

    def __init__(
        self,
        place: Place,
        keymap: Mapping[str, str],
        own: Mapping[str, str] | None = None,
        *,
        works: Callable[[Key], object] = lambda key: True,
    ) -> None:
        """`works`: whether a key of this place does something now; the others are left out."""
        super().__init__()
        self._place, self._keymap, self._own, self._works = place, keymap, own or {}, works

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-normal")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "Help"
            yield Static(id="keys")
            yield Static(Text(f'change keys in {settings_path()}:\n[keys]\n"home.new" = "a,f2"', style="dim"))
            yield Static(Text("esc: close", style="dim"))

    def on_resize(self, event: Resize) -> None:
        """Two columns; on a narrow screen the description goes below the key."""
        narrow = event.size.width < 64
        self.query_one("#keys", Static).update(Group(*(self._under() if narrow else self._beside())))

    def _parts(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Titles, and under each the keys and what they do."""
        parts = [("Your game", list(self._own.items()))] if self._own else []
        if self._place == "dashboard":
            parts.append(("Panels", list(PANELS.items())))
        here = [key for key in keys_in(self._place) if self._works(key)]
        parts.append((TITLES[self._place], self._named([key for key in here if key.shown])))
        parts.append(("Everywhere", self._named(keys_in("everywhere"))))
        parts.append((f"{TITLES[self._place]}: more keys", self._named([key for key in here if not key.shown])))
        if self._place != "play":  # a program of its own
            others = [place for place in PLACES if place not in (self._place, "everywhere")]
            parts += [(TITLES[place], self._named(keys_in(place))) for place in others]
        return parts

    def _named(self, keys: list[Key]) -> list[tuple[str, str]]:
        return [(shown_name(key, self._keymap), key.help) for key in keys]

    def _under(self) -> list[Text]:
        parts: list[Text] = []
        for title, keys in self._parts():
            parts.append(Text(title, style="bold"))
            for name, action in keys:
                parts += [Text(name, style="bold cyan", no_wrap=True), Text(action)]
            parts.append(Text())
        return parts

    def _beside(self) -> list[Text | Table]:
        parts: list[Text | Table] = []
        widest = max(len(shown_name(key, self._keymap)) for key in KEYS)
        for title, keys in self._parts():
            table = Table.grid(Column(min_width=widest), Column(), padding=(0, 2))
            for name, action in keys:
                table.add_row(Text(name, style="bold cyan"), action)
            parts += [Text(title, style="bold"), table, Text()]
        return parts


_TICK_S = 0.5


class ActorScreen(Modal[None]):
    """`lane` returns the lane's newest statistics, `episodes` its last episodes, oldest first, `outcome` says what they
    yield."""

    BINDINGS = [Binding("escape,q,enter", "dismiss", "Close")]

    def __init__(
        self, lane: Callable[[], Lane | None], episodes: Callable[[], Sequence[Episode]], outcome: Outcome
    ) -> None:
        super().__init__()
        self._lane, self._episodes, self._outcome = lane, episodes, outcome
        self._shown = Text()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog"):
            yield Static(id="actor")
            yield Static(Text("esc: close", style="dim"))

    def on_mount(self) -> None:
        self._show()
        self.set_interval(_TICK_S, self._show)

    def _show(self) -> None:
        lane = self._lane()
        if lane is None:
            return
        self.query_one(VerticalScroll).border_title = f"Actor {lane.actor}, lane {lane.lane}"
        text = describe(lane, self._episodes(), self._outcome)
        if text != self._shown:
            self._shown = text
            self.query_one("#actor", Static).update(text)


_LOG_BYTES, _LOG_LINES = 2**18, 5000
"""Of the end of a log, how much is shown."""


class LogScreen(Modal[None]):
    """The newest lines of a run's log; at the last one it follows the run."""

    BINDINGS = [Binding("escape,q,L,enter", "dismiss", "Close")]

    def __init__(self, run: Run) -> None:
        """Raises `OSError` if the log can't be read."""
        super().__init__()
        self._heading, self._log = f"{run.name}: {run.log_path.name}", RunLog(run, _LOG_BYTES)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Text(printable(self._heading))
            yield Log(max_lines=_LOG_LINES)
            yield Static(Text("esc: close", style="dim"))

    def on_mount(self) -> None:
        self._show()
        self.set_interval(_TICK_S, self._show)

    def on_unmount(self) -> None:
        self._log.close()

    def _show(self) -> None:
        shown = self.query_one(Log)
        while text := self._log.news():
            shown.write(printable(text, lines=True))


def describe(lane: Lane, episodes: Sequence[Episode], outcome: Outcome) -> Text:
    """The text of the dialog."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{counted(lane.episodes, 'episode')}, epsilon {thousandths(lane.epsilon)}")
    text.append(f"{goals(outcome, lane.clears)}\n")
    returns = number_or_whole(lane.last_return), number(lane.mean_return), number_or_whole(lane.best_return)
    for name, value in zip(("last", f"mean of {len(lane.returns)}", "best"), returns, strict=True):
        text.append(f"{name} ", style="dim").append(f"{value}   ", style="bold")
    best = reached(outcome, lane.best_results)
    text.append(f"best {best}\n\n" if best else "\n\n")
    if lane.returns:
        text.append(sparkline(lane.returns, 20), style="cyan")
        text.append(
            f"  last {counted(len(lane.returns), 'return')}, {number_or_whole(min(lane.returns))} to "
            f"{number_or_whole(max(lane.returns))}\n\n"
        )
    if not episodes:
        return text.append("no finished episode since the dashboard was opened", style="dim")
    text.append(f"{'at step':>8} {'episode':>8} {'return':>8} {'steps':>6} {'epsilon':>8}  reached", style="bold")
    for episode in reversed(episodes):
        text.append(
            f"\n{short(episode.env_steps):>8} {episode.episode:>8,} {number_or_whole(episode.episode_return):>8}"
            f" {episode.length:>6} {thousandths(episode.epsilon):>8}  {reached(outcome, episode.results)}"
        )
        if episode.success and outcome.goal is not None:
            text.append(f"  ⚑ {outcome.goal.label}", style="bold yellow")
    return text


class FormScreen(Modal[ScreenResultType], metaclass=AbstractMeta):
    """A dialog with fields, which tells below them what is wrong with what is typed. Enter returns the answer, unless
    something is; Escape returns None."""

    BINDINGS = [
        Binding("escape", "dismiss", "Cancel"),
        Binding("down", "app.focus_next"),
        Binding("up", "app.focus_previous"),
    ]

    def form(self, title: str, does: str, fields: Iterable[tuple[str, str, str, str]]) -> ComposeResult:
        """`does`: what Enter does. `fields`: id, label, text and accepted range of each."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Text(printable(title))
            for id, label, text, accepted in fields:
                with Horizontal(classes="field"):
                    yield Label(label)
                    yield Input(text, id=id, compact=True)
                    if accepted:
                        yield Label(accepted, classes="range")
            yield Static(id="error")
            yield Static(Text(f"enter: {does}      tab: next field      esc: cancel", style="dim"))

    @abstractmethod
    def answer(self) -> ScreenResultType:
        """What is typed. Raises `UserError` that tells what is wrong with the first invalid field."""

    def typed(self, id: str) -> str:
        return self.query_one(f"#{id}", Input).value.strip()

    def on_input_changed(self, event: Input.Changed) -> None:
        error = ""
        try:
            self.answer()
        except UserError as wrong:
            error = str(wrong)
        self.query_one("#error", Static).update(Text(error, style="bold red"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        with contextlib.suppress(UserError):  # its reason is on the screen
            self.dismiss(self.answer())


class AnnotateScreen(FormScreen[Annotation]):
    """Returns the new annotation."""

    def __init__(self, name: str, now: Annotation) -> None:
        super().__init__()
        self._run_name, self._now = name, now

    def compose(self) -> ComposeResult:
        texts = (("tags", " ".join(self._now.tags)), ("note", self._now.note))
        yield from self.form(self._run_name, "save", [(id, f"{id:<6}", printable(text), "") for id, text in texts])

    def answer(self) -> Annotation:
        return make_annotation(self.typed("tags"), self.typed("note"))


SETTINGS: dict[Tunable, tuple[str, float, float]] = {
    name: (name.replace("_", " "), *TUNABLE_BOUNDS[name]) for name in get_args(Tunable)
}
"""Label and range of each setting; the engine validates the values again."""


class TuneScreen(FormScreen[list[Set]]):
    """One field per setting, filled with its current value. Enter returns the changed ones."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (56, "-normal")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]

    def __init__(self, now: Mapping[Tunable, float]) -> None:
        super().__init__()
        self._now = {name: f"{now[name]:g}" if name in now else "" for name in SETTINGS}

    def compose(self) -> ComposeResult:
        fields = [
            (name, f"{title:<14}", self._now[name], f" {low:g} to {high:g}")
            for name, (title, low, high) in SETTINGS.items()
        ]
        yield from self.form("Change training settings", "change", fields)

    def answer(self) -> list[Set]:
        changes = []
        for name, (title, low, high) in SETTINGS.items():
            text = self.typed(name)
            if (text or self._now[name]) and not low <= _number(text) <= high:
                raise UserError(f"{title} {must_be_within(low, high, text, whole=False)}")
            if text not in ("", self._now[name]):
                changes.append(Set(name=name, value=float(text)))
        return changes


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
