"""`mario-tui play`: watch a policy, one game after the other, in real time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import Footer, Static

from engine.messages import Episode, Evaluated, Failed, Frame
from mario_tui import themes
from mario_tui.evaluate import evaluation_process, reports
from mario_tui.widgets.game import GameView


class PlayApp(App[None]):
    """The game full-screen, and how its episodes ended."""

    CSS = "#game { height: 1fr; } #episodes { height: 2; padding: 0 1; }"
    BINDINGS = [Binding("q,escape", "quit", "Quit")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, policy: Path, options: Sequence[str]) -> None:
        super().__init__()
        self._policy = policy
        self._arguments = ("--watch", *options)
        self._frame: Frame | None = None
        self._episodes: list[Episode] = []
        self._failure: str | None = None
        for theme in themes.load_themes()[0]:
            self.register_theme(theme)
        self.theme = themes.DEFAULT

    def compose(self) -> ComposeResult:
        self._game = GameView()
        self._game.border_title = self._policy.name
        yield self._game
        yield Static("loading the policy", id="episodes")
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(1 / 20, self._show)

    def run_in_terminal(self) -> int:
        """Play until the person leaves; the exit status."""
        with evaluation_process(self._policy, *self._arguments) as process:
            threading.Thread(target=self._read, args=(process,), daemon=True).start()
            self.run()
            failure = self._failure  # leaving the block ends the process, which is none
        if failure is not None:
            print(f"mario-tui: the policy could not be played: {failure}", file=sys.stderr)
            return 1
        return self.return_code or 0

    def _read(self, process: Popen[bytes]) -> None:
        for report in reports(process):
            match report:
                case Frame():
                    self._frame = report
                case Episode():
                    self._episodes = [*self._episodes, report]
                case Failed():
                    self._failure = report.reason
                case Evaluated():
                    pass
        self._failure = self._failure or "its process died"

    def _show(self) -> None:
        self._game.show(self._frame)
        if self._failure is not None:
            self.exit()
        elif self._episodes:
            last, clears = self._episodes[-1], sum(episode.flag for episode in self._episodes)
            self.query_one("#episodes", Static).update(
                f"{clears} of {len(self._episodes)} episodes cleared\n"
                f"last: {'flag' if last.flag else 'died or stuck'} at x {last.x_pos}, return {last.episode_return:.0f}"
            )
        elif self._frame is not None:
            self.query_one("#episodes", Static).update("first episode")
