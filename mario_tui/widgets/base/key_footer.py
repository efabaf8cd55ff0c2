"""The footer of all screens: keys and what they do, as many as fit, and always the one of the help."""

from __future__ import annotations

from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey, FooterLabel, KeyGroup


class KeyFooter(Footer):
    """Where there is no room for all keys, those at the end are left out: the help names them."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)

    async def recompose(self) -> None:
        await super().recompose()
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        room = self.size.width - sum(_width(child) for child in self.children if _is_help(child))
        full = False
        for child in self.children:
            if not _is_help(child):
                room -= _width(child)
                full = full or room < 0
                child.display = not full


def _is_help(child: Widget) -> bool:
    return isinstance(child, FooterKey) and child.action == "help"


def _width(child: Widget) -> int:
    """Cells of a compact key, a group of keys without labels, or the label of a group, with the space after it."""
    if isinstance(child, KeyGroup):
        return 2 + sum(len(key.key_display) for key in child.query(FooterKey))
    if isinstance(child, FooterKey):
        return len(child.key_display) + len(child.description) + 2
    return len(str(child.render())) + 1 if isinstance(child, FooterLabel) else 0
