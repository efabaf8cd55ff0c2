"""All private names of Textual that mario-tui uses, each behind a public one. A minor version may change them, so
`pyproject.toml` pins it."""

from __future__ import annotations

import contextlib
import math
import os
import time
from abc import ABCMeta
from collections.abc import Iterator
from functools import lru_cache
from queue import Full
from typing import Any, TypeVar, cast

from rich.console import RenderableType
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser, _re_extended_key
from textual.app import App
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers import linux_driver
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.keys import Keys, _character_to_key
from textual.message import Message
from textual.message_pump import _MessagePumpMeta
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import DataTable

Result = TypeVar("Result")
_POLL_S = 0.1
_KEYS = {str(key.value) for key in Keys}
ScreenUpdate = CompositorUpdate
"""What an update of the screen sends to the terminal."""
LinesUpdate = ChopsUpdate
"""One of some lines only, with their `spans`: (y, first x, last x)."""


class AbstractMeta(_MessagePumpMeta, ABCMeta):
    """The metaclass of widgets and screens with abstract methods."""


def driver_of(app: App[Any]) -> Driver | None:
    """The driver of the terminal; None before it is started."""
    return app._driver


def writes(writer: Writer) -> bool:
    """Return whether earlier output is still waiting to be written. The queue is bounded: a full one blocks the
    application."""
    return not writer._queue.empty()


def key_name(text: str) -> str | None:
    """Textual's name of a key, for a character or a name; None if the key does not exist."""
    if len(text) == 1:
        return _character_to_key(text)
    bare = text
    for modifier in ("ctrl+", "alt+", "shift+"):
        bare = bare.removeprefix(modifier)
    known = text in _KEYS or bare in _KEYS or (len(bare) == 1 and bare != text)
    named = {_character_to_key(chr(code)) for code in range(32, 127)}
    return text if known or text in named or bare in named else None


def is_stopped(message: Message) -> bool:
    """Return whether somebody has stopped a message: it does not bubble any further."""
    return message._stop_propagation


def visible_widgets(screen: Screen[Any]) -> dict[Widget, tuple[Region, Region]]:
    """The widgets in sight, each with its region and the region it is clipped to."""
    return screen._compositor.visible_widgets


def forget_removed_watchers(node: DOMNode) -> None:
    """Forget the removed widgets that watch a node: Textual keeps them until what they watch changes."""
    for watchers in getattr(node, "__watchers", {}).values():
        watchers[:] = [(watcher, callback) for watcher, callback in watchers if not watcher._closing]


# One cache of colours for all widgets: Textual's is keyed by their caches too, so it keeps what a thousand have drawn.
StylesCache.get_inner_outer = classmethod(  # type: ignore[assignment, method-assign]
    lru_cache(1024)(StylesCache.get_inner_outer.__wrapped__)  # type: ignore[arg-type]
)


class KeyParser:
    """Makes Textual's messages of whole keys, mouse and focus reports: its parser would wait for the rest of each, and
    take what it does not know for keys."""

    def __init__(self) -> None:
        self._parser = XTermParser()

    def messages(self, text: str) -> Iterator[Message]:
        """The messages of characters, or of one escape sequence; none of a sequence that makes no sense."""
        try:
            yield from self._parser.feed(text)
            if self._parser._timeout_time is not None:
                self._parser._timeout_time = 0.0  # nothing follows
                yield from self._parser.tick()
        except (ValueError, OverflowError):  # such as a number that is no character's
            self._parser = XTermParser()


def is_key_sequence(sequence: str) -> bool:
    """Return whether Textual has a key for an escape sequence, by a table or by the protocol of Kitty."""
    return sequence in ANSI_SEQUENCES_KEYS or _re_extended_key.fullmatch(sequence) is not None


class Writer(WriterThread):
    """Writes to the terminal. What that does not take, because it is gone or because nobody reads it any more after
    `give_up_at`, is discarded: Textual's thread would end, and the application wait for it for ever."""

    give_up_at = math.inf
    """Time of the monotonic clock."""

    def write(self, text: str | None) -> None:
        """Queue a text; None is the end. Waits while the queue is full."""
        while self.is_alive() and time.monotonic() < self.give_up_at:
            with contextlib.suppress(Full):
                self._queue.put(text, timeout=_POLL_S)
                break

    def run(self) -> None:
        # Unbuffered: at its end Python waits for the lock of a buffer that a thread is writing out.
        with contextlib.suppress(OSError):
            while (text := self._queue.get()) is not None:
                data = text.encode(errors="replace")
                while data:
                    data = data[os.write(self.fileno(), data) :]

    def stop(self) -> None:
        self.write(None)
        while self.is_alive() and time.monotonic() < self.give_up_at:
            self.join(_POLL_S)


linux_driver.WriterThread = Writer  # type: ignore[attr-defined] # the driver has no hook for another


class OwnDriver(LinuxDriver):
    """Textual's driver, with a writer that it has only as long as it has the terminal."""

    @property
    def writer(self) -> Writer | None:
        """None while another program has the terminal."""
        return cast(Writer | None, self._writer_thread)

    def write(self, data: str) -> None:
        if self.writer is not None:
            self.writer.write(data)

    def close(self) -> None:
        super().close()
        self._writer_thread = None


class UpdatingApp(App[Result]):
    """An app that may change the updates of its screen: there is no other place at which something can join the same
    write. One that fails ends with status 1, wherever it fails."""

    def panic(self, *renderables: RenderableType) -> None:
        self._return_code = 1
        super().panic(*renderables)

    def complete_update(self, update: ScreenUpdate, screen: Screen[Any]) -> ScreenUpdate:
        """The update to send instead."""
        return update

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        if isinstance(renderable, CompositorUpdate):
            renderable = self.complete_update(renderable, screen)
        super()._display(screen, renderable)


def shown_notices(app: App[Any]) -> list[str]:
    """The notifications that are on the screen."""
    return [notice.message for notice in app._notifications]


def skip_measuring(table: DataTable[Any]) -> None:
    """Don't measure the cells of new rows. Where columns have fixed widths, nothing needs it, and it is most of what a
    row costs."""
    table._new_rows.clear()
