"""Base classes of screens: access to the key table and to the application."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol, TypeVar, cast

from textual.actions import SkipAction
from textual.app import SuspendNotSupported
from textual.await_complete import AwaitComplete
from textual.events import Key, Paste
from textual.screen import ModalScreen, ScreenResultType

from engine.errors import UserError
from engine.host.client import HostProcess
from engine.runs.checkpoints import OnProgress
from engine.runs.run import Run
from mario_tui.data.keys import Place, keys_in
from mario_tui.data.program import program
from mario_tui.data.settings import Settings
from mario_tui.screens.job import Cancelled, Job
from mario_tui.terminal.job_control import run_in_front
from mario_tui.terminal.sized_screen import SizedScreen

Result = TypeVar("Result")


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

    async def deliver(self) -> None:
        """Deliver the keys that have waited for the screen."""


class DismissedOnce(SizedScreen[ScreenResultType]):
    """A screen that closes no other: Textual's `dismiss` closes whatever screen is on top. A second Enter may arrive
    while the screen already closes."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


class PlaceScreen(DismissedOnce[ScreenResultType]):
    """A screen with the keys of `PLACE`. In read-only mode, keys that change something are disabled."""

    PLACE: ClassVar[Place]
    job: Job | None = None
    """The work under way."""

    @property
    def mario(self) -> Application:
        """The application, by its own type."""
        return cast(Application, self.app)

    @property
    def is_current(self) -> bool:
        """Whether the screen is visible. Textual's own property is also true for a screen under an opaque one, and both
        would be drawn."""
        return super().is_current and (self.app.screen is self or self.app.screen.styles.background.a < 1)

    def takes(self, key: Key | Paste) -> bool:
        """Whether the screen is ready for a key or pasted text. If not, it waits, and so does all that is typed after
        it, until the screen calls the application's `deliver`."""
        return self.job is None

    def run_job(
        self,
        what: str,
        work: Callable[[OnProgress], Result],
        done: Callable[[Result], object],
        failed: Callable[[UserError], object] | None = None,
    ) -> None:
        """Do work that may take long in a thread, then call `done` with its result, or `failed` with its error; by
        default the error is shown. `what`: what the screen says about the work.

        Until then other keys than Escape, which cancels it, and Ctrl-C wait: they may be meant for what it opens.
        """
        if self.job is not None:
            return
        self.job = Job(what)
        self.run_worker(self._work(self.job, work, done, failed or self.show_error), name="job")

    async def _work(
        self,
        job: Job,
        work: Callable[[OnProgress], Result],
        done: Callable[[Result], object],
        failed: Callable[[UserError], object],
    ) -> None:
        await self.mount(job)
        outcome: Callable[[], object] | None = None
        try:
            outcome = partial(done, await asyncio.to_thread(work, job.progress))
        except UserError as error:
            outcome = partial(failed, error)
        except Cancelled:
            pass
        except asyncio.CancelledError:  # the screen was closed
            job.cancel()
            raise
        self.job = None
        self.refresh_bindings()
        job.remove()
        if outcome is not None:
            outcome()
        self.app.call_next(self.mario.deliver)

    def action_home(self) -> None:
        """Go back to the list of runs."""
        self.mario.go_home()

    def action_quit_app(self) -> None:
        self.app.exit()

    def play(self, *arguments: str, shown: str) -> None:
        """Leave the terminal to `mario-tui play` with these arguments until it ends. In a browser and in read-only mode
        that can't be; then a notice says what to type in a shell, with `shown` for the arguments."""
        where = "in read-only mode" if self.mario.read_only else "in a browser"
        with contextlib.suppress(SuspendNotSupported):
            if not self.mario.read_only:
                run_in_front(self.app, [sys.executable, "-P", "-m", "mario_tui", "play", *arguments])
                return
        self.notify(f"Nobody can play {where}. In a shell: {program()} play {shown}", timeout=8)

    def show_error(self, error: UserError) -> None:
        self.notify(str(error), severity="error", timeout=10)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action is available; called for keys, clicks, footer and palette."""
        return not (
            self.job is not None
            or (self.mario.read_only and any(key.changes and key.action == action for key in keys_in(self.PLACE)))
        )


class Modal(DismissedOnce[ScreenResultType], ModalScreen[ScreenResultType]):
    """A dialog over a screen. It blocks the application's keys, except Ctrl-C."""

    def action_copy_text(self) -> None:
        """Ctrl-C copies the selected text, as everywhere in Textual; without a selection it quits."""
        try:
            super().action_copy_text()
        except SkipAction:
            self.app.action_help_quit()
