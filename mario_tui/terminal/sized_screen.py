"""A screen that is laid out only for the size which the terminal has now."""

from __future__ import annotations

from textual.command import CommandPalette
from textual.events import Event, Resize
from textual.screen import Screen, ScreenResultType


class SizedScreen(Screen[ScreenResultType]):
    """Ignores sizes that the terminal no longer has.

    Textual lays a screen out for each size it is told, also for an old one that arrives late, and tells it every size
    that it was laid out for. So two sizes in its queue would follow each other for ever.
    """

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Resize) or event.size == self.app.size:
            await super().on_event(event)


class SizedPalette(CommandPalette, SizedScreen[None]):
    """The command palette, as such a screen."""
