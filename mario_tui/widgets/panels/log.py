"""The run's log: checkpoints, warnings, cleared stages, the end."""

from __future__ import annotations

from rich.text import Text

from engine.protocol.messages import Changed, Episode, Evaluation, Failed, Finished, Log, Noted, Phase, Ready, Saved
from engine.runtime.text import printable
from mario_tui.data.feed import Snapshot
from mario_tui.data.format import counted, judged, reached, short, whole
from mario_tui.data.standing import is_complete
from mario_tui.widgets.base.panel import Panel

_STYLES = {"info": "", "warning": "yellow", "error": "bold red"}


class LogPanel(Panel):
    """The newest lines that fit, newest last; half of them are reserved for events other than episodes."""

    def __init__(self) -> None:
        super().__init__("Log", id="log", number=8)

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        room = max(1, self.body[1])
        episodes_left = room - min(len(snapshot.others), room // 2)
        lines: list[Text] = []
        for event in reversed(snapshot.events):
            if len(lines) >= room:
                break
            if isinstance(event, Episode) and not event.flag:
                episodes_left -= 1
                if episodes_left < 0:
                    continue
            lines.append(describe(event))
        if not lines:
            return Text("no events yet", style="dim")
        return Text("\n", no_wrap=True, overflow="ellipsis").join(reversed(lines))


def describe(event: Noted) -> Text:
    """One line for an event."""
    match event:
        case Ready():
            return Text(
                f"ready: {event.device}, {event.precision}, {counted(event.lane_threads, 'lane thread')}", style="dim"
            )
        case Episode():
            text = Text(f"{short(event.env_steps):>6}  lane {event.actor}.{event.lane}: return ")
            text.append(
                f"{whole(event.episode_return)}, {reached(event.x_pos, event.score)}, {counted(event.length, 'step')}"
            )
            if event.flag:
                text.append("  ⚑ flag!", style="bold yellow")
            return text
        case Evaluation():
            best = ", best so far" if event.best else ""
            return Text(f"{short(event.env_steps):>6}  evaluation: {judged(event)}{best}", style="bold")
        case Changed():
            change = f"{event.name.replace('_', ' ')}: {event.before:g} → {event.value:g}"
            return Text(f"{short(event.env_steps):>6}  {change}", style="magenta")
        case Phase():
            phase = f"curriculum: phase {event.phase} of {event.phases}, {event.name}"
            return Text(f"{short(event.env_steps):>6}  {printable(phase)}", style="bold magenta")
        case Saved():
            name = event.path.rsplit("/", 1)[-1]
            return Text(f"{short(event.env_steps):>6}  {event.kind} saved: {printable(name)}", style="green")
        case Log():
            prefix = "" if event.level == "info" else f"{event.level}: "
            return Text(f"{'':>6}  {prefix}{printable(event.text)}", style=_STYLES[event.level])
        case Finished():
            s = event.summary
            how = "finished" if is_complete(s.reason) else f"stopped at {s.env_steps:,} steps"
            return Text(printable(f"{how}: {s.reason}; checkpoint {s.checkpoint}"), style="bold green")
        case Failed():
            return Text(printable(f"failed: {event.reason}; log: {event.log_path}"), style="bold red")
