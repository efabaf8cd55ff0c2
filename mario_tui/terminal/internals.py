"""All private names of Textual that mario-tui uses, each behind a public one. A minor version may change them, so
`pyproject.toml` pins it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from queue import Queue
from typing import Any, TypeVar

from textual._compositor import ChopsUpdate, CompositorUpdate
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.driver import Driver
from textual.drivers import linux_driver
from textual.drivers._writer_thread import WriterThread
from textual.geometry import Region
from textual.keys import Keys, _character_to_key
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

Result = TypeVar("Result")
_KEYS = {str(key.value) for key in Keys}
ScreenUpdate = CompositorUpdate
"""What an update of the screen sends to the terminal."""
LinesUpdate = ChopsUpdate
"""One of some lines only, with their `spans`: (y, first x, last x)."""


def driver_of(app: App[Any]) -> Driver | None:
    """The driver of the terminal; None before it is started."""
    return app._driver


def writer_of(app: App[Any]) -> WriterThread | None:
    """The thread that writes to the terminal; None in a browser, in a test, and before it is started."""
    return getattr(app._driver, "_writer_thread", None)


def waiting_output(writer: WriterThread) -> Queue[str | None]:
    """What the thread has still to write. The queue is bounded: a full one blocks the application."""
    return writer._queue


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
    """Whether somebody has stopped a message: it does not bubble any further."""
    return message._stop_propagation


def visible_widgets(screen: Screen[Any]) -> dict[Widget, tuple[Region, Region]]:
    """The widgets in sight, each with its region and the region it is clipped to."""
    return screen._compositor.visible_widgets


def filter_input(wanted: Callable[[str], str]) -> None:
    """Let what the terminal sends pass `wanted` first. Textual's parser takes unknown replies for keys, and the driver
    has no hook for another parser."""
    linux_driver.XTermParser = partial(_Parser, wanted)  # type: ignore[assignment, attr-defined]


class _Parser(XTermParser):
    def __init__(self, wanted: Callable[[str], str], debug: bool = False) -> None:
        super().__init__(debug)
        self._wanted = wanted

    def feed(self, data: str) -> Iterable[Any]:
        keys = self._wanted(data)
        return super().feed(keys) if keys or not data else ()  # no data at all is the end of the input


class UpdatingApp(App[Result]):
    """An app that may change the updates of its screen: there is no other place at which something can join the same
    write."""

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
