"""What all screens have in common: their part of the key table, and the application they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.screen import Screen, ScreenResultType

from mario_tui.keys import Place, keys_in

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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action is offered now; asked by keys, footer and palette."""
        return not (self.mario.read_only and any(key.changes and key.action == action for key in keys_in(self.PLACE)))
