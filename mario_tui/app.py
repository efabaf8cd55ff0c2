"""The Textual application: which screen is shown, themes, signals, and what is said after the terminal is restored."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterable
from typing import Any

from textual.app import App, SystemCommand
from textual.screen import Screen

from engine.client import HostProcess
from engine.messages import Failed
from engine.runs import ACTIVE, Run
from mario_tui import themes
from mario_tui.keys import KEYS, bindings
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import HelpScreen
from mario_tui.screens.home import HomeScreen


class MarioApp(App[None]):
    """Home, or the dashboard of `open_run` (and home behind it)."""

    TITLE = "mario-tui"
    CSS_PATH = "app.tcss"
    BINDINGS = bindings("everywhere")
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, open_run: Run | None = None, host: HostProcess | None = None) -> None:
        super().__init__()
        self._open_run, self._host = open_run, host
        self._dashboard: DashboardScreen | None = None
        found, self._complaints = themes.load_themes()
        for theme in found:
            self.register_theme(theme)
        self.theme = themes.DEFAULT

    def on_mount(self) -> None:
        # Textual dies of these without restoring the terminal; a closed terminal means detach, the run goes on.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, self.exit)
        self.push_screen(HomeScreen())
        if self._open_run is not None:
            self.open_dashboard(self._open_run, self._host)
        for complaint in self._complaints:
            self.notify(complaint, severity="warning", timeout=15)

    def open_dashboard(self, run: Run, host: HostProcess | None = None) -> None:
        """Show a run on top of home."""
        self._dashboard = DashboardScreen(run, host)
        self.push_screen(self._dashboard)

    def go_home(self) -> None:
        """Leave the dashboard; its run goes on."""
        self._dashboard = None
        self.pop_screen()

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action of this screen from the key table, and the themes."""
        place = "dashboard" if isinstance(screen, DashboardScreen) else "home"
        for key in KEYS:
            if key.place == place or key.action == "help":
                target = self if key.place == "everywhere" else screen
                yield SystemCommand(key.label, key.help, getattr(target, f"action_{key.action}"))
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

    def run_in_terminal(self) -> int:
        """Run until the person leaves; the exit status. Says afterwards where the run stands."""
        self.run()
        if self.return_code:
            return self.return_code
        with contextlib.suppress(OSError):  # the terminal may be gone
            return self._farewell()
        return 0

    def _farewell(self) -> int:
        if self._dashboard is None:
            return 0
        run, end = self._dashboard.run, self._dashboard.feed.snapshot().end
        if isinstance(end, Failed):
            print(f"mario-tui: {run.name} failed: {end.reason}; log: {end.log_path}", file=sys.stderr)
            return 2 if end.usage else 1
        record = run.record()
        if record.state in ACTIVE:
            print(f"{run.name} goes on; come back with: mario-tui attach {run.name}")
        return 0
