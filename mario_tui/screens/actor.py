"""Dialog for one lane of an actor: its returns and its last episodes, updated live."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from engine.protocol.messages import Episode, Lane
from engine.protocol.outcome import Outcome
from mario_tui.data.format import counted, number, number_or_whole, short, thousandths
from mario_tui.data.outcome_text import goals, reached
from mario_tui.screens.base import Modal
from mario_tui.widgets.base.panel import sparkline

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
