"""An app in which keys typed while a screen closes are not lost, but reach the screen below it.

Textual forwards a key to the focused widget, from which it bubbles up to the app. A screen that is removed meanwhile
takes the key with it.
"""

from __future__ import annotations

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

    @property
    def is_under_way(self) -> bool:
        """Whether it may still bubble up to the app: no widget has consumed it, and the first is still there."""
        return self.key.is_forwarded and not self.key._stop_propagation and self.widget.is_attached


class TypeAheadApp(SafeApp[Result]):
    """Delivers the keys that a closed screen did not handle, then those typed since, in the order of typing.

    What a field of the screen received before the screen closed is the field's.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._forwarded: list[_Forwarded] = []
        """Keys that have not bubbled up to the app yet."""
        self._closing_screens = 0
        self._held: list[Key] = []
        """Keys typed while a screen closes: they must not overtake those that it had not handled."""

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Key):
            await super().on_event(event)
        elif event.is_forwarded:  # it has bubbled up to here
            sent = next((sent for sent in self._forwarded if sent.key is event), None)
            if sent is not None and sent.screen not in self.screen_stack:  # it is for the widgets of the screen below
                event.stop(False)
                return
            self._forwarded = [other for other in self._forwarded if other is not sent]
            await super().on_event(event)
        elif self._closing_screens:
            self._held.append(event)
        else:
            sent = _Forwarded(event, self.focused or self.screen, self.screen)
            self._forwarded = [*(other for other in self._forwarded if other.is_under_way), sent]
            await super().on_event(event)

    def pop_screen(self) -> AwaitComplete:
        closing = self.screen
        sent_there = [sent for sent in self._forwarded if sent.screen is closing and sent.is_under_way]
        popped = super().pop_screen()
        self._closing_screens += 1
        # Once it is removed, and after the keys that have bubbled up to the app's queue.
        self.call_next(self.call_later, self._deliver_again, sent_there)
        return popped

    async def _deliver_again(self, sent_there: list[_Forwarded]) -> None:
        """Deliver those keys that a closed screen did not handle, then the ones typed since."""
        lost = [sent for sent in sent_there if sent in self._forwarded and not sent.key._stop_propagation]
        self._forwarded = [sent for sent in self._forwarded if sent not in sent_there]
        self._held = [*(sent.key.copy() for sent in lost), *self._held]
        self._closing_screens -= 1
        if not self._closing_screens:
            held, self._held = self._held, []
            for key in held:  # now, as more keys may be waiting in the app's queue
                await self.on_event(key)
