"""An app in which keys typed while a screen closes are not lost, but reach the screen below it.

Textual forwards a key to the focused widget, from which it bubbles up to the app. A screen that is removed meanwhile
takes the key with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from textual.await_complete import AwaitComplete
from textual.events import Event, Key
from textual.screen import Screen
from textual.widget import Widget

from mario_tui.terminal.safe_app import SafeApp

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Forwarded:
    """A key that was forwarded to a widget of a screen."""

    key: Key
    widget: Widget
    screen: Screen[Any]


class TypeAheadApp(SafeApp[Result]):
    """Delivers the keys that a closed screen did not handle, then those typed since, in the order of typing.

    What a field of the screen received before the screen closed is the field's.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._forwarded: list[_Forwarded] = []
        """Keys that have not bubbled up to the app yet, as far as known."""
        self._closing_screens = 0
        self._unhandled: list[_Forwarded] = []
        """Keys forwarded to a closing screen. Those that a widget consumes are stopped."""
        self._held: list[Key] = []
        """Keys typed while a screen closes: they must not overtake those."""

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Key):
            await super().on_event(event)
        elif event.is_forwarded:  # it has bubbled up to here
            if any(sent.key is event for sent in self._unhandled):
                event.stop(False)  # a screen stops what it passes to the app
                return
            self._forwarded = [sent for sent in self._forwarded if sent.key is not event]
            await super().on_event(event)
        elif self._closing_screens:
            self._held.append(event)
        else:
            under_way = [sent for sent in self._forwarded if sent.key.is_forwarded and not sent.key._stop_propagation]
            self._forwarded = [*under_way, _Forwarded(event, self.focused or self.screen, self.screen)]
            await super().on_event(event)

    def pop_screen(self) -> AwaitComplete:
        closing = self.screen
        for sent in self._forwarded:  # the key of a widget that is already gone is gone with it
            if sent.screen is closing and sent.key.is_forwarded and sent.widget.is_attached:
                self._unhandled.append(sent)
        self._forwarded = [sent for sent in self._forwarded if sent.screen is not closing]
        popped = super().pop_screen()
        self._closing_screens += 1
        # Once it is removed, and after the keys that have bubbled up to the app's queue.
        self.call_next(self.call_later, self._deliver_again)
        return popped

    async def type_again(self, keys: Sequence[Key]) -> None:
        """Deliver keys that a screen has held. It must be called with `call_next`, to come before those typed since."""
        if self._closing_screens:
            self._held = [*keys, *self._held]
            return
        for key in keys:
            await self.on_event(key.copy())

    async def _deliver_again(self) -> None:
        """Deliver the keys that closed screens did not handle, then those typed since, unless more screens close."""
        self._closing_screens -= 1
        if self._closing_screens:
            return
        keys = [sent.key.copy() for sent in self._unhandled if not sent.key._stop_propagation]
        keys += self._held
        self._unhandled, self._held = [], []
        for key in keys:  # now, as more keys may be waiting in the app's queue
            await self.on_event(key)
