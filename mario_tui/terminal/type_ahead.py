"""An app with one queue of keys and pasted text, so that what is typed fast, or before a screen is there, keeps its
order and its meaning.

Textual forwards a key to the focused widget, from which it bubbles up to the app, which looks up its bindings. The next
key would overtake it: it would go to the widget that has the focus now, not to the one that the first key leads to. And
a screen that is removed meanwhile takes the key with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from textual.await_complete import AwaitComplete
from textual.dom import DOMNode
from textual.events import Event, Key, Paste
from textual.screen import Screen

from mario_tui.terminal.internals import is_stopped
from mario_tui.terminal.safe_app import SafeApp

Result = TypeVar("Result")


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
        """Whether the screen is ready for this. Otherwise it waits, and with it all that is typed after it, until
        `deliver` is called."""
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
        """Whether a key does not wait for a screen: Ctrl-C, and those that Textual handles before all widgets."""
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
    """Whether a key means something in a screen."""
    field = screen.focused
    if isinstance(key, Paste):
        return field is not None
    bound = screen.active_bindings.get(key.key)
    is_bound = bound is not None and screen in bound.node.ancestors_with_self
    return is_bound or (field is not None and field.check_consume_key(key.key, key.character))
