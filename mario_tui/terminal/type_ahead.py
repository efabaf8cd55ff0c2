"""An app in which keys typed while a screen closes are not lost, but reach the screen below it.

Textual forwards a key to the focused widget, from which it bubbles up to the app. A screen that is removed meanwhile
takes the key with it.
"""

from __future__ import annotations

from typing import Any, TypeVar

from textual.await_complete import AwaitComplete
from textual.events import Event, Key
from textual.screen import Screen

from mario_tui.terminal.safe_app import SafeApp

Result = TypeVar("Result")


def _is_under_way(key: Key) -> bool:
    """Whether a key was forwarded, and no widget has consumed it."""
    return key.is_forwarded and not key._stop_propagation


class TypeAheadApp(SafeApp[Result]):
    """Delivers the keys that a closed screen did not handle, then those typed since, in the order of typing."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._forwarded: list[tuple[Key, Screen[Any]]] = []
        """Keys that have not come back yet, with the screen that they went to."""
        self._closing_screens = 0
        self._held: list[Key] = []
        """Keys typed while a screen closes: they must not overtake those that it had not handled."""

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Key):
            await super().on_event(event)
        elif event.is_forwarded:  # it has bubbled up to here
            self._forwarded = [(key, screen) for key, screen in self._forwarded if key is not event]
            await super().on_event(event)
        elif self._closing_screens:
            self._held.append(event)
        else:
            under_way = [(key, screen) for key, screen in self._forwarded if _is_under_way(key)]
            self._forwarded = [*under_way, (event, self.screen)]
            await super().on_event(event)

    def pop_screen(self) -> AwaitComplete:
        closing = self.screen
        popped = super().pop_screen()
        self._closing_screens += 1
        # Once it is removed, and after the keys that have bubbled up to the app's queue.
        self.call_next(self.call_later, self._deliver_again, closing)
        return popped

    def _deliver_again(self, closed: Screen[Any]) -> None:
        """Deliver the keys that a closed screen did not handle, then those typed since."""
        lost = [key for key, screen in self._forwarded if screen is closed and _is_under_way(key)]
        self._forwarded = [(key, screen) for key, screen in self._forwarded if screen is not closed]
        self._held = [key.copy() for key in lost] + self._held
        self._closing_screens -= 1
        if not self._closing_screens:
            held, self._held = self._held, []
            for key in held:
                self.post_message(key)
