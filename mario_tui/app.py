"""The Textual application: screens, preferences, signals, and the message after the terminal is restored."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from textual import events
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.command import Command, CommandPalette
from textual.markup import escape
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import ThemeProvider

from engine.config.fields import must_be_one_of
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.protocol.messages import Failed
from engine.runs.lookup import how_to_name
from engine.runs.run import Run
from engine.runtime.text import printable, shortened
from mario_tui.data import settings
from mario_tui.data.keys import Key, bindings, first_key, keys_in, shown_name
from mario_tui.data.run_status import RunStatus, exit_status
from mario_tui.data.settings import DEFAULT_THEME, load_settings, remember_theme, settings_path
from mario_tui.engine_command import program
from mario_tui.launch import busy_warning
from mario_tui.screens.base import PlaceScreen, TooSmallScreen, too_small
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import HelpScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.terminal.internals import shown_notices
from mario_tui.terminal.safe_app import SizedPalette, TypeAheadApp, alert

_POLL_S = 2.0
_DOUBLE_PRESS_S = 2.0
"""A second Ctrl-C within this time quits."""
_MOST_WARNINGS = 3
"""Of settings that are shown at once, so that they do not cover the screen."""
READ_ONLY = "Read-only: this key is disabled."


class MarioApp(TypeAheadApp[None]):
    """Shows home, or on top of it the dashboard of `open_run`, or another screen.

    `read_only`: nothing is started, changed or deleted; screens check it before they send a command.
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
        open_screen: Callable[[], Screen[Any]] | None = None,
    ) -> None:
        no_color = bool(os.environ.get("NO_COLOR"))
        self.settings, self._warnings = load_settings()
        super().__init__(ansi_color=True if no_color else None, graphics_setting=self.settings.graphics)
        self._open_run, self._host, self._open_screen = open_run, host, open_screen
        self.run_dir, self.read_only = run_dir, read_only
        self.leaving = False
        """Set by `exit`; input is ignored from then on. On a slow link keys arrive in batches, and those after the `q`
        would reach screens that are being removed."""
        self._left: DashboardScreen | None = None
        """Once the app is leaving: the dashboard that it leaves, on top or below another screen."""
        self._left_in: str | None = None
        self._theme_files = settings.theme_files()
        self._user_themes: dict[str, Any] = {}
        self._bad_themes: set[str] = set()
        self._register_themes()
        if self.settings.theme not in self.available_themes:
            self._warnings.append(
                f"{settings_path()}: theme {must_be_one_of(sorted(self._user_themes), self.settings.theme)}"
            )
        known = self.settings.theme in self.available_themes
        self.theme = settings.WITHOUT_COLOUR if no_color else self.settings.theme if known else DEFAULT_THEME
        self._chosen = self.theme
        self._previewing = False
        """Whether the list of themes is open, whose highlighted theme is shown, but not saved."""
        self._interrupted_at = -_DOUBLE_PRESS_S
        self._server_pid = os.getppid()

    def on_mount(self) -> None:
        self.set_keymap(dict(self.settings.keys))
        self.push_screen(HomeScreen())
        if self._open_run is not None:
            self.open_dashboard(self._open_run, self._host)
        if self._open_screen is not None:
            self.push_screen(self._open_screen())
        self._fit()
        for warning in self._warnings[:_MOST_WARNINGS]:
            self._warn(shortened(warning, 200))
        if (more := len(self._warnings) - _MOST_WARNINGS) > 0:
            self._warn(f"... and {more} more")
        self.set_interval(_POLL_S, self._poll)
        gc.freeze()  # modules and styles stay: a collection that went through them as well would hold up the screen

    # ------------------------------------------------------------------------------------------ screens

    def open_dashboard(self, run: Run, host: HostProcess | None = None) -> None:
        """Show the dashboard of a run on top of what is shown."""
        self.push_screen(DashboardScreen(run, host))
        if host is not None:
            self.run_worker(self._warn_if_busy(run), name="busy")

    def run_beside(self, run: Run, by: int) -> Run | None:
        """The run so many rows below another in the list of runs; None if there is none."""
        home = next((screen for screen in self.screen_stack if isinstance(screen, HomeScreen)), None)
        return None if home is None else home.table.beside(run, by)

    async def _warn_if_busy(self, run: Run) -> None:
        if warning := await asyncio.to_thread(busy_warning, run):
            self.notify(warning, severity="warning", timeout=8)

    def go_home(self) -> None:
        """Close all screens above home; runs continue."""
        while not isinstance(self.screen, HomeScreen):
            self.pop_screen()

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            place = self.screen.PLACE if isinstance(self.screen, PlaceScreen) else "home"
            works = (lambda key: not key.changes) if self.read_only else (lambda key: True)
            self.push_screen(HelpScreen(place, self.settings.keys, works=works))

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
        """Commands of the palette, with their keys: the actions of this screen, the global ones, and the theme."""
        keymap = self.settings.keys
        if isinstance(screen, PlaceScreen):
            for key in keys_in(screen.PLACE):
                if screen.check_action(key.action, ()):
                    help = help_with_keys(key, keymap)
                    yield SystemCommand(key.label, help, getattr(screen, f"action_{key.action}"))
        for key in keys_in("everywhere"):
            if key.action != "command_palette":  # already open
                yield SystemCommand(key.label, help_with_keys(key, keymap), getattr(self, f"action_{key.action}"))
        yield SystemCommand("Theme", "Change the colours and save the choice", self.action_change_theme)

    def key(self, id: str) -> str:
        """The key to name in a hint for an action id, from the user's key map."""
        return first_key(id, self.settings.keys)

    def takes(self, key: events.Key | events.Paste) -> bool:
        return not isinstance(self.screen, PlaceScreen) or self.screen.takes(key)

    def on_key(self, event: events.Key) -> None:
        """Tell why a key that changes something has no binding in read-only mode."""
        screen = self.screen
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
        """Notify without markup or control sequences: messages contain file names and text from the engine. One that is
        still shown is not shown again."""
        text = printable(message, lines=True)
        if text not in shown_notices(self):
            super().notify(text, title=title, severity=severity, timeout=timeout, markup=False)

    def action_help_quit(self) -> None:
        """Ctrl-C: show a hint the first time, quit the second time."""
        if time.monotonic() - self._interrupted_at < _DOUBLE_PRESS_S:
            self.exit()
            return
        self._interrupted_at = time.monotonic()
        self.notify("Press Ctrl-C again to quit. Runs keep running.", timeout=_DOUBLE_PRESS_S)

    def alert(self, text: str) -> None:
        """Let a user who is not watching know, unless the settings say not to."""
        if self.settings.notifications:
            alert(self, text)

    # ------------------------------------------------------------------------------------------ themes

    def search_themes(self) -> None:
        """Open the list of themes."""
        self._previewing = True
        self.push_screen(SizedPalette(providers=[Themes], placeholder="Search for themes…"))

    def on_command_palette_option_highlighted(self, event: CommandPalette.OptionHighlighted) -> None:
        option = event.highlighted_event.option
        if self._previewing and isinstance(option, Command) and option.hit.text in self.available_themes:
            self.theme = option.hit.text

    def on_command_palette_closed(self, event: CommandPalette.Closed) -> None:
        if not self._previewing:
            return
        self._previewing = False
        if event.option_selected:
            self.call_later(self.watch_theme)  # after the command, which sets the theme
        else:
            self.theme = self._chosen

    def watch_theme(self) -> None:
        """Save a theme that the user chose."""
        name = self.theme
        if not self.is_running or self._previewing or name == self._chosen:
            return
        self._chosen = name
        if self.read_only or self.no_color:
            return
        try:
            remember_theme(name)
        except UserError as error:
            self._warn(str(error))

    def _poll(self) -> None:
        if self.is_web and os.getppid() != self._server_pid:  # the server was killed, so no browser can connect again
            self.exit()
        self._reload_themes()

    def _reload_themes(self) -> None:
        before, self._theme_files = self._theme_files, settings.theme_files()
        if self._theme_files == before:
            return
        shown = self._user_themes.get(self.theme)
        for warning in self._register_themes():
            self._warn(warning)
        if self._chosen not in self.available_themes:  # its file was deleted
            self._chosen = DEFAULT_THEME
        if self.theme not in self.available_themes:
            self.theme = self._chosen
        elif self._user_themes.get(self.theme) != shown:
            self.mutate_reactive(App.theme)

    def _register_themes(self) -> list[str]:
        """Register the themes from all files; return the warnings that are new."""
        found, warnings = settings.load_themes()
        for name in self._user_themes.keys() - {theme.name for theme in found}:
            self.unregister_theme(name)
        self._user_themes = {theme.name: theme for theme in found}
        for theme in found:
            self.register_theme(theme)
        new = [warning for warning in warnings if warning not in self._bad_themes]
        self._bad_themes = set(warnings)
        if not self.is_running:
            self._warnings += new
        return new

    def _warn(self, text: str) -> None:
        self.notify(text, severity="warning", timeout=15)

    # ------------------------------------------------------------------------------------------ leaving

    def exit(self, *args: Any, **more: Any) -> None:
        """Quit: called for a key, a signal or a lost terminal."""
        if not self.leaving:
            dashboards = (screen for screen in reversed(self.screen_stack) if isinstance(screen, DashboardScreen))
            self._left = next(dashboards, None)
            self._left_in = self._left.told_state if self._left else None  # the connection closes with the screen
        self.leaving = True
        super().exit(*args, **more)

    async def on_event(self, event: events.Event) -> None:
        """Drop input from the terminal once the app is leaving. Escape cancels the work of the screen at once."""
        if self.leaving and isinstance(event, events.InputEvent | events.Paste):
            return
        job = self.screen.job if isinstance(event, events.Key) and isinstance(self.screen, PlaceScreen) else None
        if job is not None and isinstance(event, events.Key) and event.key == "escape":
            job.cancel()
            self.forget_typed()  # it was meant for the result
        else:
            await super().on_event(event)

    async def run_action(self, *args: Any, **more: Any) -> bool:
        """Drop actions once the app is leaving, including those of keys that widgets had already queued."""
        return self.leaving or await super().run_action(*args, **more)

    def push_screen(self, *args: Any, **more: Any) -> Any:
        """Push no screen once the app is leaving: it would be mounted and removed at once."""
        return AwaitComplete() if self.leaving else super().push_screen(*args, **more)

    def run_in_terminal(self) -> int:
        """Run until the user quits, then print the state of the run. Returns the exit status."""
        # Garbage collection takes a third of the time otherwise. Objects that exist now stay alive, so they need no
        # further scans; the cyclic garbage of drawing (strips) is small enough to collect less often.
        gc.freeze()
        gc.set_threshold(10_000)
        self.run()
        if self.return_code:
            return self.return_code
        if self.is_read:
            with contextlib.suppress(OSError):  # the terminal may be gone
                return self._print_outcome()
        return 0

    def _print_outcome(self) -> int:
        """Print how the run ended, or how to reattach; return the exit status. Raises `UserError`."""
        if self._left is None:
            return 0
        run, end = self._left.run, self._left.feed.snapshot().end
        if isinstance(end, Failed):  # to look at a run that had failed before is no failure
            return exit_status(run, end) if self._left.feed.was_live else 0
        record = run.record()
        status = RunStatus.of_record(record)
        if status.is_active:
            told = self._left_in or status
            how = f"is {told}" if told in ("paused", "pausing", "judging", "stopping") else "keeps running"
            how = f"is {record.reason}" if status is RunStatus.SILENT else how
            print(printable(f"{run.name} {how}. Reattach with: {program()} attach {how_to_name(run)}"))
        is_own = self._host is not None and self._host.run.path == run.path and self._host.ended
        return exit_status(run, None) if status is RunStatus.LOST and is_own else 0


def help_with_keys(key: Key, keymap: Mapping[str, str]) -> str:
    """The help of a command and its keys, as markup."""
    return f"{escape(key.help)} · [b]{escape(shown_name(key, keymap))}[/b]"


class Themes(ThemeProvider):
    """Textual's list of themes. The one in use comes first: the list highlights its first line when it opens, and the
    highlighted theme is previewed."""

    @property
    def commands(self) -> list[tuple[str, Callable[[], None]]]:
        return sorted(super().commands, key=lambda command: command[0] != self.app.theme)
