"""Dialog that evaluates a policy of a run that has ended, and shows the result."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from engine.config.tasks import rounded_up, tasks_of
from engine.errors import UserError
from engine.protocol.messages import Episode, Failed
from engine.protocol.outcome import Outcome
from engine.protocol.results import Evaluated
from engine.runs.checkpoints import policy_metadata
from engine.runs.origin import origin_of
from engine.runtime.text import printable
from mario_tui.data.format import counted, number_or_whole
from mario_tui.data.outcome_text import outcome_of, reached
from mario_tui.evaluate import WantedEvaluation, as_text
from mario_tui.screens.base import Modal

_EPISODES = 20
_TICK_S = 0.25


class EvaluationScreen(Modal[None]):
    """Plays greedy episodes in a process of its own, which ends with the dialog."""

    BINDINGS = [Binding("escape,q,enter", "dismiss", "Close")]

    def __init__(self, policy: Path) -> None:
        super().__init__()
        self._policy = policy
        self._episodes, self._outcome = _EPISODES, Outcome()
        with contextlib.suppress(UserError):  # it has just been replaced; the result will tell
            metadata = policy_metadata(policy)
            self._episodes, self._outcome = rounded_up(_EPISODES, tasks_of(metadata)), outcome_of(metadata["game"])
        self._played: list[Episode] = []
        self._result: Evaluated | Failed | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = Text(printable(f"Evaluation of {self._origin()}"))
            yield Static(id="result")
            yield Static(Text("esc: close", style="dim"))

    def on_mount(self) -> None:
        conditions = ("--epsilon=0", "--noop-max=30", "--seed=0")
        self._command = WantedEvaluation(self._policy, self._episodes, conditions).command()
        threading.Thread(target=self._read, daemon=True, name="evaluation").start()
        self.set_interval(_TICK_S, self._show)
        self._show()

    def on_unmount(self) -> None:
        self._command.close()

    def _origin(self) -> str:
        try:
            return origin_of(self._policy).name
        except UserError:  # it has just been replaced; the result will tell
            return self._policy.name

    def _read(self) -> None:
        self._result = self._command.result(Evaluated, self._played.append)

    def _show(self) -> None:
        self.query_one("#result", Static).update(self._describe())

    def _describe(self) -> Text:
        match self._result:
            case Failed(reason=reason):
                return Text(printable(f"The evaluation failed: {reason}"), style="bold red")
            case Evaluated():
                return Text(as_text(self._result))
        text = Text(f"{len(self._played)} of {counted(self._episodes, 'episode')} played")
        if self._played:
            last = self._played[-1]
            parts = [f"return {number_or_whole(last.episode_return)}", reached(self._outcome, last.results)]
            text.append(f"; last: {', '.join(filter(None, parts))}", style="dim")
        return text
