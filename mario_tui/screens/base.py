"""Base classes of screens: access to the key table and to the application, work that takes long, and the notice for a
terminal that is too small.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from rich.text import Text
from textual.actions import SkipAction
from textual.app import ComposeResult, SuspendNotSupported
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.events import Key, Paste, Resize
from textual.geometry import Size
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Static

from engine.errors import UserError
from engine.runs.checkpoints import OnProgress
from engine.runtime.text import printable
from mario_tui.data.keys import Place, keys_in
from mario_tui.engine_command import program
from mario_tui.terminal.driver import run_in_front
from mario_tui.terminal.safe_app import SizedScreen

if TYPE_CHECKING:
    from mario_tui.app import MarioApp

_PATIENCE_S = 0.3
"""Work that is done by then shows no line."""
_TICK_S = 0.1


class Cancelled(Exception):
    """The user has cancelled the work."""


class Job(Static):
    """One piece of work, as a line above the footer. Its thread calls `progress`, everything else is the screen's."""

    def __init__(self, what: str) -> None:
        super().__init__(classes="job")
        self._what = what
        self._done = 0.0
        self._began = time.monotonic()
        self._cancelled = False

    def progress(self, done: float) -> None:
        """Note the fraction done. Raises `Cancelled` if the work is no longer wanted."""
        self._done = done
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """End the work as soon as it makes progress."""
        self._cancelled = True

    def on_mount(self) -> None:
        self.display = False
        self.set_interval(_TICK_S, self._show)

    def _show(self) -> None:
        self.display = time.monotonic() >= self._began + _PATIENCE_S
        share = f": {self._done:.0%}" if self._done else ""
        how = "cancelling" if self._cancelled else "esc: cancel"
        self.update(Text(printable(f"{self._what}{share}  ·  {how}"), no_wrap=True, overflow="ellipsis"))


Result = TypeVar("Result")


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
    def mario(self) -> MarioApp:
        """The application, by its own type."""
        return cast("MarioApp", self.app)

    @property
    def is_current(self) -> bool:
        """Return whether the screen is visible. Textual's own property is also true for a screen under an opaque one,
        and both would be drawn."""
        return super().is_current and (self.app.screen is self or self.app.screen.styles.background.a < 1)

    def takes(self, key: Key | Paste) -> bool:
        """Return whether the screen is ready for a key or pasted text. If not, it waits, and so does all that is typed
        after it, until the screen calls the application's `deliver`."""
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
        """Return whether an action is available; called for keys, clicks, footer and palette."""
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


LEAST = Size(40, 12)
"""Smallest supported size, in columns and rows."""


def too_small(size: Size) -> bool:
    return size.width < LEAST.width or size.height < LEAST.height


class TooSmallScreen(Modal[None]):
    """Covers all screens while the terminal is too small."""

    BINDINGS = [Binding("q", "app.quit", "Quit")]

    def compose(self) -> ComposeResult:
        yield Static(id="too-small")

    def on_resize(self, event: Resize) -> None:
        self.query_one("#too-small", Static).update(
            Text(
                f"The terminal must be at least {LEAST.width}x{LEAST.height}, got "
                f"{event.size.width}x{event.size.height}.\nRuns keep running. q: quit",
                justify="center",
            )
        )
