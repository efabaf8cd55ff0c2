"""The Textual application: which screen is shown, preferences, signals, and what is said after the terminal is
restored."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.notifications import SeverityLevel
from textual.screen import Screen

from engine.errors import UserError
from engine.host.client import HostProcess
from engine.protocol.messages import Failed, State
from engine.runs.run import ACTIVE, Run
from engine.runtime.text import printable
from mario_tui.data import themes
from mario_tui.data.keys import bindings, first_key, keys_in
from mario_tui.data.settings import SettingsError, load_settings, remember_theme, settings_path
from mario_tui.screens.base import PlaceScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import HelpScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.too_small import TooSmallScreen, too_small
from mario_tui.terminal.backpressure import survive_hang_up
from mario_tui.terminal.safe_app import SafeApp

_LOOK_AROUND_S = 2.0
_TWICE_S = 2.0
"""Within this a second Ctrl-C leaves."""
READ_ONLY = "Read-only: this one only looks."


class MarioApp(SafeApp[None]):
    """Home, or the dashboard of `open_run` (and home behind it).

    `read_only`: nothing is started, changed or removed; screens ask for it before they send a command.
    """

    TITLE = "mario-tui"
    CSS_PATH = "app.tcss"
    BINDINGS = bindings("everywhere")
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        open_run: Run | None = None,
        host: HostProcess | None = None,
        *,
        run_dir: str | None = None,
        read_only: bool = False,
        charts: Path | None = None,
    ) -> None:
        no_color = bool(os.environ.get("NO_COLOR"))
        super().__init__(ansi_color=True if no_color else None)
        self._open_run, self._host, self._charts = open_run, host, charts
        self.run_dir, self.read_only = run_dir, read_only
        self.leaving = False
        """Set by `exit`. From then on nothing that was typed or clicked acts: on a slow link keys come in batches, and
        those behind the `q` would meet screens that are being taken down."""
        self._dashboard: DashboardScreen | None = None
        self._left_in: State | None = None
        self.settings, self._complaints = load_settings()
        self._theme_watch = themes.ThemeWatch()
        self._user_themes: dict[str, Any] = {}
        self._bad_themes: set[str] = set()
        self._register_themes()
        if self.settings.theme not in self.available_themes:
            accepted = ", ".join(sorted(self._user_themes))
            self._complaints.append(
                f"{settings_path()}: theme: {self.settings.theme!r} is unknown; accepted: {accepted}"
            )
        known = self.settings.theme in self.available_themes
        self.theme = themes.WITHOUT_COLOUR if no_color else self.settings.theme if known else themes.DEFAULT
        self._chosen = self.theme
        self._interrupted_at = -_TWICE_S
        self._server_pid = os.getppid()
        self._has_terminal = os.isatty(0)

    def on_mount(self) -> None:
        # Textual dies of these without restoring the terminal; a closed terminal means detach, the run goes on.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, self.exit)
        self.set_keymap(dict(self.settings.keys))
        self.push_screen(HomeScreen())
        if self._open_run is not None:
            self.open_dashboard(self._open_run, self._host)
        if self._charts is not None:
            from mario_tui.screens.charts import ChartsScreen

            self.push_screen(ChartsScreen(self._charts))
        self._fit()
        for complaint in self._complaints:
            self._complain(complaint)
        self.set_interval(_LOOK_AROUND_S, self._look_around)
        self.call_after_refresh(survive_hang_up, self)

    # ------------------------------------------------------------------------------------------ screens

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
            place = self.screen.PLACE if isinstance(self.screen, PlaceScreen) else "home"
            self.push_screen(HelpScreen(place, self.settings.keys))

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event)

    def _fit(self, event: events.Resize | None = None) -> None:
        small = too_small(self.size if event is None else event.size)
        if small and not isinstance(self.screen, TooSmallScreen):
            self.push_screen(TooSmallScreen())
        elif not small and isinstance(self.screen, TooSmallScreen):
            self.pop_screen()

    # ------------------------------------------------------------------------------------------ keys and palette

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action of this screen from the key table, and the themes."""
        if isinstance(screen, PlaceScreen):
            for key in keys_in(screen.PLACE):
                if screen.check_action(key.action, ()):
                    yield SystemCommand(key.label, key.help, getattr(screen, f"action_{key.action}"))
        for key in keys_in("everywhere"):
            if key.action != "command_palette":  # it is open
                yield SystemCommand(key.label, key.help, getattr(self, f"action_{key.action}"))
        yield SystemCommand("Theme", "Change the colours; the choice is remembered", self.action_change_theme)

    def key(self, id: str) -> str:
        """What a hint calls an action's key, by the action's id: that of the user's key map."""
        return first_key(id, self.settings.keys)

    def on_key(self, event: events.Key) -> None:
        """Keys that no widget took, before they are looked up as bindings."""
        screen = self.screen
        if isinstance(screen, PlaceScreen) and screen.hold(event):
            event.prevent_default()
            return
        if self.read_only and isinstance(screen, PlaceScreen):
            for key in keys_in(screen.PLACE):
                if key.changes and event.key in self.settings.keys.get(key.id, key.keys).split(","):
                    self.notify(READ_ONLY, severity="warning", timeout=3)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Never as markup, nor with control sequences: messages name files and what the engine says."""
        super().notify(printable(message, lines=True), title=title, severity=severity, timeout=timeout, markup=False)

    def action_help_quit(self) -> None:
        """Ctrl-C: once says how to leave, twice leaves."""
        if time.monotonic() - self._interrupted_at < _TWICE_S:
            self.exit()
            return
        self._interrupted_at = time.monotonic()
        self.notify("Ctrl-C again leaves; runs go on.", timeout=_TWICE_S)

    # ------------------------------------------------------------------------------------------ themes

    def watch_theme(self, name: str) -> None:
        """Remember a theme that was chosen by hand."""
        if not self.is_running or name == self._chosen:
            return
        self._chosen = name
        if self.read_only or self.no_color:
            return
        try:
            remember_theme(name)
        except SettingsError as error:
            self._complain(str(error))

    def _look_around(self) -> None:
        if self.is_web and os.getppid() != self._server_pid:  # the server was killed; nobody will ever see this again
            self.exit()
        # A hang-up is signalled only to the first process of the session, such as a `make` that waits for this one.
        if self._has_terminal and not os.isatty(0):
            self.exit()
        self._look_at_themes()

    def _look_at_themes(self) -> None:
        if not self._theme_watch.changed():
            return
        shown = self._user_themes.get(self.theme)
        for complaint in self._register_themes():
            self._complain(complaint)
        if self.theme not in self.available_themes:  # its file is gone
            self._chosen = self.theme = themes.DEFAULT
        elif self._user_themes.get(self.theme) != shown:
            self.mutate_reactive(App.theme)

    def _register_themes(self) -> list[str]:
        """Take in what the files say now; the complaints that are new."""
        found, complaints = themes.load_themes()
        for name in self._user_themes.keys() - {theme.name for theme in found}:
            self.unregister_theme(name)
        self._user_themes = {theme.name: theme for theme in found}
        for theme in found:
            self.register_theme(theme)
        new = [complaint for complaint in complaints if complaint not in self._bad_themes]
        self._bad_themes = set(complaints)
        if not self.is_running:
            self._complaints += new
        return new

    def _complain(self, text: str) -> None:
        self.notify(text, severity="warning", timeout=15)

    # ------------------------------------------------------------------------------------------ leaving

    def exit(self, *args: Any, **more: Any) -> None:
        """Leave, whoever asks for it: a key, a signal, a lost terminal."""
        if not self.leaving and self._dashboard is not None:
            self._left_in = self._dashboard.state  # its connection ends with the screen
        self.leaving = True
        super().exit(*args, **more)

    async def on_event(self, event: events.Event) -> None:
        """What comes from the terminal ends here once the app is leaving."""
        if not (self.leaving and isinstance(event, events.InputEvent | events.Paste)):
            await super().on_event(event)

    async def run_action(self, *args: Any, **more: Any) -> bool:
        """Every key and button leads here, also those that a widget had in its queue when the app began to leave."""
        return self.leaving or await super().run_action(*args, **more)

    def push_screen(self, *args: Any, **more: Any) -> Any:
        """A screen that is pushed while the app is leaving would be mounted and taken down at once."""
        return AwaitComplete() if self.leaving else super().push_screen(*args, **more)

    def run_in_terminal(self) -> int:
        """Run until the person leaves; the exit status. Says afterwards where the run stands."""
        # What is there now stays, and the collector need not look at it again; of what the screen leaves behind, strips
        # that refer to themselves, it finds enough if it looks less often. Otherwise it takes a third of the time.
        gc.freeze()
        gc.set_threshold(10_000)
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
        if isinstance(end, Failed) and end.usage:
            raise UserError(end.reason)
        if isinstance(end, Failed):
            print(printable(f"mario-tui: {run.name} failed: {end.reason}; log: {end.log_path}"), file=sys.stderr)
            return 1
        record = run.record()
        if record.state in ACTIVE:
            state = self._left_in or record.state
            how = {"paused": "is paused", "stopping": "is stopping"}.get(state, "keeps running")
            print(printable(f"{run.name} {how}. Reattach with: mario-tui attach {run.name}"))
        if record.state == "lost" and self._host is not None and self._host.run.path == run.path and self._host.ended:
            print(f"mario-tui: {run.name} failed: its host process died; log: {run.log_path}", file=sys.stderr)
            return 1
        return 0
