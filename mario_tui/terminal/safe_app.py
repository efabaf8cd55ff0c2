"""A Textual app that strips foreign control sequences from all it draws (names of runs, reasons, log lines, tags), and
adds the control codes of its pictures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Any, TypeVar

from rich.segment import Segment
from textual.color import Color
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.reactive import var
from textual.screen import Screen

from engine.runtime.text import drawable, printable
from mario_tui.terminal.backpressure import survive_hang_up
from mario_tui.terminal.graphics import Graphics, Replies, choose
from mario_tui.terminal.graphics_driver import GraphicsDriver, GraphicsFound
from mario_tui.terminal.internals import ScreenUpdate, UpdatingApp, driver_of
from mario_tui.terminal.picture import Picture
from mario_tui.terminal.safe_console import SafeConsole
from mario_tui.terminal.sized_screen import SizedPalette, SizedScreen

Result = TypeVar("Result")


class DrawableOnly(LineFilter):
    """Makes every character of a line printable. Textual caches lines, so only changed ones are filtered."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        for segment in segments:
            if not segment.text.isprintable():
                return [Segment(drawable(text), style, control) for text, style, control in segments]
        return segments


class SafeApp(UpdatingApp[Result]):
    """Base class of the applications. `graphics_setting`: one of `graphics.GRAPHICS`."""

    _drawable_only = DrawableOnly()
    graphics: var[Graphics | None] = var(None)
    """How the terminal draws images; None as long as that is unknown, and where it shows only text."""

    def __init__(self, *, ansi_color: bool | None = None, graphics_setting: str = "auto") -> None:
        super().__init__(ansi_color=ansi_color)
        self.error_console = SafeConsole(markup=False, highlight=False, stderr=True)
        self.pictures: list[Picture] = []
        """Those of all screens, also of screens that are covered."""
        self._graphics_setting = graphics_setting
        self._asked = False
        self.has_terminal = os.isatty(0)

    def exit_with_terminal(self) -> None:
        """Exit in order on SIGHUP and SIGTERM, which by default kill Textual without restoring the terminal. Call it
        on mount."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, self.exit)
        self.call_after_refresh(survive_hang_up, self)

    @property
    def has_lost_terminal(self) -> bool:
        """Whether the terminal has hung up. The signal reaches only the first process of the session, such as a `make`
        that waits for this one."""
        return self.has_terminal and not os.isatty(0)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [self._drawable_only, *super().get_line_filters()]

    def get_default_screen(self) -> Screen[Any]:
        return SizedScreen(id="_default")

    def action_command_palette(self) -> None:
        if self.use_command_palette and not isinstance(self.screen, SizedPalette):
            self.push_screen(SizedPalette(id="--command-palette"))

    def copy_to_clipboard(self, text: str) -> None:
        """Copy as one line: text pasted into a shell must not run before the user presses Enter."""
        super().copy_to_clipboard(printable(text))

    # ------------------------------------------------------------------------------------------ images

    def get_driver_class(self) -> type[Driver]:
        """The driver that can ask the terminal, except in a browser."""
        driver = super().get_driver_class()
        return GraphicsDriver if driver is LinuxDriver else driver

    def find_graphics(self) -> None:
        """Find out, once, whether the terminal draws images: `graphics` is set when it has replied. Programs that never
        show a picture send no questions."""
        driver = driver_of(self)
        if self._asked or not isinstance(driver, GraphicsDriver) or self.no_color or self._graphics_setting == "blocks":
            return
        self._asked = True
        if self._graphics_setting != "auto":
            self.graphics = choose(self._graphics_setting, Replies(), os.environ)
        driver.ask(self._graphics_setting)

    def on_graphics_found(self, message: GraphicsFound) -> None:
        self.graphics = message.graphics
        if message.graphics is None or message.graphics.painted:
            self.screen.refresh()  # some terminals show Kitty's question as text

    def complete_update(self, update: ScreenUpdate, screen: Screen[Any]) -> ScreenUpdate:
        """Send the pictures in the same write."""
        for picture in self.pictures:
            update = picture.added_to(update, screen)
        return update
