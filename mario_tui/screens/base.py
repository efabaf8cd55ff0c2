"""What all screens have in common: their part of the key table, and the application they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.actions import SkipAction
from textual.events import Key
from textual.screen import ModalScreen, Screen, ScreenResultType

from mario_tui.data.keys import Place, keys_in

if TYPE_CHECKING:
    from mario_tui.app import MarioApp


class PlaceScreen(Screen[ScreenResultType]):
    """A screen whose keys are those of `PLACE`. In read-only mode keys that change something are not there."""

    PLACE: ClassVar[Place]

    @property
    def mario(self) -> MarioApp:
        """The application, by its own type."""
        from mario_tui.app import MarioApp

        assert isinstance(self.app, MarioApp)
        return self.app

    @property
    def is_current(self) -> bool:
        """Whether the user sees it. Textual also says so of a screen under an opaque one, and then draws both."""
        return super().is_current and (self.app.screen is self or self.app.screen.styles.background.a < 1)

    def hold(self, key: Key) -> bool:
        """Whether a key that no widget took is kept from the bindings."""
        return False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action is offered now; asked by keys, footer and palette."""
        return not (self.mario.read_only and any(key.changes and key.action == action for key in keys_in(self.PLACE)))


class Modal(ModalScreen[ScreenResultType]):
    """A dialog over a screen. Keys of the application end at it; Ctrl-C means what it means everywhere."""

    def action_copy_text(self) -> None:
        """Ctrl-C copies what is selected, as anywhere in Textual, and else is the way out."""
        try:
            super().action_copy_text()
        except SkipAction:
            self.app.action_help_quit()
