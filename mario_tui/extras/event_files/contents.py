"""Dialog with what event files contain besides scalars: the table of hyper-parameters, images, text and the like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import ScrollableContainer
from textual.widgets import Static

from engine.runtime.text import printable
from mario_tui.data.differences import natural
from mario_tui.data.format import counted, number, short
from mario_tui.extras.event_files import EventFolder, Other, Session, metrics_of
from mario_tui.screens.base import Modal

_MOST_SESSIONS, _MOST_OTHERS = 200, 200
_TEXT_LINES = 8


def summary(events: EventFolder) -> str:
    """`hyper-parameters of 3 sessions, 2 images, 1 text`: what there is besides scalars; empty if there is nothing."""
    sessions = len(_with_parameters(events))
    parts = [f"hyper-parameters of {counted(sessions, 'session')}"] if sessions else []
    kinds = Counter(other.kind for inside in events.others.values() for other in inside.values())
    return ", ".join([*parts, *(counted(count, kind) for kind, count in sorted(kinds.items()))])


class EventContentsScreen(Modal[None]):
    """Shows what had been read when it was opened."""

    BINDINGS = [Binding("escape,q,i,enter", "dismiss", "Close")]

    def __init__(self, events: EventFolder) -> None:
        super().__init__()
        self._events = events

    def compose(self) -> ComposeResult:
        with ScrollableContainer(classes="dialog") as dialog:
            dialog.border_title = "Besides scalars"
            if table := hyperparameters(self._events):
                yield Static(Text("Hyper-parameters", style="bold"))
                yield Static(table, id="hyperparameters")
                if (more := len(_with_parameters(self._events)) - table.row_count) > 0:
                    yield Static(f"and {counted(more, 'more session')}", id="more-sessions")
            if self._events.others:
                yield Static(Text("Images, text and the like, which are not drawn", style="bold"))
                yield Static(_others(self._events.others), id="others")
            if not (table or self._events.others):
                yield Static("nothing")
            yield Static(Text("esc: close", style="dim"))


def hyperparameters(events: EventFolder) -> Table | None:
    """A row for each of the first sessions: the newest finite value of each metric, and the hyper-parameters, first
    those in which sessions differ; None without sessions."""
    sessions = _with_parameters(events)
    if not sessions:
        return None
    names = dict.fromkeys(name for session in sessions.values() for name in session.parameters)
    different = {name for name in names if len({session.parameters.get(name) for session in sessions.values()}) > 1}
    ordered = sorted(names, key=lambda name: name not in different)
    metrics = {inside: _metrics(events, inside, session) for inside, session in sessions.items()}
    tags = list(dict.fromkeys(tag for values in metrics.values() for tag in values))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("session", "status"):
        table.add_column(head)
    for head in (*tags, *ordered):
        table.add_column(Text(printable(head)), justify="right", no_wrap=True)
    for inside in islice(sorted(sessions, key=natural), _MOST_SESSIONS):
        session = sessions[inside]
        values = [number(metrics[inside].get(tag)) for tag in tags]
        values += [_value(session.parameters.get(name)) for name in ordered]
        table.add_row(Text(printable(inside)), session.status, *(Text(value) for value in values))
    return table


def _metrics(events: EventFolder, inside: str, session: Session) -> dict[str, float]:
    """The newest value of each metric of a session, by tag."""
    found = {}
    for metric in metrics_of(events.sessions, inside):
        history = events.tags.get(metric.tag, {}).get(metric.inside(inside))
        if history is not None and len(history):
            found[metric.tag] = history.values[-1]
    return found


def _with_parameters(events: EventFolder) -> dict[str, Session]:
    """The sessions of which hyper-parameters are known, by subfolder."""
    return {inside: session for inside, session in events.sessions.items() if session.parameters}


def _value(value: str | float | bool | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return printable(value) if isinstance(value, str) else number(value)


def _others(others: Mapping[str, Mapping[str, Other]]) -> Text:
    text = Text()
    every = [
        (tag, inside, other) for tag in sorted(others, key=natural) for inside, other in sorted(others[tag].items())
    ]
    for tag, inside, other in every[:_MOST_OTHERS]:
        size = f", {other.width}x{other.height}" if other.width else ""
        where = "" if inside == "." else f" in {inside}"
        text.append(f"{printable(tag)}{printable(where)}", style="cyan")
        text.append(f"  {other.kind}{size}, {counted(other.count, 'time')}, newest at step {short(other.step)}\n")
        for line in islice(other.text.splitlines(), _TEXT_LINES):
            text.append(f"  {printable(line)}\n", style="dim")
    if len(every) > _MOST_OTHERS:
        text.append(f"and {len(every) - _MOST_OTHERS:,} more\n")
    text.rstrip()
    return text
