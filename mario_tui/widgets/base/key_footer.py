"""The footer of all screens: keys and what they do, as many as fit, and always those for help and for leaving."""

from __future__ import annotations

from typing import Any

from textual.widgets import Footer

_ALWAYS = ("help", "quit_app", "detach", "leave", "cancel")


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
        keys, groups, labels = (set[Any](self.query(kind)) for kind in ("FooterKey", "KeyGroup", "FooterLabel"))

        def width(child: Any) -> int:
            """Cells of a compact key, a group of keys without labels, or the label of a group, with the space after."""
            if child in groups:
                return 2 + sum(len(key.key_display) for key in child.children)
            if child in keys:
                return len(child.key_display) + len(child.description) + 2
            return len(str(child.render())) + 1 if child in labels else 0

        stay = {key for key in keys if key.action in _ALWAYS}
        room, full = self.size.width - sum(map(width, stay)), False
        for child in self.children:
            if child not in stay:
                room -= width(child)
                full = full or room < 0
                child.display = not full
