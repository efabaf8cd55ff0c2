"""A Textual app that strips foreign control sequences from all it draws (names of runs, reasons, log lines, tags), and
adds the control codes of its pictures; and one with a single queue of keys and pasted text (`TypeAheadApp`).

Textual forwards a key to the focused widget, from which it bubbles up to the app, which looks up its bindings. The next
key would overtake it: it would go to the widget that has the focus now, not to the one that the first key leads to. And
a screen that is removed meanwhile takes the key with it. With the queue, what is typed fast, or before a screen is
there, keeps its order and its meaning.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from rich.segment import Segment
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.color import Color
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Event, Key, Paste, Resize
from textual.filter import LineFilter
from textual.reactive import var
from textual.screen import Screen, ScreenResultType

from engine.runtime.processes import handling
from engine.runtime.text import drawable, printable
from mario_tui.terminal.console import SafeConsole
from mario_tui.terminal.driver import TerminalDriver, has_shell, suspend
from mario_tui.terminal.graphics import Graphics, GraphicsDriver, GraphicsFound, Replies, choose
from mario_tui.terminal.internals import ScreenUpdate, UpdatingApp, driver_of, forget_removed_watchers, is_stopped
from mario_tui.terminal.picture import Picture


class SizedScreen(Screen[ScreenResultType]):
    """Ignores sizes that the terminal no longer has.

    Textual lays a screen out for each size it is told, also for an old one that arrives late, and tells it every size
    that it was laid out for. So two sizes in its queue would follow each other for ever.
    """

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Resize) or event.size == self.app.size:
            await super().on_event(event)

    def on_unmount(self) -> None:
        forget_removed_watchers(self.app)


class SizedPalette(CommandPalette, SizedScreen[None]):
    """The command palette, as such a screen."""


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

    async def run_async(self, **options: Any) -> Result | None:
        """Run, ending in order when the terminal closes or somebody asks for it. By default SIGHUP and SIGTERM kill
        Textual, which leaves the terminal as it is."""
        loop = asyncio.get_running_loop()

        def end(number: int, frame: FrameType | None) -> None:
            if isinstance(driver := driver_of(self), TerminalDriver):
                driver.end_soon()
            loop.call_soon_threadsafe(self.exit)

        def resume(number: int, frame: FrameType | None) -> None:
            if isinstance(driver := driver_of(self), TerminalDriver):
                loop.call_soon_threadsafe(self._take_terminal, driver, driver.has_terminal)

        ends = dict.fromkeys((signal.SIGHUP, signal.SIGTERM, signal.SIGINT), end)
        suspends = {signal.SIGTSTP: lambda *_: loop.call_soon_threadsafe(self.action_suspend_process)}
        with handling({**ends, **suspends, signal.SIGCONT: resume}):
            return await super().run_async(**options)

    @property
    def is_read(self) -> bool:
        """Return whether to print something after the end: a terminal that nobody reads would hold the program up."""
        return not isinstance(driver := driver_of(self), TerminalDriver) or driver.is_read

    def on_terminal_lost(self) -> None:
        self.exit()

    def _take_terminal(self, driver: TerminalDriver, was_stopped: bool) -> None:
        """The process was resumed: after somebody stopped it without a word, in which case the shell used the terminal
        meanwhile, or in the foreground after it was in the background."""
        if was_stopped or not driver.has_terminal:
            with self.suspend():
                pass

    def action_suspend_process(self) -> None:
        """Suspend to the shell."""
        if self.is_web or not self.has_terminal or not has_shell():
            self.notify("No shell here could resume mario-tui.", severity="warning", timeout=4)
        else:
            suspend(self)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [self._drawable_only, *super().get_line_filters()]

    def get_default_screen(self) -> Screen[Any]:
        return SizedScreen(id="_default")

    def action_command_palette(self) -> None:
        if self.use_command_palette and not isinstance(self.screen, SizedPalette):
            self.push_screen(SizedPalette(id="--command-palette"))

    def copy_to_clipboard(self, text: str, *, lines: bool = False) -> None:
        """Copy as one line: text pasted into a shell must not run before the user presses Enter. `lines`: it does not
        although it has several."""
        super().copy_to_clipboard(printable(text, lines=lines))

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


class TypeAheadApp(SafeApp[Result]):
    """Delivers one key at a time: the next one as soon as it has had its effect, and the screen takes another.

    A key that a closed screen did not handle goes to the screen below it, and so does all that was typed behind the key
    that has closed it. If something else has closed it, such as a message from its button, what means something in it
    was typed for it, as the second Enter of a double press.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._typed: list[Key | Paste] = []
        """What waits to be delivered, in its order."""
        self._delivered: Key | Paste | None = None
        """What was delivered and has not had its effect yet."""
        self._receiver: DOMNode | None = None
        """The widget that it was delivered to, until it has bubbled up to the app."""
        self._acting = False
        """Whether the app is at its binding."""
        self._closing_screens = 0
        self._cut_off: Key | Paste | None = None
        """What was delivered to a screen that closes. A widget that consumes it stops it."""

    def takes(self, key: Key | Paste) -> bool:
        """Return whether the screen is ready for this. Otherwise it waits, and with it all that is typed after it,
        until `deliver` is called."""
        return True

    def forget_typed(self) -> None:
        """Forget what waits."""
        self._typed.clear()

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Key | Paste):
            await super().on_event(event)
        elif not event.is_forwarded:
            self._typed.append(event)
            await self.deliver()
        elif event is self._cut_off:
            event.stop(False)  # a screen stops what it passes to the app
        else:
            if event is self._delivered:
                self._receiver = None
            await self._act_on(event)

    async def deliver(self) -> None:
        """Deliver what waits, as far as the screen takes it."""
        if self._receiver is not None and not self._receiver.is_attached:  # it is gone, and the key with it
            self._delivered = self._receiver = None
        if self._delivered is not None or self._closing_screens:
            return
        key = self._next()
        if key is None:
            return
        self._typed.remove(key)
        self._delivered, receiver = key, self.focused or self.screen
        await self._act_on(key)
        self._receiver = receiver if key.is_forwarded else None  # otherwise it had a binding with priority
        self._after_messages(receiver, partial(self._has_bubbled, key))

    def _next(self) -> Key | Paste | None:
        """The first of what waits; if the screen does not take it, the first that must not wait."""
        if self._typed and self.takes(self._typed[0]):
            return self._typed[0]
        return next(filter(self._is_urgent, self._typed), None)

    async def _act_on(self, key: Key | Paste) -> None:
        """Let Textual forward a key, or run its binding."""
        self._acting = True
        try:
            await super().on_event(key)
        finally:
            self._acting = False

    def _is_urgent(self, key: Key | Paste) -> bool:
        """Return whether a key does not wait for a screen: Ctrl-C, and those that Textual handles before all
        widgets."""
        if not isinstance(key, Key):
            return False
        active = self.active_bindings.get(key.key)
        return key.key == "ctrl+c" or (active is not None and active.binding.priority)

    def _has_bubbled(self, key: Key | Paste) -> None:
        """Wait for the effects of a key: messages of the widget that has the focus now."""
        if key is self._delivered:
            self._receiver = None
            self._after_messages(self.focused or self.screen, partial(self._had_its_effect, key))

    async def _had_its_effect(self, key: Key | Paste) -> None:
        if key is self._delivered:
            self._delivered = None
            await self.deliver()

    def _after_messages(self, node: DOMNode | None, then: Callable[[], object]) -> None:
        """Call `then` once a widget, its ancestors and the app have handled, one after the other, the messages in their
        queues, and so all that bubbles up from the widget."""
        while node is not None and node is not self:
            if node.call_later(self._after_messages, node.parent, then):
                return
            node = node.parent
        self.call_later(then)

    def pop_screen(self) -> AwaitComplete:
        closing = self.screen
        if self._delivered is not None and not self._acting:
            self._typed = [key for key in self._typed if not _is_for(closing, key)]
            if self._receiver is not None and closing in self._receiver.ancestors_with_self:
                self._cut_off = self._delivered
                self._delivered = self._receiver = None
        popped = super().pop_screen()
        self._closing_screens += 1
        # Once it is removed, and after what has bubbled up to the app's queue.
        self.call_next(self.call_later, self._deliver_again)
        return popped

    async def _deliver_again(self) -> None:
        """Deliver what a closed screen did not handle, then what was typed since, unless more screens close."""
        self._closing_screens -= 1
        if self._closing_screens:
            return
        key, self._cut_off = self._cut_off, None
        if key is not None and not is_stopped(key):
            again = key.copy() if isinstance(key, Key) else Paste(key.text)
            self._typed.insert(0, again.set_sender(self))  # otherwise its bindings would not be looked up
        await self.deliver()


def _is_for(screen: Screen[Any], key: Key | Paste) -> bool:
    """Return whether a key means something in a screen."""
    field = screen.focused
    if isinstance(key, Paste):
        return field is not None
    bound = screen.active_bindings.get(key.key)
    is_bound = bound is not None and screen in bound.node.ancestors_with_self
    return is_bound or (field is not None and field.check_consume_key(key.key, key.character))


_MOST = 200
"""Maximum length of a notification."""


def alert(app: App[Any], text: str) -> None:
    """Ring the bell and send the notification. In a browser the bell is all there is."""
    app.bell()
    driver = driver_of(app)
    if driver is None or app.is_web or app.is_headless:
        return
    # The text ends at the bell character, so it must not contain any; `printable` leaves no control characters.
    notification = f"\x1b]9;{printable(text)[:_MOST]}\x07"
    if os.environ.get("TMUX"):  # tmux passes it on only if it is wrapped, and if `allow-passthrough` is on
        notification = f"\x1bPtmux;{notification.replace(chr(27), chr(27) * 2)}\x1b\\"
    driver.write(notification)
    driver.flush()
