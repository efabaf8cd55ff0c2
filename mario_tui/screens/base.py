"""Base classes of screens: access to the key table and to the application."""

from __future__ import annotations

from typing import ClassVar, Protocol, cast

from textual.actions import SkipAction
from textual.await_complete import AwaitComplete
from textual.events import Key
from textual.screen import ModalScreen, ScreenResultType

from engine.host.client import HostProcess
from engine.runs.run import Run
from mario_tui.data.keys import Place, keys_in
from mario_tui.data.settings import Settings
from mario_tui.terminal.sized_screen import SizedScreen


class Application(Protocol):
    """What screens use of the application (`mario_tui.app.MarioApp`, which knows the screens)."""

    run_dir: str | None
    read_only: bool
    settings: Settings

    def key(self, name: str) -> str:
        """The key of an action, such as `home.new`, for hints."""

    def open_dashboard(self, run: Run, host: HostProcess | None = None) -> None:
        """Show the dashboard of a run on top of what is shown."""

    def go_home(self) -> None:
        """Close all screens above home; runs continue."""

    def alert(self, text: str) -> None:
        """Let a user who is not watching know that something has happened."""


class DismissedOnce(SizedScreen[ScreenResultType]):
    """A screen that closes no other: Textual's `dismiss` closes whatever screen is on top. A second Enter may arrive
    while the screen already closes."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


class PlaceScreen(DismissedOnce[ScreenResultType]):
    """A screen with the keys of `PLACE`. In read-only mode, keys that change something are disabled."""

    PLACE: ClassVar[Place]

    @property
    def mario(self) -> Application:
        """The application, by its own type."""
        return cast(Application, self.app)

    @property
    def is_current(self) -> bool:
        """Whether the screen is visible. Textual's own property is also true for a screen under an opaque one, and both
        would be drawn."""
        return super().is_current and (self.app.screen is self or self.app.screen.styles.background.a < 1)

    def hold(self, key: Key) -> bool:
        """Handle a key that no widget consumed; return True to skip its bindings."""
        return False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action is available; called for keys, footer and palette."""
        return not (self.mario.read_only and any(key.changes and key.action == action for key in keys_in(self.PLACE)))


class Modal(DismissedOnce[ScreenResultType], ModalScreen[ScreenResultType]):
    """A dialog over a screen. It blocks the application's keys, except Ctrl-C."""

    def action_copy_text(self) -> None:
        """Ctrl-C copies the selected text, as everywhere in Textual; without a selection it quits."""
        try:
            super().action_copy_text()
        except SkipAction:
            self.app.action_help_quit()
